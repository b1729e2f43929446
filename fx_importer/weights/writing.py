"""Writing of weights to files, and the index of them in the manifest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, TensorSpec, serialize_file

from fx_importer.errors import UsageError
from fx_importer.manifest import File, Manifest, Weight
from fx_importer.mlir.output_files import atomic_file, check_writable
from fx_importer.mlir.tensor_elements import as_array
from fx_importer.weights.matching import bytes_of, read_weights
from fx_importer.weights.weight_files import DTYPES, SAFETENSORS, Stored, accepted, archives, stored_in


def save_weights(
    manifest: Manifest,
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    base: str | os.PathLike[str] = ".",
) -> Manifest:
    """Return ``manifest`` with an index of its weights in ``path``.

    An existing file or directory is only read, and must have every weight under its name. Otherwise a .safetensors or
    .irpa file is written from ``tensors``, given by their names in the state dict.

    Args:
        manifest: of the module.
        tensors: the weights to write.
        path: where the weights are, or are written.
        base: the directory to which paths in the manifest are relative.

    Raises:
        UsageError: listing every tensor that is missing, or has another type than in the module; or if the file cannot
            be written. Nothing is left behind then.
    """
    path = Path(path)
    if not path.exists():
        check_place(path)
        write_weights(read_weights(manifest, tensors), path)
    stored = stored_in(path)
    read_weights(manifest, path)  # raises for weights that do not fit
    return replace(
        manifest,
        weights={
            key: replace(weight, file=_file(weight, stored, Path(base))) for key, weight in manifest.weights.items()
        },
    )


def check_place(path: Path) -> None:
    """Raise `UsageError` unless ``path`` holds weights, or a file of weights can be written there."""
    if path.exists():
        stored_in(path)
    elif path.suffix not in (SAFETENSORS, *archives()):
        raise UsageError(f"cannot write weights to '{path}', which is not there: name {accepted()}")
    else:
        check_writable(path)


def _file(weight: Weight, stored: Mapping[str, Stored], base: Path) -> File:
    name = next(name for name in (weight.name, *weight.also) if name in stored)
    source = stored[name]
    path = source.file.path.absolute()
    inside = path.is_relative_to(base.absolute())
    written = str(path.relative_to(base.absolute()) if inside else path)
    return File(written, name, source.offset, source.nbytes, source.sha256())


def write_weights(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write a .safetensors or .irpa file. Raises `UsageError` if the disk is full."""
    needed = sum(tensor.nbytes for tensor in tensors.values()) + 2**20
    if (free := shutil.disk_usage(path.parent).free) < needed:
        raise UsageError(f"cannot save to '{path}': it takes {needed:,} bytes, and the disk has {free:,} left")
    with atomic_file(path) as temporary:
        if path.suffix == SAFETENSORS:
            _write_safetensors(tensors, temporary)
        else:
            archives()[path.suffix].write({name: bytes_of(tensor) for name, tensor in tensors.items()}, temporary)


def _write_safetensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors from their own memory; only views that are not contiguous are copied."""
    known = set(DTYPES.values())
    if other := [name for name, tensor in tensors.items() if str(tensor.dtype).removeprefix("torch.") not in known]:
        raise UsageError(f"safetensors files hold no {tensors[other[0]].dtype}, as {', '.join(map(repr, other))} is")
    arrays = {name: as_array(tensor) for name, tensor in tensors.items()}
    specs = {
        name: TensorSpec(
            dtype=str(tensors[name].dtype).removeprefix("torch."),
            shape=tensors[name].shape,
            data_ptr=array.__array_interface__["data"][0],
            data_len=array.nbytes,
        )
        for name, array in arrays.items()
    }
    try:
        serialize_file(specs, path)
        stored_in(path)  # safetensors does not report a last piece that it could not write
    except (SafetensorError, UsageError) as error:
        raise OSError(f"safetensors could not write all of it, as on a full disk: {error}") from error
