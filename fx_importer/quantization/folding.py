"""Fold Q/DQ into operators on int8 and int16.

A quantize operator requests the integer form of its operand, in its scale. Operators that only move data or take maxima
pass the request on to their operands, a clamp narrows the range, and an operator that computes has a rule, which takes
its operands in their own scales. Operators without an integer form stay in floating point between Q/DQ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves

from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.core_forms import without_core_forms
from fx_importer.quantization.families import MOVES, RULES
from fx_importer.quantization.families.elementwise import clamp_bounds, fold_table, is_elementwise, positive_factor
from fx_importer.quantization.families.rescaling import fold_rescale, load, store
from fx_importer.quantization.functional_form import functional
from fx_importer.quantization.graph_constants import GraphConstants
from fx_importer.quantization.qdq import is_quantized, kind_of, params_of
from fx_importer.quantization.rule import Scope
from fx_importer.quantization.scales import NoIntegerForm, Params
from fx_importer.quantization.wide_tables import STEPS

Remark = Callable[[str], None]
_PLACES = (aten.argmax.default, aten.argmin.default)
"""Operators with the same result for integers."""


def to_integers(program: ExportedProgram, remark: Remark) -> ExportedProgram:
    """Return ``program`` with operators between Q/DQ on integers, in functional form.

    A program without any such operator is returned as it is. ``remark`` receives the integer coverage, and the reason
    for each operator that stays in floating point.

    Raises:
        UsageError: for an invalid scale or zero point.
        UnsupportedProgramError: for writes that have no functional form.
    """
    if not is_quantized(program.graph):
        return program
    result = folded(program)
    for message in result.remarks:
        remark(message)
    return result.program if result.integers else program


@dataclass(frozen=True)
class Folded:
    """A program in integers."""

    program: ExportedProgram
    replaced: Mapping[str, str]
    """The quantize operators, by the names of the nodes that compute them."""
    remarks: Sequence[str]
    integers: int
    """The number of operators on integers."""


def folded(program: ExportedProgram) -> Folded:
    """Return ``program`` in integers, as `to_integers` does, with the replacements of quantize operators."""
    program = functional(program)
    graph = program.graph
    without_core_forms(graph)
    folder = _Folder(GraphConstants(program, graph), graph)
    asked = [node for node in graph.nodes if folder.computes(node)]
    folder.fold()
    left = set(graph.nodes)
    floats = [node for node in asked if node in left and folder.computes(node)]
    scaled = f", {len(folder.scaled)} with results in floating point" if folder.scaled else ""
    steps = [node.meta[STEPS] for node in graph.nodes if STEPS in node.meta]
    tables = f", {len(steps)} tables of int16 at most {max(steps)} steps off" if steps else ""
    remarks = [f"quantized: {len(asked) - len(floats)} of {len(asked)} operators are integer{scaled}{tables}"]
    remarks += [f"float: {node.name} = {node.target}: {folder.why(node)}" for node in floats]
    remarks += [f"float: {node.name} = {node.target}: int32 sums, scaled in float32" for node in folder.scaled]
    replaced = {made.name: name for name, made in folder.replaced.items()}
    integers = len(asked) - len(floats) + len(folder.scaled)
    return Folded(folder.constants.program(), replaced, remarks, integers)


class _Folder(Scope):
    """Folds one graph."""

    def __init__(self, constants: GraphConstants, graph: fx.Graph):
        self.constants, self.graph = constants, graph
        self._integers: dict[tuple[fx.Node, Params], fx.Node | NoIntegerForm] = {}
        self._operands: dict[fx.Node, tuple[fx.Node, Params] | None] = {}
        self._reasons: dict[fx.Node, str] = {}
        self.replaced: dict[str, fx.Node] = {}
        """By name of a quantize operator: the node that replaces it."""
        self.scaled: list[fx.Node] = []
        """Integer matmuls and convolutions with results in floating point."""

    def computes(self, node: fx.Node) -> bool:
        """Return whether ``node`` is an operator on activations other than Q/DQ."""
        called = node.op == "call_function" and isinstance(node.target, OpOverload)
        if not called or kind_of(node) is not None or self.constants.value(node) is not None:
            return False
        return any(map(_is_floating, (node, *node.all_input_nodes)))

    def fold(self) -> None:
        """Replace the quantize operators whose operand has an integer form."""
        for node in list(self.graph.nodes):
            try:
                if kind_of(node) == "quantize" and (params := params_of(node, self.constants.value)):
                    self.replaced[node.name] = store(self, node, self.integer(node.args[0], params))
                    node.replace_all_uses_with(self.replaced[node.name])
                elif node.target in _PLACES:
                    node.replace_input_with(node.args[0], self.quantized(node.args[0])[0])
            except NoIntegerForm as reason:
                self._reasons.setdefault(node, str(reason))
        self.graph.eliminate_dead_code()
        self._operands.clear()  # they may be erased
        for node in [product for product in self.graph.nodes if has_sums(product)]:
            try:
                node.replace_all_uses_with(scaled_sums(self, node))
            except NoIntegerForm as reason:
                self._reasons.setdefault(node, str(reason))
            else:
                self.scaled.append(node)
        self.graph.eliminate_dead_code()

    def why(self, node: fx.Node) -> str:
        """Return why ``node`` stays in floating point."""
        reasons = [
            str(integer)
            for (asked, _), integer in self._integers.items()
            if asked is node and isinstance(integer, NoIntegerForm)
        ]
        reasons += [self._reasons[node]] if node in self._reasons else []
        return reasons[0] if reasons else "its result is not quantized to int8"

    # --- Scope ------------------------------------------------------------------------------------------------------

    def integer(self, node: Any, params: Params) -> fx.Node:
        """Return the float ``node`` quantized with ``params``, computed in integers. Raises `NoIntegerForm`."""
        key = node, params
        if key not in self._integers:
            try:
                self._integers[key] = self._integer(node, params)
            except NoIntegerForm as reason:
                self._integers[key] = reason
        form = self._integers[key]
        if isinstance(form, NoIntegerForm):
            raise form
        return form

    def quantized(self, node: object) -> tuple[fx.Node, Params]:
        """Return the integers and the parameters that the float ``node`` is dequantized from.

        Raises:
            NoIntegerForm: if it is not.
        """
        if not isinstance(node, fx.Node):
            raise NoIntegerForm(f"its operand {node} is a number")
        operand = self._operand(node)
        if operand is None:
            raise NoIntegerForm(f"its operand {node.name} is not quantized to int8")
        return operand

    def _operand(self, node: fx.Node) -> tuple[fx.Node, Params] | None:
        if node not in self._operands:
            self._operands[node] = self._quantized(node)
        return self._operands[node]

    def call(self, at: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Insert a call before ``at``, with its source line and an example value."""
        return emit(at, target, *args, **kwargs)

    def moves(self, node: fx.Node) -> bool:
        """Return whether ``node`` moves elements without computing."""
        return node.target in MOVES

    # ----------------------------------------------------------------------------------------------------------------

    def _integer(self, node: fx.Node, params: Params) -> fx.Node:
        if isinstance(node, fx.Node) and kind_of(node) == "dequantize" and self._operand(node) is not None:
            return fold_rescale(self, node, *self.quantized(node), params)
        if (known := self.constants.value(node)) is not None and known.dtype == torch.float32:
            levels = (known * (1 / params.scale)).round() + params.zero_point
            return self.constants.add(levels.clamp(params.low, params.high).to(params.dtype))
        if not isinstance(node, fx.Node) or node.op != "call_function":
            raise NoIntegerForm("an input of the program")
        if (bounds := clamp_bounds(node)) is not None:
            low, high = (params.quantized(bound) for bound in bounds)
            return self.integer(node.args[0], replace(params, low=min(low, high), high=high))
        if (factor := positive_factor(node)) is not None:
            return self.integer(node.args[0], replace(params, scale=params.scale / factor))
        if self.moves(node):
            return _of_size(node, MOVES[node.target](self, node, lambda operand: self.integer(operand, params), params))
        if (rule := RULES.get(node.target)) is None:
            return fold_table(self, node, params)
        try:
            return rule.fold(self, node, params)
        except NoIntegerForm as reason:
            if not is_elementwise(node.target):
                raise
            try:
                return fold_table(self, node, params)
            except NoIntegerForm:
                raise reason from None

    def _quantized(self, node: fx.Node) -> tuple[fx.Node, Params] | None:
        if kind_of(node) == "dequantize":
            params = params_of(node, self.constants.value)
            source = node.args[0]
            if params is None or not isinstance(source, fx.Node):
                return None
            return load(self, node, source), params
        if (factor := positive_factor(node)) is not None:
            try:
                x, params = self.quantized(node.args[0])
            except NoIntegerForm:
                return None
            return x, replace(params, scale=params.scale * factor)
        if not self.moves(node):
            return None
        known: list[Params] = []

        def integers(node: fx.Node) -> fx.Node:
            x, params = self.quantized(node)
            known.append(params)
            return x

        try:
            moved = _of_size(node, MOVES[node.target](self, node, integers, None))
        except NoIntegerForm:
            return None
        return (moved, known[0]) if len(set(known)) == 1 else None


def _of_size(node: fx.Node, moved: fx.Node) -> fx.Node:
    """Give ``moved``, the integers of ``node``, its sizes: a selection by a mask that is traced again has a new one."""
    value = value_of(node)
    if any(free_unbacked_symbols(size) for size in value.shape if not isinstance(size, int)):
        moved.meta["val"] = value.to(value_of(moved).dtype)
    return moved


def _is_floating(node: fx.Node) -> bool:
    values = tree_leaves(node.meta.get("val"))
    return any(isinstance(value, torch.Tensor) and value.is_floating_point() for value in values)


def has_sums(node: fx.Node) -> bool:
    """Return whether `scaled_sums` takes ``node``."""
    return node.target in RULES and RULES[node.target].sums is not None


def scaled_sums(scope: Scope, node: fx.Node) -> fx.Node:
    """Emit a product of quantized operands in float32: its int32 sums times their scales, plus the bias.

    Some quantizers, such as torchao's for x86, leave the results of matmuls and convolutions in floating point.

    Raises:
        NoIntegerForm: if an operand is not quantized to int8, and for results of another dtype.
    """
    if node.meta["val"].dtype is not torch.float32:
        raise NoIntegerForm(f"its result is {node.meta['val'].dtype}")
    rule = RULES[node.target]
    assert rule.sums is not None
    sums = rule.sums(scope, node)
    if sums.operand.bits != 8:
        raise NoIntegerForm(f"its result is not quantized, and sums of int{sums.operand.bits} have 48 bits")
    shape = [-1, *[1] * sums.trailing]
    result = scope.call(node, aten._to_copy.default, rule.fold(scope, node, sums.params), dtype=torch.float32)
    scales = scope.constants.add(sums.scales.reshape(shape).float())
    result = scope.call(node, aten.mul.Tensor, result, scales)
    if (bias := sums.bias) is None:
        return result
    if len(bias.meta["val"].shape) != 1:
        raise NoIntegerForm("its bias is not a vector")
    if sums.trailing:
        bias = scope.call(node, aten.reshape.default, bias, shape)
    return scope.call(node, aten.add.Tensor, result, bias)
