"""Linking of external weights into a module, without copying and without lowering again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from fx_importer.errors import UsageError
from fx_importer.fx_graph.tree_json import Types
from fx_importer.manifest import Manifest, Weight
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.elided_weights import HandleScope, WeightHandle
from fx_importer.mlir.module_io import copy_to_new_context, manifest_path
from fx_importer.mlir.resources import byte_size, key_of, replace_constants, resource, resources_in
from fx_importer.mlir.tensor_elements import as_array
from fx_importer.mlir.untrusted_module import read_untrusted_module
from fx_importer.weights.matching import Source, check_manifest, read_weights, spelled


def link(
    module: ir.Module | str | os.PathLike[str],
    weights: Source | None = None,
    manifest: Manifest | str | os.PathLike[str] | None = None,
    *,
    trust: bool = False,
) -> ir.Module:
    """Return ``module``, lowered with ``weights="external"``, with its weights, in a context of its own.

    The result shares the memory of tensors, and maps files. The weights may differ from those that the model was
    exported with, if they have the same types.

    Args:
        module: a module, or a file of one.
        weights: a state dict, a model, an exported program, a .safetensors or .irpa file, a directory of transformers,
            or a list of these. By default the files that the manifest names, unchanged since.
        manifest: the manifest of the module, or its file; by default the one next to the module's file.
        trust: take the weights of files that the manifest names outside of its directory.

    Raises:
        UsageError: listing every tensor that is missing, or has another type than in the module; or if a file cannot
            be read.
    """
    path = Path(module) if isinstance(module, str | os.PathLike) else None
    parsed = module if path is None else read_untrusted_module(path)
    if not isinstance(parsed, ir.Module):
        raise UsageError(f"a module is Lowered.module, or a file of one, and not of type {type(module).__name__}")
    if manifest is None:
        if path is None:
            raise UsageError("a module does not say what its weights are: pass its manifest, as of Lowered.manifest")
        manifest = manifest_path(path)
    base = Path()
    if isinstance(manifest, str | os.PathLike):
        base, manifest = Path(manifest).parent, read_manifest(manifest)
    check_manifest(manifest)
    if any(argument.kind == "weight" for function in manifest.functions.values() for argument in function.arguments):
        raise UsageError("the module takes its weights as arguments: pass them to a Caller, with read_weights")
    return linked(parsed, manifest.weights, read_weights(manifest, weights, base, trust=trust))


def linked(module: ir.Module, weights: Mapping[str, Weight], tensors: Mapping[str, torch.Tensor]) -> ir.Module:
    """Return a copy of ``module`` whose resources hold ``tensors``, given by their names in the state dict.

    ``weights`` maps the names of resources to weights.

    Raises:
        UsageError: if the module has other resources, or resources of other sizes.
    """
    copy = module.operation.clone()
    places = resources_in(copy)
    keys = {value: key for value in dict.fromkeys(value for *_, value in places) if (key := key_of(value)) in weights}
    here = {key: value for value, key in keys.items()}
    if here.keys() != weights.keys():
        missing = ", ".join(map(repr, sorted(weights.keys() - here.keys())))
        raise UsageError(
            f"the module does not name what its manifest lists: {missing}. It is of another module; or it was read "
            "into a context that has resources of these names, which MLIR then changes: read it into a new one"
        )
    passed = {key: as_passed(tensors[weight.name], weight) for key, weight in weights.items()}
    if others := [
        key for key, value in here.items() if byte_size(value) != passed[key].nbytes
    ]:  # MLIR does not check it
        listed = (f"'{key}' is {spelled(weights[key].type)} there, and {here[key].type} here" for key in others)
        raise UsageError("\n  ".join(["the manifest is of another module:", *listed]))
    # Handles cross to the new context, where the resources then get their names: MLIR renames one whose name is taken.
    numbers = {key: number for number, key in enumerate(weights)}
    handles = {value: WeightHandle(HandleScope.LINK, numbers[key]).attribute(value.type) for value, key in keys.items()}
    replace_constants(places, handles.get)
    new = copy_to_new_context(copy)
    names = list(weights)

    def resolved(value: ir.Attribute) -> ir.Attribute | None:
        handle = WeightHandle.of(value, HandleScope.LINK)
        if handle is None:
            return None
        key = names[handle.number]
        return _attribute(passed[key], key, value.type)

    replace_constants(resources_in(new.operation), resolved)
    return new


def as_passed(tensor: torch.Tensor, weight: Weight) -> torch.Tensor:
    """Return ``tensor`` in the dtype of ``weight`` in the module."""
    tensor = tensor.detach()
    if weight.passed_as is None:
        return tensor
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.view(getattr(torch, weight.passed_as))


def _attribute(tensor: torch.Tensor, key: str, type_: ir.Type) -> ir.Attribute:
    data = as_array(tensor)
    # Consumers of a resource of i1 disagree on its layout. MLIR folds a tensor.extract from a resource without end.
    if tensor.dtype == torch.bool or data.size == 1:
        return ir.DenseElementsAttr.get(data, type=type_, context=type_.context)
    return resource(data, key, type_)


def read_manifest(path: str | os.PathLike[str], types: Types = ()) -> Manifest:
    """Read the manifest that `Lowered.save` wrote next to a module. ``types`` is passed to `Manifest.from_json`.

    Raises:
        UsageError: if it is missing or invalid.
    """
    if not Path(path).is_file():
        raise UsageError(f"there is no manifest '{path}', which says what the module's weights are")
    try:
        return Manifest.from_json(Path(path).read_text(encoding="utf-8"), types)
    except (UsageError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"'{path}': {error}") from None
