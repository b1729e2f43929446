"""Signless emulation: unsigned integers as signed ones of the same width, for output types without signedness.

The C++ lowerings to linalg and TOSA treat most unsigned operands as signed: a sum of 200s is negative. Here a uint8
tensor is converted to int8 with the same bits. Data movement works on that; other operators work on wider signed
integers, which hold every value, and their results are truncated. uint64 has no wider type: operators that are
independent of the sign work on int64, conversions from and to floats are expanded, and other operators are unsupported.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.errors import UnsupportedNode
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten, prims
from fx_importer.fx_passes.emulation.signless_types import (
    CONVERSIONS,
    DATA_MOVEMENT,
    FILLS,
    INDEXED,
    SAME_FOR_BOTH_SIGNS,
    SIGNED_DTYPES,
    WIDER_DTYPES,
    as_signed,
    is_unsigned,
    signed_dtype_of,
    wider_dtype_of,
)
from fx_importer.fx_passes.node_rewriting import remember_dtypes


class SignlessEmulation:
    """Rewriting of graphs; nodes that cannot be rewritten are collected in ``unsupported_nodes``."""

    def __init__(self) -> None:
        self.unsupported_nodes: list[UnsupportedNode] = []

    def rewrite(self, graph: fx.Graph, owner: fx.GraphModule) -> None:
        """Rewrite ``graph``."""
        del owner
        if any(is_unsigned(leaf) for node in graph.nodes for leaf in tree_leaves(value_of(node))):
            remember_dtypes(graph)
            self.unsupported_nodes += _SignlessRewriting(graph).unsupported_nodes


class _SignlessRewriting:
    """Rewriting of one graph."""

    def __init__(self, graph: fx.Graph):
        self.unsupported_nodes: list[UnsupportedNode] = []
        self._types = {node: tree_map(_dtype, value_of(node)) for node in graph.nodes}
        self._wide: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}
        originals = [(node, value_of(node)) for node in graph.nodes if node.op == "placeholder"]
        outputs = [(operand, value_of(operand)) for operand in graph.output_node().all_input_nodes]
        for node in list(graph.nodes):
            if node.op in ("placeholder", "get_attr") and "val" in node.meta:
                node.meta["val"] = as_signed(value_of(node))
            elif node.op == "call_function" and self._is_affected(node):
                self._call(node)
        for node, value in originals:
            node.meta.setdefault("model_val", value)
        for node, (_, value) in zip(graph.output_node().all_input_nodes, outputs, strict=True):
            node.meta.setdefault("model_val", value)

    def _is_affected(self, node: fx.Node) -> bool:
        nodes = (node, *node.all_input_nodes)
        return any(leaf in SIGNED_DTYPES for n in nodes for leaf in tree_leaves(self._types.get(n)))

    def _unsigned(self, argument: Any) -> torch.dtype | None:
        """Return the model's dtype of a node if it is unsigned, else None."""
        dtype = self._types.get(argument) if isinstance(argument, fx.Node) else None
        return dtype if isinstance(dtype, torch.dtype) and dtype in SIGNED_DTYPES else None

    def _call(self, node: fx.Node) -> None:
        target = node.target
        if target in CONVERSIONS:
            self._replace(node, self._converted(node))
        elif target is aten.view.dtype and signed_dtype_of(node.args[1]) == value_of(node.args[0]).dtype:
            source: Any = node.args[0]
            self._replace(node, _convert(node, source, value_of(source).dtype))  # the same bits
        elif target is operator.getitem:
            self._getitem(node)
        elif not isinstance(target, OpOverload) or target.namespace not in ("aten", "prims"):
            node.meta["val"] = as_signed(value_of(node))  # a higher-order operator or a custom one
        elif target in INDEXED and any(self._unsigned(leaf) for leaf in tree_leaves(node.args[1])):
            self._reject(node, "an index of uint8 is a mask to PyTorch: convert it to bool first")
        elif target in DATA_MOVEMENT and self._keeps_one_dtype(node):
            self._move_data(node)
        else:
            self._compute(node)

    def _reject(self, node: fx.Node, reason: str) -> None:
        self.unsupported_nodes.append(unsupported_node(node, reason))

    def _replace(self, node: fx.Node, by: fx.Node) -> None:
        self._types[by] = self._types[node]
        node.replace_all_uses_with(by)
        node.graph.erase_node(node)

    # --- data movement ----------------------------------------------------------------------------------------------

    def _keeps_one_dtype(self, node: fx.Node) -> bool:
        """Return whether operands and results have one dtype: a ``cat`` of uint8 and int32 converts."""
        results = set(tree_leaves(self._types[node]))
        dtypes = {dtype for operand in node.all_input_nodes if (dtype := self._unsigned(operand))}
        return node.target is aten.view.dtype or len(results | dtypes) == 1

    def _move_data(self, node: fx.Node) -> None:
        node.args = tuple(map(signed_dtype_of, node.args))
        node.kwargs = {key: signed_dtype_of(argument) for key, argument in node.kwargs.items()}
        position = FILLS.get(node.target)
        if (
            position is not None
            and len(node.args) > position
            and isinstance(number := node.args[position], int | float)
        ):
            bits = 8 * next(iter(tree_leaves(self._types[node]))).itemsize
            node.update_arg(position, (int(number) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))
        node.meta["val"] = as_signed(value_of(node))

    def _getitem(self, node: fx.Node) -> None:
        source, index = node.args
        assert isinstance(source, fx.Node)
        value = node.meta["val"] = value_of(source)[index]
        if (old := self._unsigned(node)) and value.dtype != SIGNED_DTYPES[old]:
            self._narrow(node)

    # --- conversions ------------------------------------------------------------------------------------------------

    def _converted(self, node: fx.Node) -> fx.Node:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        old, new = self._unsigned(source), value_of(node).dtype
        assert isinstance(new, torch.dtype)
        to = signed_dtype_of(new)
        if new == torch.bool or (old and not new.is_floating_point and to.itemsize <= old.itemsize):
            return _convert(node, source, to)
        if old is torch.uint64:
            return _float_of_uint64(node, source, to)
        value = self._widened(source, node) if old else source
        if new in SIGNED_DTYPES and value_of(value).is_floating_point():
            if new is torch.uint64:
                rest = _convert(node, emit(node, aten.sub.Tensor, value, 2.0**63), torch.int64)
                large = emit(node, aten.ge.Scalar, value, 2.0**63)
                small = _convert(node, value, torch.int64)
                sign = emit(node, aten.full.default, [], -(2**63), dtype=torch.int64)
                return emit(node, aten.where.self, large, emit(node, aten.bitwise_xor.Tensor, rest, sign), small)
            value = _convert(node, value, WIDER_DTYPES[new])
        return _convert(node, value, to)

    def _widened(self, source: fx.Node, before: fx.Node, dtype: torch.dtype | None = None) -> fx.Node:
        """Return the unsigned values of ``source`` in a wider signed dtype: sign-extended and masked."""
        old = self._unsigned(source)
        assert old is not None
        wide = dtype or WIDER_DTYPES[old]
        if (full := self._wide.get((source, wide))) is None:
            mask = (1 << (8 * old.itemsize)) - 1
            if source.target is aten.full.default:
                number: Any = source.args[1]
                full = emit(before, aten.full.default, source.args[0], int(number) & mask, dtype=wide)
            else:
                full = emit(before, aten.bitwise_and.Scalar, _convert(before, source, wide), mask)
            self._wide[source, wide] = full
        return full

    # --- arithmetic -------------------------------------------------------------------------------------------------

    def _compute(self, node: fx.Node) -> None:
        """Compute in wider signed integers, and truncate unsigned results."""
        dtypes = [leaf for n in (node, *node.all_input_nodes) for leaf in tree_leaves(self._types[n])]
        if torch.uint64 in dtypes:
            if node.target not in SAME_FOR_BOTH_SIGNS or any(_is_float(dtype) for dtype in dtypes):
                names = ", ".join(str(dtype) for dtype in dict.fromkeys(dtypes) if dtype)
                self._reject(
                    node,
                    f"it computes with torch.uint64 ({names}), which this output type lacks, and there is no wider "
                    "signed type: convert to int64 or float64 first",
                )
                return
        else:
            # uint8 with int8 is int16.
            narrow = torch.int16 if torch.int16 in tree_leaves(self._types[node]) else None
            for operand in node.all_input_nodes:
                if self._unsigned(operand):
                    node.replace_input_with(operand, self._widened(operand, node, narrow))
        old = value_of(node)
        node.kwargs = {key: wider_dtype_of(argument) for key, argument in node.kwargs.items()}
        if not isinstance(old, Tensor) and not isinstance(old, list | tuple):
            return  # a scalar keeps its symbol
        assert isinstance(node.target, OpOverload)
        if torch.Tag.dynamic_output_shape in node.target.tags:  # running it again would create new symbols
            node.meta["val"] = tree_map(
                lambda value: value.to(wider_dtype_of(value.dtype)) if is_unsigned(value) else value, old
            )
        else:
            node.meta["val"] = _value(node)
        if isinstance(old, Tensor) and value_of(node).dtype != old.dtype:
            self._narrow(node)

    def _narrow(self, node: fx.Node) -> None:
        """Insert a truncation after ``node`` to the signed dtype of the model's width, for all its users."""
        users = list(node.users)
        old = self._types[node]
        assert isinstance(old, torch.dtype)
        result = _convert(node.next, node, signed_dtype_of(old))
        result.meta.update({key: value for key, value in node.meta.items() if key != "val"})
        for user in users:
            user.replace_input_with(node, result)
        self._types[result] = old


def _float_of_uint64(node: fx.Node, source: fx.Node, dtype: torch.dtype) -> fx.Node:
    """Convert uint64 to float: values above 2^63 - 1 are halved with a sticky low bit, converted and doubled."""
    one = emit(node, aten.full.default, [], 1, dtype=torch.int64)
    half = emit(node, aten.bitwise_right_shift.Tensor, source, one)
    half = emit(node, aten.bitwise_and.Scalar, half, 2**63 - 1)
    half = emit(node, aten.bitwise_or.Tensor, half, emit(node, aten.bitwise_and.Tensor, source, one))
    large = emit(node, aten.mul.Tensor, _convert(node, half, dtype), 2.0)
    negative = emit(node, aten.lt.Scalar, source, 0)
    return emit(node, aten.where.self, negative, large, _convert(node, source, dtype))


def _convert(before: fx.Node, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    # Also from int8 to int8 (int8 to uint8 in the model): the node of the result has another dtype in the model.
    return emit(before, prims.convert_element_type.default, node, dtype)


def _value(node: fx.Node) -> Any:
    """Return the example value of ``node`` for the current example values of its arguments."""
    scratch = emit(node, node.target, *node.args, **node.kwargs)  # type: ignore[arg-type]
    value = value_of(scratch)
    node.graph.erase_node(scratch)
    return value


def _dtype(value: Any) -> Any:
    return value.dtype if isinstance(value, Tensor) else None


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.dtype) and (value.is_floating_point or value.is_complex)
