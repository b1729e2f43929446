"""Portable artifacts: bytecode of StableHLO with compatibility guarantees, which other releases and XLA read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from fx_importer.calls.memref import dense
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir, portable_artifact
from fx_importer.mlir.constant_arguments import name_resources, take_resources
from fx_importer.mlir.dtypes import DTYPES, UNSIGNED
from fx_importer.mlir.emit.emitter import update_function_type
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.module_io import copy_to_new_context
from fx_importer.mlir.resources import key_of

Weights = Literal["inline", "arguments"]


def artifact_of(module: ir.Module, version: str = "week-12", weights: Weights = "inline") -> bytes:
    """Return the artifact of ``module``, which does not change.

    Args:
        module: in StableHLO.
        version: the minimum release of StableHLO that can read it: ``"0.9.0"``; or ``"current"``, ``"week-4"``,
            ``"week-12"`` or ``"minimum"``, as the release in the wheel defines them.
        weights: ``"inline"``, as constants; or ``"arguments"``: each becomes a last argument of the functions that read
            it, with the attribute ``fx_importer.constant``, its name.

    Raises:
        UsageError: if the version is unknown, or the module cannot be converted to it.
    """
    if weights not in ("inline", "arguments"):
        raise UsageError(f"unknown weights {weights!r}: accepted are 'inline', 'arguments'")
    copy = copy_module(module.operation)
    if weights == "arguments":
        for function in functions_of(copy).values():
            _name(function)
        return portable_artifact(copy, version)
    shardings = {
        name: take_resources(function, "stablehlo.constant", DTYPES | UNSIGNED)
        for name, function in functions_of(copy).items()
    }
    # Attributes live as long as their context: a separate one frees the inline weights after serialization.
    inlined = copy_to_new_context(copy.operation)
    for name, function in functions_of(inlined).items():
        _inline(function, shardings[name])
    return portable_artifact(inlined, version)


def _name(function: func_d.FuncOp) -> None:
    """Turn the weights of ``function`` into arguments with their names as attributes."""
    before = len(function.entry_block.arguments)
    weights = name_resources(function, "stablehlo.constant")
    if weights:
        with function.context:
            dicts = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else []
            dicts = (dicts + [ir.DictAttr.get({})] * before)[:before]
            names = [ir.DictAttr.get({"fx_importer.constant": ir.StringAttr.get(key_of(weight))}) for weight in weights]
            function.attributes["arg_attrs"] = ir.ArrayAttr.get([*dicts, *names])


def _inline(function: func_d.FuncOp, weights: Sequence[torch.Tensor]) -> None:
    """Turn the last arguments of ``function`` into constants with ``weights``."""
    block = function.entry_block
    first = len(block.arguments) - len(weights)
    emit = StablehloOps(ir.InsertionPoint.at_block_begin(block), function.location)
    with function.context, function.location:
        for argument, tensor in zip(list(block.arguments)[first:], weights, strict=True):
            argument.replace_all_uses_with(emit.const(elements(tensor, ir.RankedTensorType(argument.type))))
        for _ in weights:
            block.erase_argument(first)
        update_function_type(function)
        if weights and "arg_attrs" in function.attributes:
            dicts = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
            function.attributes["arg_attrs"] = ir.ArrayAttr.get(dicts[:first])


def elements(tensor: torch.Tensor, kind: ir.RankedTensorType) -> ir.Attribute:
    """Return ``tensor`` as a ``dense`` attribute of the type ``kind``."""
    size = tensor.dtype.itemsize
    # As integers of the same size, since numpy has no bfloat16: the attribute takes the bits.
    array = dense(tensor).reshape(-1).view(torch.uint8).numpy().view(f"u{size}" if size <= 8 else "c16")
    return ir.DenseElementsAttr.get(array, type=kind.element_type, shape=list(tensor.shape))
