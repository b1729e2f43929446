"""Manifest records of a function, and the attributes of the function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer import manifest
from fx_importer.fx_graph.programs import as_node_dtype, held_value, storage_view_key
from fx_importer.importing.pytrees import value_type
from fx_importer.importing.signatures.signature import HELD, ImportedSignature
from fx_importer.importing.weight_attributes import TensorAttributes
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.resources import key_of


def held_in(
    program: ExportedProgram, signature: ImportedSignature
) -> tuple[dict[str, manifest.Held], dict[str, manifest.Held]]:
    """Return the state arguments of a function, by name in the state dict, and its constant tensors, by name."""
    state, kept = {}, {}
    arguments = {argument.node.name: argument.name for argument in signature.arguments if argument.kind == "state"}
    constants = {constant.node.name: constant.spec.target for constant in signature.constants}
    for spec in program.graph_signature.input_specs:
        for names, tensors in ((arguments, state), (constants, kept)):
            if (target := names.get(spec.arg.name)) is not None:
                type_ = value_type(held_value(program, spec))
                tensors[target] = manifest.Held(HELD[spec.kind], type_, spec.persistent is not False)
    return state, kept


def weights_outside(
    program: ExportedProgram, signature: ImportedSignature, weights: TensorAttributes
) -> Iterator[tuple[str, manifest.Weight]]:
    """Yield the weights of the program outside the module, each with its resource or argument."""
    passed = [(argument.name, argument.node, False) for argument in signature.arguments if argument.kind == "weight"]
    named = [(constant.spec.target or "", constant.node, True) for constant in signature.constants if constant.external]
    if not passed and not named:
        return
    names: dict[Any, list[str]] = {}
    for target, tensor in program.state_dict.items():
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            names.setdefault(storage_view_key(tensor), []).append(target)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for name, node, is_resource in (*passed, *named):
        tensor = held_value(program, specs[node.name])
        tensor_passed = as_node_dtype(node, tensor)
        passed_as = None if tensor_passed.dtype == tensor.dtype else str(tensor_passed.dtype).removeprefix("torch.")
        also = tuple(other for other in names.get(storage_view_key(tensor), ()) if other != name)
        key = key_of(weights.external(tensor_passed, name)) if is_resource else name
        yield key, manifest.Weight(name, value_type(tensor), passed_as, also)


def name_values(function: func_d.FuncOp, record: manifest.Function) -> None:
    """Set attributes for the names of arguments and results, and for facts that their types do not hold.

    A single result has no name.
    """
    context = function.context

    def described(value: manifest.Argument | manifest.Result) -> ir.DictAttr:
        role = "name" if value.kind in ("input", "output") else value.kind
        facts: dict[str, ir.Attribute] = {f"fx_importer.{role}": ir.StringAttr.get(value.name, context)}
        if isinstance(value, manifest.Result) and value.name == "output":
            facts.clear()
        shape = value.type.shape or ()
        if value.type.dtype.startswith("complex") and value.passed_as is not None:
            shape = (*shape, 2)
        if any(isinstance(dim, str) for dim in shape):
            i64 = ir.IntegerType.get_signless(64, context)
            dims = [ir.StringAttr.get(d, context) if isinstance(d, str) else ir.IntegerAttr.get(i64, d) for d in shape]
            facts["fx_importer.shape"] = ir.ArrayAttr.get(dims, context)
        # Lowering makes integers signless, and complex numbers may be pairs of real ones.
        if value.type.dtype.startswith("uint") or len(shape) > len(value.type.shape or ()):
            facts["fx_importer.dtype"] = ir.StringAttr.get(value.type.dtype, context)
        return ir.DictAttr.get(facts, context)

    if record.arguments:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([*map(described, record.arguments)], context)
    if record.results:
        function.attributes["res_attrs"] = ir.ArrayAttr.get([*map(described, record.results)], context)
