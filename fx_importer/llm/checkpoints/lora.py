"""Read PEFT LoRA adapters from files, and merge them into the weights of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from fx_importer.errors import UsageError
from fx_importer.json_text import parse_json
from fx_importer.weights import stored_in

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(?P<path>.+)\.lora_(embedding_)?(?P<side>[AB])(\.weight)?")
_COPY = re.compile(r"base_model\.model\.(?P<path>.+?)(\.base_layer)?\.weight")
"""The name of a base weight: PEFT also saves the embeddings and the output layer if an adapter targets them."""
_MUST_BE_UNSET = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "modules_to_save",
    "trainable_token_indices",
    "target_parameters",
    "layer_replication",
    "alora_invocation_tokens",
    "arrow_config",
    "velora_config",
    "monteclora_config",
    "kasa_config",
)
"""Options with which an adapter does more than add B A to weights, or something else."""
_ALL = "all-linear"
"""The text of ``target_modules`` for all linear layers but the output layer."""
_ADAPTABLE = (torch.nn.Linear, torch.nn.Embedding, Conv1D)
_INITIALIZATIONS = (True, False, "gaussian", "eva", "orthogonal")
"""The initializations that do not change the model's weights."""


Adapter = dict[str, tuple[Tensor, Tensor, float]]
"""A [r, K], B [N, r] and the scale of B A, keyed by module path."""


def read_adapter(folder: Path, layers: Iterable[str]) -> Adapter:
    """Return the matrices of the adapter in ``folder``, which changes linear ``layers`` and no embeddings.

    Raises:
        UsageError: if the folder has no adapter, or the adapter uses options beyond plain LoRA, changes embeddings, or
            lacks matrices of its target modules or has others.
    """
    config, tensors = _config(folder), _tensors(folder)
    for name in tensors:
        if (match := _NAME.fullmatch(name)) is None or "lora_embedding" in name:
            path = (match or _COPY.fullmatch(name) or {"path": name})["path"]
            raise UsageError(f"'{folder}' changes '{path}' other than by a sum: merge it at import, with lora=")
    pairs = _pairs(tensors, folder)
    _check_targets(config, pairs, [path for path in layers if is_targeted(config, path)], folder)
    return {
        path: (first, second, _scale(config, path, first.shape[0], folder)) for path, (first, second) in pairs.items()
    }


def merge(model: Any, folder: Path) -> None:
    """Merge the adapter in ``folder`` into the weights of ``model``. Changed modules get new weight parameters.

    The computation runs in float32 and is rounded to the dtype of the weight, like PEFT's `merge_and_unload`.

    Raises:
        UsageError: if the folder has no adapter, or the adapter uses options beyond plain LoRA, does not fit the
            model's modules, or lacks matrices of its target modules or has others.
    """
    config = _config(folder)
    users: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        users.setdefault(id(parameter), []).append(name)
    tensors = _tensors(folder)
    _check_copies(model, tensors, folder)
    pairs = _pairs(tensors, folder)
    _check_targets(config, pairs, _targets(config, model), folder)
    for path, (first, second) in pairs.items():
        module = _module(model, path, folder)
        if len(names := users[id(module.weight)]) > 1:
            raise UsageError(f"'{folder}' changes '{path}', whose weight the model shares: {', '.join(names)}")
        scale = _scale(config, path, first.shape[0], folder)
        with torch.no_grad():
            added = (second.float() @ first.float()) * scale
            if not isinstance(module, torch.nn.Linear):
                added = added.t()
            if added.shape != module.weight.shape:
                raise UsageError(
                    f"'{folder}' adds {tuple(added.shape)} to the weight of '{path}', which is "
                    f"{tuple(module.weight.shape)}: it is of another model"
                )
            merged = (module.weight.float() + added).to(module.weight.dtype)
        module.weight = torch.nn.Parameter(merged, requires_grad=False)


def _config(folder: Path) -> Mapping[str, Any]:
    """Return the adapter's configuration. Raises `UsageError` if `merge` does not support its options."""
    try:
        config = parse_json((folder / CONFIG).read_bytes(), finite=False)
        kind = config.get("peft_type")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"'{folder}' holds no adapter of peft ({CONFIG}): {error}") from None
    if kind != "LORA":
        raise UsageError(f"'{folder}' is an adapter of the type {kind!r}: accepted is 'LORA'")
    refused = [key for key in _MUST_BE_UNSET if config.get(key)]
    refused += ["bias"] if config.get("bias", "none") != "none" else []
    refused += ["init_lora_weights"] if config.get("init_lora_weights", True) not in _INITIALIZATIONS else []
    if refused:
        unset = ", ".join(f"{key}={config[key]!r}" for key in refused)
        raise UsageError(f"'{folder}' has options that are not merged here: {unset}; merge it with peft")
    try:
        is_targeted(config, "layers.0.")
    except (TypeError, ValueError, re.error) as error:
        raise UsageError(f"'{folder / CONFIG}' does not say target_modules: {type(error).__name__}: {error}") from None
    return config


def _targets(config: Mapping[str, Any], model: Any) -> list[str]:
    """Return the modules of ``model`` that the adapter has matrices for, as its configuration states."""
    kinds = (torch.nn.Linear, Conv1D) if config.get("target_modules") == _ALL else _ADAPTABLE
    modules = {path: module for path, module in model.named_modules() if isinstance(module, kinds)}
    if config.get("target_modules") == _ALL:
        modules = {path: module for path, module in modules.items() if module is not model.get_output_embeddings()}
    return [path for path in modules if is_targeted(config, path)]


def is_targeted(config: Mapping[str, Any], path: str) -> bool:
    """Return whether the adapter's ``target_modules``, and what limits them, name the module at ``path``."""
    targets, excluded = config.get("target_modules"), config.get("exclude_modules")
    if targets is None or (targets != _ALL and not _is_named(targets, path)):
        return False
    if excluded and _is_named(excluded, path):
        return False
    if (layers := config.get("layers_to_transform")) is None:
        return True
    patterns = config.get("layers_pattern") or [r"[^.]*"]
    texts = (
        re.match(rf".*\.{pattern}\.(\d+)\.", path)
        for pattern in ([patterns] if isinstance(patterns, str) else patterns)
    )
    number = next((int(match[1]) for match in texts if match is not None), None)
    return number in (layers if isinstance(layers, list) else [layers])


def _is_named(names: Any, path: str) -> bool:
    """Return whether ``path`` matches a regular expression, or one of several names is at its end, as PEFT does."""
    if isinstance(names, str):
        return re.fullmatch(names, path) is not None
    return any(path == name or path.endswith(f".{name}") for name in names)


def _check_targets(config: Mapping[str, Any], paths: Iterable[str], targets: Sequence[str], folder: Path) -> None:
    """Raise `UsageError` unless there are matrices for ``targets``, and for no module that is not a target."""
    known = set(paths)
    if missing := [f"'{path}'" for path in targets if path not in known]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UsageError(
            f"'{folder / WEIGHTS}' lacks the matrices of {', '.join(missing[:3])}{more}, which the target_modules in "
            f"{CONFIG} name: it is incomplete, or of another model"
        )
    if config.get("target_modules") in (None, _ALL):
        return
    if unknown := [path for path in known if not is_targeted(config, path)]:
        raise UsageError(
            f"'{folder / WEIGHTS}' has matrices of '{min(unknown)}', which the target_modules in {CONFIG} do not name: "
            f"{config['target_modules']!r}"
        )


def _tensors(folder: Path) -> dict[str, Tensor]:
    if not (folder / WEIGHTS).is_file():
        raise UsageError(f"'{folder}' holds no {WEIGHTS}: accepted is a folder that peft's save_pretrained writes")
    read = {
        name: tensor.read(tensor.type)
        for name, tensor in stored_in(folder / WEIGHTS).items()
        if tensor.type is not None
    }
    for name, tensor in read.items():
        if tensor.dim() != 2 or not (_NAME.fullmatch(name) or _COPY.fullmatch(name)):
            raise UsageError(f"'{folder / WEIGHTS}' holds '{name}', which is not a LoRA matrix; merge it with peft")
    return read


def _check_copies(model: Any, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Raise `UsageError` if base weights stored with an adapter differ from the weights of ``model``."""
    for name, tensor in tensors.items():
        if _NAME.fullmatch(name) is None and (match := _COPY.fullmatch(name)) is not None:
            weight = _module(model, match["path"], folder).weight
            if not torch.equal(weight.to(tensor.dtype), tensor):
                raise UsageError(f"'{folder}' replaces the weight of '{match['path']}'; merge it with peft")


def _pairs(tensors: Mapping[str, Tensor], folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the matrices A, [r, K], and B, [N, r], keyed by module path."""
    sides: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if (match := _NAME.fullmatch(name)) is not None:
            sides.setdefault(match["path"], {})[match["side"]] = tensor
    wrong = [path for path, side in sides.items() if len(side) != 2 or side["A"].shape[0] != side["B"].shape[1]]
    if wrong or not sides:
        of = f" of {wrong[0]!r}" if wrong else ""
        raise UsageError(f"'{folder / WEIGHTS}' holds no fitting matrices A and B{of}")
    return {path: (side["A"], side["B"]) for path, side in sides.items()}


def _module(model: Any, path: str, folder: Path) -> Any:
    try:
        module = model.get_submodule(path)
    except AttributeError:
        module = None
    if not isinstance(module, _ADAPTABLE):
        reason = "it does not have" if module is None else f"is a {type(module).__name__}"
        raise UsageError(
            f"'{folder}' changes the module '{path}' of {type(model).__name__}, which {reason}: accepted are linear "
            "layers and embeddings of the model that the adapter was trained for"
        )
    return module


def _scale(config: Mapping[str, Any], path: str, rank: int, folder: Path) -> float:
    """Return the scale of B A: alpha / r, or alpha / √r with ``use_rslora``."""
    try:
        expected = _of_module(config.get("rank_pattern"), path, config["r"])
        alpha = float(_of_module(config.get("alpha_pattern"), path, config["lora_alpha"]))
        rank_stabilized = bool(config.get("use_rslora"))
    except (KeyError, TypeError, ValueError, AttributeError, re.error) as error:
        raise UsageError(
            f"'{folder / CONFIG}' does not say r and lora_alpha: {type(error).__name__}: {error}"
        ) from None
    if expected != rank:
        raise UsageError(f"'{folder}' has matrices of rank {rank} for '{path}', and says {expected!r} in {CONFIG}")
    return alpha / (rank**0.5 if rank_stabilized else rank)


def _of_module(pattern: Mapping[str, Any] | None, path: str, default: Any) -> Any:
    """Return the value of the first key in ``pattern`` that matches the end of ``path``, as PEFT does."""
    ranks = (value for key, value in (pattern or {}).items() if re.match(rf"(.*\.)?({key})$", path))
    return next(ranks, default)
