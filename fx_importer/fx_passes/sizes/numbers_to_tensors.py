"""Python numbers that are computed from items of tensors as rank-0 tensors, for output types that only have tensors.

``x * y.sum().item()`` multiplies by the tensor, and a number that is returned is returned as a tensor of rank 0, which
callers give back as a number. Integers are int64; floats, which are double precision in Python, are float64, or float32
where the output type has no other.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)

from fx_importer.fx_graph.aliasing import eliminate_dead_nodes
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.fx_pass import FxContext, FxPass
from fx_importer.fx_passes.node_rewriting import FACTORS, converted
from fx_importer.fx_passes.sizes.item_numbers import ITEMS, Consumer, ItemNumbers
from fx_importer.fx_passes.sizes.item_slices import SLICES

_EXAMPLES: dict[type, Any] = {SymBool: True, SymInt: 1, SymFloat: 1.0}


def numbers_to_tensors(program: ExportedProgram, floats: torch.dtype, *, functional: bool = False) -> ExportedProgram:
    """Return ``program`` with tensors for numbers from items, where operators take them and in its results.

    ``floats`` is the dtype of floating-point numbers. In a ``functional`` program, they are also the starts of slices.
    The same program is returned if no operator and no result is such a number.
    """
    if not any(node.target in ITEMS for node in program.graph.nodes):
        return program
    consumers = {**_CONSUMERS, **SLICES} if functional else _CONSUMERS
    changed = False

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        nonlocal changed
        numbers = ItemNumbers(floats)
        for node in list(graph.nodes):
            if node.op == "call_function" and node.target in consumers:
                made = consumers[node.target](node, numbers)
                if made is not None:
                    node.replace_all_uses_with(made)
                    graph.erase_node(node)
        if owner is program.graph_module:
            output = graph.output_node()
            output.args = (tuple(numbers.of(argument) or argument for argument in output.args[0]),)  # type: ignore[union-attr]
        changed = changed or numbers.used
        eliminate_dead_nodes(graph)

    rewritten = with_rewritten_graphs(program, rewrite)
    return rewritten if changed else program


def with_number_results(program: ExportedProgram, original: ExportedProgram) -> ExportedProgram:
    """Return ``program``, decomposed, whose signature records the results that ``original`` returns as numbers.

    A trace of the whole program records what they are now: tensors.
    """
    kinds = [type(s.arg) for s in original.graph_signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    specs = list(program.graph_signature.output_specs)
    places = [at for at, spec in enumerate(specs) if spec.kind is OutputKind.USER_OUTPUT]
    for at, kind in zip(places, kinds, strict=False):
        if kind in (SymBoolArgument, SymIntArgument, SymFloatArgument) and isinstance(specs[at].arg, TensorArgument):
            specs[at] = replace(specs[at], arg=kind(name=specs[at].arg.name))
    changed = copy.copy(program)
    changed._graph_signature = replace(program.graph_signature, output_specs=specs)
    return changed


def _beside(node: fx.Node, x: Any, number: Any, numbers: ItemNumbers) -> fx.Node | None:
    """Return ``number`` as a tensor of the dtype that PyTorch promotes it to in an operation with ``x``."""
    tensor = numbers.of(number)
    if tensor is None or not isinstance(value_of(x), Tensor):
        return None
    dtype = torch.result_type(value_of(x), _EXAMPLES[type(value_of(number))])
    if node.target in FACTORS and dtype.is_floating_point and dtype.itemsize == 2:
        dtype = torch.float32  # eager does not round a factor
    return converted(node, tensor, dtype)


def _binary(onto: Any, *, reversed_: bool = False) -> Consumer:
    def rewrite(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
        if len(node.args) != 2 or set(node.kwargs) - {"rounding_mode"}:
            return _scaled(node, numbers) if node.target in _SCALED else None
        a, b = node.args
        made = _beside(node, a, b, numbers), _beside(node, b, a, numbers)
        parts = (a, made[0]) if made[0] is not None else (made[1], b)
        if None in (parts[0], parts[1]):
            return None
        return emit(node, onto, *(parts[::-1] if reversed_ else parts), **node.kwargs)

    return rewrite


def _scaled(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    """Compute ``a + alpha * b`` of two tensors: in float32 if the result is narrower, as eager does."""
    operands, alpha = node.args[:2], node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else None)
    factor = numbers.of(alpha)
    if factor is None or not all(isinstance(value_of(operand), Tensor) for operand in operands):
        return None
    result = value_of(node).dtype
    dtype = torch.float32 if result in (torch.float16, torch.bfloat16) else result
    a, b = (converted(node, operand, dtype) for operand in operands)
    a, b = (b, a) if node.target is aten.rsub.Tensor else (a, b)
    onto = aten.add.Tensor if node.target is aten.add.Tensor else aten.sub.Tensor
    scaled = emit(node, aten.mul.Tensor, b, converted(node, factor, dtype))
    return converted(node, emit(node, onto, a, scaled), result)


def _lerp(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    x, end, weight = node.args
    number = numbers.of(weight)
    return number and emit(node, aten.lerp.Tensor, x, end, converted(node, number, value_of(x).dtype))


def _filled(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    result = value_of(node)
    number = numbers.of(node.args[0] if node.target is aten.scalar_tensor.default else node.args[1])
    if number is None or not all(isinstance(size, int) for size in result.shape):
        return None
    filled = emit(node, aten.expand.default, converted(node, number, result.dtype), list(result.shape))
    return emit(node, aten.clone.default, filled)  # the program may write to it


def _masked_fill(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    x, mask, value = node.args
    number = numbers.of(value)
    return number and emit(node, aten.masked_fill.Tensor, x, mask, converted(node, number, value_of(x).dtype))


def _where(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    condition, a, b = node.args
    made = _beside(node, a, b, numbers), _beside(node, b, a, numbers)
    parts = (a, made[0]) if made[0] is not None else (made[1], b)
    return None if None in (parts[0], parts[1]) else emit(node, aten.where.self, condition, *parts)


def _clamp(node: fx.Node, numbers: ItemNumbers) -> fx.Node | None:
    """Clamp by tensors of the result's dtype: bounds that are constants are filled."""
    x, *bounds = node.args
    bounds += [node.kwargs.get(name) for name in ("min", "max")[len(bounds) :]]
    made = [numbers.of(bound) for bound in bounds]
    known = next((value for value in made if value is not None), None)
    unknown = [bound for bound, tensor in zip(bounds, made, strict=True) if tensor is None]
    if known is None or not all(isinstance(value, int | float | None) for value in unknown):
        return None
    dtype = value_of(node).dtype
    for axis, (tensor, number) in enumerate(zip(made, bounds, strict=True)):
        if tensor is not None:
            made[axis] = converted(node, tensor, dtype)
        elif number is not None:
            made[axis] = emit(node, aten.full_like.default, known, number, dtype=dtype)
    return emit(node, aten.clamp.Tensor, converted(node, x, dtype), *made)


def _cond(node: fx.Node, numbers: ItemNumbers) -> None:
    if (number := numbers.of(node.args[0])) is not None:
        node.args = (number, *node.args[1:])


_SCALED = (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor)
_BINARY = {
    **{
        getattr(getattr(aten, name), overload): _binary(getattr(aten, name).Tensor)
        for name in ("add", "sub", "mul", "div", "remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge")
        for overload in ("Tensor", "Scalar")
    },
    aten.floor_divide.default: _binary(aten.floor_divide.default),
    aten.floor_divide.Scalar: _binary(aten.floor_divide.default),
    aten.div.Tensor_mode: _binary(aten.div.Tensor_mode),
    aten.div.Scalar_mode: _binary(aten.div.Tensor_mode),
    aten.pow.Tensor_Scalar: _binary(aten.pow.Tensor_Tensor),
    aten.pow.Scalar: _binary(aten.pow.Tensor_Tensor),
    aten.rsub.Scalar: _binary(aten.sub.Tensor, reversed_=True),
    aten.rsub.Tensor: _binary(aten.sub.Tensor, reversed_=True),
}
_CONSUMERS: dict[Any, Consumer] = {
    **_BINARY,
    **dict.fromkeys((aten.full.default, aten.full_like.default, aten.scalar_tensor.default), _filled),
    aten.masked_fill.Scalar: _masked_fill,
    **dict.fromkeys((aten.where.ScalarOther, aten.where.ScalarSelf), _where),
    aten.clamp.default: _clamp,
    aten.lerp.Scalar: _lerp,
    torch.ops.higher_order.cond: _cond,
}


def _before_decomposition(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    return numbers_to_tensors(program, context.dtypes.numbers)


def _after_decomposition(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    """Rewrite numbers that only decompositions show, and decompose the operators that now take tensors."""
    rewritten = numbers_to_tensors(program, context.dtypes.numbers, functional=True)
    return program if rewritten is program else context.decompose(rewritten)


def _has_no_scalars(context: FxContext) -> bool:
    return not context.target.scalars


NUMBERS_TO_TENSORS = FxPass("numbers-to-tensors", _before_decomposition, _has_no_scalars)
NUMBERS_OF_DECOMPOSITIONS_TO_TENSORS = FxPass(
    "numbers-of-decompositions-to-tensors", _after_decomposition, _has_no_scalars
)
