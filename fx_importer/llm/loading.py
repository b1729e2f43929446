"""Load an imported language model on an engine."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fx_importer import Caller, Manifest, UsageError, link, read_weights
from fx_importer.calls.backend import Loaded, TakesWeights
from fx_importer.engines import BackendOptions, HostCalls
from fx_importer.engines.device_names import CPU, engine_on, torch_device_named
from fx_importer.engines.engine_table import DEFAULT_ENGINE, engine_named, language_model_engines
from fx_importer.llm.batch_model import BatchModel
from fx_importer.llm.checkpoints.lora_arguments import AdaptedCaller, matrices_for
from fx_importer.llm.checkpoints.weight_stamps import check_stamps
from fx_importer.llm.image_model import ImageModel
from fx_importer.llm.imported import MODULE
from fx_importer.llm.language_model import LanguageModel
from fx_importer.llm.memory import available_memory
from fx_importer.llm.paged_model import PagedModel
from fx_importer.llm.settings import Settings
from fx_importer.llm.source_model import SourceModel
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.weights import as_passed


class _Later:
    """A function of a module, compiled on first use."""

    def __init__(self, load: Callable[[], Loaded]):
        self._loaded = functools.cache(load)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded(), name)

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        return self._loaded()(*arguments)


def load(
    folder: str | os.PathLike[str],
    *,
    engine: str | None = None,
    lora: str | os.PathLike[str] | None = None,
    device: str = CPU,
) -> LanguageModel:
    """Load a folder that `import_model` wrote. Compile ``prefill`` and ``decode`` now, other functions on first use.

    Args:
        folder: the folder.
        engine: the name of an engine that runs language models; by default `engine_for`.
        lora: a folder with a PEFT adapter, for a module that takes one: `LanguageModel.use_adapter`.
        device: where the module runs, as for `Lowered.caller`: weights and cache are there; tokens are sampled on the
            CPU.

    Raises:
        NotInstalledError: if the engine or transformers is not installed; the message names the extra to install.
        UsageError: if the engine or the device is not supported, a file is missing, the weights do not match the module
            or changed since the import, or there is not enough memory for the cache.
    """
    path, engine = Path(folder), engine_for(device, engine)
    backend = engine_named(engine).create(BackendOptions(device=device))
    settings = Settings.read(path)
    manifest = manifest_of(path)
    check_stamps(path, settings.weights, settings.files)
    # Before the module is compiled, which takes longer than any error should.
    matrices = None if lora is None and settings.adapter is None else matrices_for(settings.adapter, lora)
    tokenizer = _tokenizer(path)
    source = [path / weight for weight in settings.weights]
    state = empty_state(manifest)
    if isinstance(backend, TakesWeights):
        weights = read_weights(manifest, source)
        passed = {key: as_passed(weights[weight.name], weight) for key, weight in manifest.weights.items()}
        backend, module = backend.with_weights(passed), read_untrusted_module(path / MODULE)
    else:
        module = link(path / MODULE, source, manifest)
    if device != CPU:
        backend = HostCalls(backend, torch_device_named(device))
    functions: dict[str, Loaded] = {name: backend.load(module, name) for name in ("prefill", "decode")}
    for name in manifest.functions.keys() - functions.keys():
        functions[name] = _Later(functools.partial(backend.load, module, name))
    caller = Caller(manifest, functions, state)
    if matrices is not None:
        caller = AdaptedCaller(manifest, functions, state)
        caller.adapter = matrices
    return _kind(settings)(caller, settings, tokenizer)


def engine_for(device: str, engine: str | None = None) -> str:
    """Return the name of the engine that runs language models on ``device``, by default the first.

    Raises:
        UsageError: if there is none, ``engine`` is not one, or the device is not there.
    """
    if engine is not None and engine not in language_model_engines():
        raise UsageError(f"the engine {engine!r}: accepted are {', '.join(language_model_engines())}")
    return engine or DEFAULT_ENGINE if device == CPU else engine_on(device, None, engine)


def manifest_of(path: Path) -> Manifest:
    """Return the manifest in a folder that `import_model` wrote. Raises `UsageError` if it cannot be read."""
    file = path / MODULE.replace(".mlirbc", ".manifest.json")
    try:
        return Manifest.from_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise UsageError(f"'{file}' cannot be read: {error}; import the model again") from None


def _kind(settings: Settings) -> type[LanguageModel]:
    """Return the class for a module of ``settings``."""
    if settings.source is not None:
        return SourceModel
    if settings.image_token is not None:
        return ImageModel
    return PagedModel if settings.page_size else BatchModel


def _tokenizer(path: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of transformers, of any type
        raise UsageError(
            f"transformers cannot read the tokenizer in '{path}': {' '.join(str(error).split())}"
        ) from error


def empty_state(manifest: Manifest) -> dict[str, torch.Tensor]:
    """Return zeros for the state. Raises `UsageError` before allocating if there is not enough memory."""
    types = {name: (tensor.type.sizes, getattr(torch, tensor.type.dtype)) for name, tensor in manifest.state.items()}
    needed = sum(math.prod(sizes) * dtype.itemsize for sizes, dtype in types.values())
    available = available_memory()
    if available is not None and needed > available:
        raise UsageError(
            f"the cache takes {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB of memory are available: "
            "import the model with a shorter context, a smaller batch, or fewer pages"
        )
    return {name: torch.zeros(sizes, dtype=dtype) for name, (sizes, dtype) in types.items()}
