"""Build an imported language model as a native library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fx_importer import Manifest, UsageError, load, read_weights
from fx_importer.llm.checkpoints.weight_stamps import check_stamps
from fx_importer.llm.imported import MODULE
from fx_importer.llm.loading import empty_state, manifest_of
from fx_importer.llm.settings import Settings
from fx_importer.mlir.output_files import complete_directory
from fx_importer.native.build import KINDS, SOURCE, Built, build_native, check_build
from fx_importer.weights import stored_in

LIBRARIES = tuple(kind for kind in KINDS if kind not in ("executable", SOURCE))


def build(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    target: str | None = None,
    kind: str = "shared",
    threads: str | None = None,
    blas: str | None = None,
) -> Built:
    """Build the functions that generate tokens as a library with a C header.

    The library maps the files of weights, whose paths its caller passes; a weight that code reads transposed is in a
    new file.

    Args:
        folder: a folder that `import_model` wrote.
        output: the folder to write, which is complete or left as it was. All names in C begin with its name:
            ``"out/llama"`` has ``out/llama/llama.h`` and ``out/llama/libllama.so``.
        target: the processor, as of `Lowered.build`.
        kind: ``"shared"``, ``"static"`` or ``"object"``.
        threads: as of `Lowered.build`.
        blas: as of `Lowered.build`.

    Raises:
        UsageError: if a file is missing or changed since the import, or the target, kind or path is not accepted.
        NotInstalledError: without the extra ``native``.
    """
    path, made = Path(folder), Path(output)
    if kind not in LIBRARIES:
        raise UsageError(f"no kind '{kind}' of a language model: accepted are {', '.join(LIBRARIES)}")
    check_build(made, target, kind, "file", threads, blas)
    settings, manifest = Settings.read(path), manifest_of(path)
    check_stamps(path, settings.weights, settings.files)
    stored: dict[str, Any] = {}
    for source in reversed(settings.weights):
        stored |= stored_in(path / source)
    tensors = read_weights(manifest, stored)
    lowered = load(path / MODULE, weights=tensors)
    functions = {name: function for name, function in manifest.functions.items() if name != "score"}
    lowered = replace(
        lowered,
        tensors={**lowered.tensors, **empty_state(manifest)},
        manifest=replace(lowered.manifest, functions=functions),
    )
    mapped = list(dict.fromkeys(tensor.file for tensor in stored.values()))
    try:
        with complete_directory(made) as new:
            constants = _constants(settings, manifest)
            built = build_native(lowered, new / made.name, target, kind, "file", threads, blas, mapped, constants)
    except OSError as error:
        raise UsageError(f"'{made}' cannot be written: {error}") from None
    return replace(built, files=tuple(made / file.name for file in built.files))


def _constants(settings: Settings, manifest: Manifest) -> Mapping[str, str]:
    """Return macros with the facts that a program needs to generate tokens."""
    stops = settings.stop_tokens
    numbers = {
        "BATCH": settings.batch,
        "CONTEXT": settings.context,
        "CHUNK": settings.chunk,
        "VOCABULARY": next(
            result.type.sizes[-1] for result in manifest.functions["decode"].results if result.kind == "output"
        ),
        "PAGES": settings.pages,
        "PAGE_SIZE": settings.page_size,
        "STOP_TOKENS_COUNT": len(stops),
        "STOP_TOKENS": f"{{{', '.join(map(str, stops))}}}" if stops else None,
    }
    return {name: str(number) for name, number in numbers.items() if number is not None}
