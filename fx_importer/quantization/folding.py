"""Quantize and dequantize operators folded into operators on int8.

A quantize operator asks for the integer form of its operand, in its scale: operators that only move data or take
maxima ask for that of theirs, a clamp narrows the range, and an operator that computes has a rule, which takes its
operands as they are quantized. What has no integer form stays between its dequantize and quantize operators.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx.node import map_arg

from fx_importer.quantization.elementwise import clamp_bounds, is_elementwise, positive_factor, table_of
from fx_importer.quantization.graph_constants import GraphConstants
from fx_importer.quantization.movement import MOVEMENT, move
from fx_importer.quantization.operators import integer
from fx_importer.quantization.qdq import is_quantized, kind_of, params_of
from fx_importer.quantization.rules import RULES
from fx_importer.quantization.rules_of_layers import LAYERS
from fx_importer.quantization.scales import NoIntegerForm, Params, multiplier_and_shift
from fx_importer.quantization.scope import Scope
from fx_importer.quantization.written_values import without_writes

Remark = Callable[[str], None]
_RULES = RULES | LAYERS


def to_integers(program: ExportedProgram, remark: Remark) -> ExportedProgram:
    """Return ``program`` with operators between dequantize and quantize operators on int8.

    ``remark`` gets the number of operators that are integer, and a sentence for each that is not.

    Raises:
        UsageError: for a scale or a zero point that is none.
    """
    if not is_quantized(program.graph):
        return program
    graph = copy.deepcopy(program.graph)
    for node, original in zip(graph.nodes, program.graph.nodes, strict=True):
        node.name = original.name
    without_writes(graph)
    folder = _Folder(GraphConstants(program, graph), graph)
    asked = [node for node in graph.nodes if folder.computes(node)]
    folder.fold()
    left = set(graph.nodes)
    floats = [node for node in asked if node in left]
    remark(f"quantized: {len(asked) - len(floats)} of {len(asked)} operators are integer")
    for node in floats:
        remark(f"float: {node.name} = {node.target}: {folder.why(node)}")
    return folder.constants.program()


class _Folder(Scope):
    """The folding of one graph."""

    def __init__(self, constants: GraphConstants, graph: fx.Graph):
        self.constants, self.graph = constants, graph
        self._integers: dict[tuple[fx.Node, Params], fx.Node | NoIntegerForm] = {}
        self._operands: dict[fx.Node, tuple[fx.Node, Params] | None] = {}

    def computes(self, node: fx.Node) -> bool:
        """Return whether ``node`` is an operator on activations, and not one that quantizes."""
        called = node.op == "call_function" and isinstance(node.target, OpOverload)
        numeric = isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat | torch.SymBool)
        return called and not numeric and kind_of(node) is None and self.constants.value(node) is None

    def fold(self) -> None:
        """Replace the quantize operators whose operand has an integer form."""
        for node in list(self.graph.nodes):
            if kind_of(node) == "quantize" and (params := params_of(node, self.constants.value)):
                try:
                    node.replace_all_uses_with(self.integer(node.args[0], params))
                except NoIntegerForm:
                    continue
        self.graph.eliminate_dead_code()

    def why(self, node: fx.Node) -> str:
        """Return why ``node`` stays in floating point."""
        reasons = [
            str(each)
            for (asked, _), each in self._integers.items()
            if asked is node and isinstance(each, NoIntegerForm)
        ]
        return reasons[0] if reasons else "its result is not quantized to int8"

    # --- what rules ask for -----------------------------------------------------------------------------------------

    def integer(self, node: Any, params: Params) -> fx.Node:
        """Return the float ``node`` quantized with ``params``, computed in integers. Raises `NoIntegerForm`."""
        key = node, params
        if key not in self._integers:
            try:
                self._integers[key] = self._integer(node, params)
            except NoIntegerForm as reason:
                self._integers[key] = reason
        found = self._integers[key]
        if isinstance(found, NoIntegerForm):
            raise found
        return found

    def quantized(self, node: object) -> tuple[fx.Node, Params]:
        """Return the integers and the parameters that the float ``node`` is dequantized from.

        Raises:
            NoIntegerForm: if it is not.
        """
        if not isinstance(node, fx.Node):
            raise NoIntegerForm(f"its operand {node} is a number")
        if node not in self._operands:
            self._operands[node] = self._quantized(node)
        found = self._operands[node]
        if found is None:
            raise NoIntegerForm(f"its operand {node.name} is not quantized to int8")
        return found

    def call(self, at: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Insert a call before ``at``, with its source line and an example value."""
        with self.graph.inserting_before(at):
            made = self.graph.call_function(target, args, kwargs)
        made.meta |= {key: at.meta[key] for key in ("stack_trace", "nn_module_stack") if key in at.meta}
        examples = map_arg((args, kwargs), lambda each: each.meta["val"])
        made.meta["val"] = target(*examples[0], **examples[1])
        return made

    # ----------------------------------------------------------------------------------------------------------------

    def _integer(self, node: fx.Node, params: Params) -> fx.Node:
        if not isinstance(node, fx.Node) or node.op != "call_function":
            raise NoIntegerForm("an input of the program")
        if kind_of(node) == "dequantize":
            return self._rescaled(node, *self.quantized(node), params)
        if (bounds := clamp_bounds(node)) is not None:
            low, high = (params.quantized(each) for each in bounds)
            return self.integer(node.args[0], Params(params.scale, params.zero_point, min(low, high), high))
        if (factor := positive_factor(node)) is not None:
            return self.integer(node.args[0], replace(params, scale=params.scale / factor))
        if node.target in MOVEMENT:
            return move(self, node, lambda each: self.integer(each, params), params)
        rule = _RULES.get(node.target, table_of)
        try:
            return rule(self, node, params)
        except NoIntegerForm as reason:
            if rule is table_of or not is_elementwise(node.target):
                raise
            try:
                return table_of(self, node, params)
            except NoIntegerForm:
                raise reason from None

    def _rescaled(self, at: fx.Node, x: fx.Node, old: Params, new: Params) -> fx.Node:
        same = (old.scale, old.zero_point) == (new.scale, new.zero_point)
        if same and new.low <= old.low and old.high <= new.high:
            return x
        multiplier, shift = multiplier_and_shift(1.0 if same else old.scale / new.scale, old.reach)
        return self.call(
            at, integer.rescale.default, x, old.zero_point, multiplier, shift, new.zero_point, new.low, new.high
        )

    def _quantized(self, node: fx.Node) -> tuple[fx.Node, Params] | None:
        if kind_of(node) == "dequantize":
            params = params_of(node, self.constants.value)
            source = node.args[0]
            if params is None or not isinstance(source, fx.Node):
                return None
            return source, params
        if (factor := positive_factor(node)) is not None:
            try:
                x, params = self.quantized(node.args[0])
            except NoIntegerForm:
                return None
            return x, replace(params, scale=params.scale * factor)
        if node.target not in MOVEMENT:
            return None
        found: list[Params] = []

        def integers(each: fx.Node) -> fx.Node:
            x, params = self.quantized(each)
            found.append(params)
            return x

        try:
            moved = move(self, node, integers, None)
        except NoIntegerForm:
            return None
        return (moved, found[0]) if len(set(found)) == 1 else None
