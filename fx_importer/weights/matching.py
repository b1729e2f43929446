"""Match the weights that a manifest lists with a state dict, a model or files."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch.export import ExportedProgram

from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest, ValueType, Weight
from fx_importer.mlir.tensor_elements import as_array, missing_values
from fx_importer.weights.weight_files import Mapped, Stored, stored_in

Source = Mapping[str, torch.Tensor] | torch.nn.Module | ExportedProgram | str | os.PathLike[str] | Sequence["Source"]
"""A state dict, a model, an exported program, a file or a directory (`ACCEPTED`); or several of these, of which the
first takes precedence."""


def read_weights(
    manifest: Manifest, weights: Source | None = None, base: str | os.PathLike[str] = ".", *, trust: bool = False
) -> dict[str, torch.Tensor]:
    """Return the external weights of the module of ``manifest``, by their names in the state dict.

    Tensors in files are mapped into memory, and read on access.

    Args:
        manifest: of the module.
        weights: where they are; by default the files that the manifest names, which must be unchanged.
        base: the directory to which paths in the manifest are relative.
        trust: take the weights of files that the manifest names outside of ``base``.

    Raises:
        UsageError: listing every tensor that is missing, or has another type than in the module.
    """
    check_manifest(manifest)
    if weights is None:
        return _read_indexed(manifest, Path(base), trust)
    offered = tensors_of(weights)
    tensors: dict[str, torch.Tensor] = {}
    missing: list[str] = []
    problems: list[str] = []
    for weight in manifest.weights.values():
        names = [name for name in (weight.name, *weight.also) if name in offered]
        if not names:
            missing.append(f"'{weight.name}' is missing")
        elif problem := mismatch(offered[names[0]], weight.type):
            problems.append(f"'{names[0]}' {problem}")
        else:
            tensors[weight.name] = _tensor(offered[names[0]], weight.type)
            others = [name for name in names[1:] if not _is_equal(tensors[weight.name], offered[name], weight.type)]
            problems += [f"'{name}' is not '{names[0]}', and they are one tensor in the module" for name in others]
    if missing or problems:
        needed = {name for weight in manifest.weights.values() for name in (weight.name, *weight.also)}
        unused = [repr(name) for name in offered if missing and name not in needed]
        _raise_mismatch([*missing, *problems], unused=unused)
    return tensors


def check_manifest(manifest: object) -> None:
    """Raise `UsageError` unless ``manifest`` is a `Manifest`."""
    if not isinstance(manifest, Manifest):
        kind = type(manifest).__name__
        raise UsageError(f"a manifest is Lowered.manifest, or Manifest.from_json(text), and not of type {kind}")


def tensors_of(source: Source) -> dict[str, Any]:
    """Return the entries of ``source``, tensors and others, by name. Raises `UsageError` if it is no `Source`."""
    match source:
        case str() | os.PathLike():
            return dict(stored_in(source))
        case torch.nn.Module():
            parameters = source.named_parameters(remove_duplicate=False)
            return {**dict(parameters), **dict(source.named_buffers(remove_duplicate=False))}
        case ExportedProgram():
            return {**source.constants, **source.state_dict}
        case Mapping():
            return dict(source)
        case Sequence():
            return {name: tensor for part in reversed(source) for name, tensor in tensors_of(part).items()}
    raise UsageError(
        f"weights come from a state dict, a model, an exported program or a file, and not from {type(source).__name__}"
    )


def mismatch(offered: Any, wanted: ValueType) -> str | None:
    """Return how ``offered`` differs from ``wanted``; None if it fits."""
    needed = f"but the module was made for {spelled(wanted)}"
    if isinstance(offered, Stored):
        if offered.type is not None and offered.type != wanted:
            return f"is {spelled(offered.type)}, {needed}"
        nbytes = getattr(torch, wanted.dtype).itemsize * math.prod(wanted.sizes)
        return None if offered.nbytes == nbytes else f"has {offered.nbytes:,} bytes, {needed}"
    if not isinstance(offered, torch.Tensor):
        return f"is of type {type(offered).__name__}, and no tensor, {needed}"
    if offered.layout is not torch.strided or offered.is_quantized:
        return f"is not a dense tensor, {needed}"
    actual = ValueType(str(offered.dtype).removeprefix("torch."), tuple(offered.shape))
    if actual != wanted:
        return f"is {spelled(actual)}, {needed}"
    return missing_values(offered)


def spelled(type_: ValueType) -> str:
    return f"{type_.dtype}[{', '.join(map(str, type_.shape or ()))}]"


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """Return the bytes of the elements of ``tensor``, in row-major order."""
    return as_array(tensor.detach()).view(np.uint8)


def _read_indexed(manifest: Manifest, base: Path, trust: bool) -> dict[str, torch.Tensor]:
    """Return the weights from the files that the manifest indexes, which must be unchanged."""
    nowhere = [weight.name for weight in manifest.weights.values() if weight.file is None]
    if nowhere:
        raise UsageError(
            f"the manifest does not say where {len(nowhere)} of {len(manifest.weights)} weights are, as "
            f"'{nowhere[0]}': pass weights, a state dict or a file"
        )
    problems: list[str] = []
    files: dict[Path, Mapped] = {}
    tensors: dict[str, torch.Tensor] = {}
    for weight in manifest.weights.values():
        assert weight.file is not None
        path = base / weight.file.path
        if not trust and not _is_inside(path, base):
            problems.append(f"'{weight.name}': '{path}' is outside of the manifest's directory")
            continue
        stored = Stored(files.setdefault(path, Mapped(path)), weight.file.offset, weight.file.nbytes, None)
        if problem := _indexed_problem(stored, weight):
            problems.append(problem)
        else:
            tensors[weight.name] = stored.read(weight.type)
    if problems:
        outside = "; for files elsewhere: --trust, or trust=True" if any(map(_OUTSIDE.search, problems)) else ""
        _raise_mismatch(problems, hint=f"; to take other weights, pass them{outside}")
    return tensors


_OUTSIDE = re.compile("is outside of the manifest's directory$")


def _is_inside(path: Path, base: Path) -> bool:
    """Whether ``path``, without symbolic links, is in the directory ``base``."""
    try:
        return path.resolve().is_relative_to(base.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of symbolic links, an invalid path
        return False


def _indexed_problem(stored: Stored, weight: Weight) -> str | None:
    """Return how the file of ``weight`` differs from its manifest; None if it does not."""
    assert weight.file is not None
    path = stored.file.path
    try:
        if not path.is_file():
            return f"'{weight.name}': there is no file '{path}'"
        if path.stat().st_size < stored.offset + stored.nbytes:
            return f"'{weight.name}': '{path}' is too short"
        if problem := mismatch(stored, weight.type):
            return f"'{weight.name}' {problem}"
        if stored.sha256() != weight.file.sha256:
            return f"'{weight.name}' is not what it was in '{path}': its hash differs"
    except OSError as error:
        return f"'{weight.name}': '{path}' cannot be read: {error.strerror or error}"
    return None


def _raise_mismatch(problems: Sequence[str], *, hint: str = "", unused: Sequence[str] = ()) -> NoReturn:
    """Raise `UsageError` that lists ``problems``, and entries of the source that the module does not use."""
    count = "one place" if len(problems) == 1 else f"{len(problems)} places"
    more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
    unnamed = [f"there is {', '.join(unused[:3])}{more}, which the module does not name"] if unused else []
    raise UsageError("\n  ".join([f"the weights do not fit the module in {count}{hint}:", *problems, *unnamed]))


def _tensor(offered: torch.Tensor | Stored, type_: ValueType) -> torch.Tensor:
    return offered.read(type_) if isinstance(offered, Stored) else offered.detach()


def _is_equal(tensor: torch.Tensor, other: Any, type_: ValueType) -> bool:
    """Whether ``other``, another name of the weight, is the same memory as ``tensor``, or has equal bytes."""
    if mismatch(other, type_):
        return False
    other = _tensor(other, type_)
    return tensor.data_ptr() == other.data_ptr() or np.array_equal(bytes_of(tensor), bytes_of(other))
