"""What a module needs beside itself, found in what the user has: a state dict, a model, files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from fx_importer.elements import as_array
from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest, ValueType
from fx_importer.weights.files import Mapped, Stored, stored_in

Source = Mapping[str, torch.Tensor] | torch.nn.Module | ExportedProgram | str | os.PathLike[str] | Sequence["Source"]
"""Where weights come from: a state dict, a model, an exported program, a file or a directory (`ACCEPTED`); or several
of these, of which the first has what it has."""


def read_weights(
    manifest: Manifest, weights: Source | None = None, base: str | os.PathLike[str] = "."
) -> dict[str, torch.Tensor]:
    """Return what the module of ``manifest`` needs and does not hold, by the names in the state dict.

    Tensors in files are mapped: what nothing looks at is not read.

    Args:
        manifest: of the module.
        weights: where they are; without it, the files that the manifest names, which have to be as they were then.
        base: the directory that paths in the manifest start at.

    Raises:
        UsageError: listing every tensor that is missing, or is not what the module was made for.
    """
    if weights is None:
        return _as_indexed(manifest, Path(base))
    offered = offered_by(weights)
    found: dict[str, torch.Tensor] = {}
    problems: list[str] = []
    for weight in manifest.weights.values():
        names = [name for name in (weight.name, *weight.also) if name in offered]
        if not names:
            problems.append(f"'{weight.name}' is missing")
        elif problem := refusal(offered[names[0]], weight.type):
            problems.append(f"'{names[0]}' {problem}")
        else:
            found[weight.name] = _tensor(offered[names[0]], weight.type)
            others = [name for name in names[1:] if not _is_one(found[weight.name], offered[name], weight.type)]
            problems += [f"'{name}' is not '{names[0]}', and they are one tensor in the module" for name in others]
    _refuse(problems)
    return found


def offered_by(source: Source) -> dict[str, torch.Tensor | Stored]:
    """Return the tensors that ``source`` has, by name. Raises `UsageError` if it is none."""
    match source:
        case str() | os.PathLike():
            return dict(stored_in(source))
        case torch.nn.Module():
            parameters = source.named_parameters(remove_duplicate=False)
            return {**dict(parameters), **dict(source.named_buffers(remove_duplicate=False))}
        case ExportedProgram():
            held = {**source.constants, **source.state_dict}
            return {name: each for name, each in held.items() if isinstance(each, torch.Tensor)}
        case Mapping():
            return {name: each for name, each in source.items() if isinstance(each, torch.Tensor)}
        case Sequence():
            return {name: each for part in reversed(source) for name, each in offered_by(part).items()}
    raise UsageError(
        f"weights come from a state dict, a model, an exported program or a file, and not from {type(source).__name__}"
    )


def refusal(offered: torch.Tensor | Stored, wanted: ValueType) -> str | None:
    """Return what is wrong with a tensor, if anything is."""
    shape = tuple(int(size) for size in wanted.shape or ())
    needed = f"but the module was made for {spelled(wanted)}"
    if isinstance(offered, Stored):
        if offered.type is not None and offered.type != ValueType(wanted.dtype, shape):
            return f"is {spelled(offered.type)}, {needed}"
        nbytes = getattr(torch, wanted.dtype).itemsize * torch.Size(shape).numel()
        return None if offered.nbytes == nbytes else f"has {offered.nbytes:,} bytes, {needed}"
    if offered.layout is not torch.strided or offered.is_quantized:
        return f"is not a dense tensor, {needed}"
    dtype = str(offered.dtype).removeprefix("torch.")
    if (dtype, tuple(offered.shape)) != (wanted.dtype, shape):
        return f"is {spelled(ValueType(dtype, tuple(offered.shape)))}, {needed}"
    if offered.is_meta or isinstance(offered, torch._subclasses.FakeTensor):
        return "is on the meta device, and has no values"
    return None


def spelled(type_: ValueType) -> str:
    return f"{type_.dtype}[{', '.join(map(str, type_.shape or ()))}]"


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """Return the elements of ``tensor``, in order."""
    return as_array(tensor.detach()).view(np.uint8)


def _as_indexed(manifest: Manifest, base: Path) -> dict[str, torch.Tensor]:
    """Return what the manifest says where it is, of files that have not changed."""
    problems = [f"'{each.name}' is in no file" for each in manifest.weights.values() if each.file is None]
    if problems:
        raise UsageError(
            f"the manifest does not say where {len(problems)} of {len(manifest.weights)} weights are, as "
            f"{problems[0].split(' is ')[0]}: pass weights, a state dict or a file"
        )
    files: dict[Path, Mapped] = {}
    found: dict[str, torch.Tensor] = {}
    for weight in manifest.weights.values():
        assert weight.file is not None
        path = base / weight.file.path
        mapped = files.setdefault(path, Mapped(path))
        if not path.is_file():
            problems.append(f"'{weight.name}': there is no file '{path}'")
        elif path.stat().st_size < weight.file.offset + weight.file.nbytes:
            problems.append(f"'{weight.name}': '{path}' is too short")
        else:
            stored = Stored(mapped, weight.file.offset, weight.file.nbytes, weight.type)
            if stored.sha256() != weight.file.sha256:
                problems.append(f"'{weight.name}' is not what it was in '{path}': its hash differs")
            else:
                found[weight.name] = stored.read(weight.type)
    _refuse(problems, "; to take other weights, pass them")
    return found


def _refuse(problems: Sequence[str], hint: str = "") -> None:
    if problems:
        count = "one place" if len(problems) == 1 else f"{len(problems)} places"
        raise UsageError("\n  ".join([f"the weights do not fit the module in {count}{hint}:", *problems]))


def _tensor(offered: torch.Tensor | Stored, type_: ValueType) -> torch.Tensor:
    return offered.read(type_) if isinstance(offered, Stored) else offered.detach()


def _is_one(tensor: torch.Tensor, other: Any, type_: ValueType) -> bool:
    """Whether the tensor that goes by another name is the same, or as good as that."""
    if refusal(other, type_):
        return False
    other = _tensor(other, type_)
    return tensor.data_ptr() == other.data_ptr() or np.array_equal(bytes_of(tensor), bytes_of(other))
