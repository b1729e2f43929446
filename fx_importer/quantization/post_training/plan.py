"""The plan of post-training quantization: which values of a float program to quantize."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx
from torch._ops import OpOverload

from fx_importer.errors import UsageError
from fx_importer.quantization.families import MOVES, RESULT_SCALES, RULES
from fx_importer.quantization.families.elementwise import clamp_bounds, is_elementwise, positive_factor
from fx_importer.quantization.families.movement import LISTS
from fx_importer.quantization.normalization.attention import HUGE
from fx_importer.quantization.normalization.recurrent import STEP
from fx_importer.quantization.rule import is_activation


@dataclass(frozen=True)
class QuantizationPlan:
    """The values of a graph that are quantized. Values that share a scale have the same representative."""

    groups: Mapping[fx.Node, fx.Node]
    """The representative of each value."""
    fixed: Mapping[fx.Node, tuple[float, int]]
    """Scale and zero point of representatives with a known range."""
    constants: Mapping[fx.Node, tuple[fx.Node, ...]]
    """By operator, its operands that are constants quantized as activations are."""
    weights: Mapping[fx.Node, fx.Node]
    """The weight of each operator whose rule has a ``weight_axis``. Weights are symmetric."""


def planned(graph: fx.Graph, excluded: Collection[str] = (), kept: Collection[str] = ()) -> QuantizationPlan:
    """Return the plan of ``graph``. Values named in ``excluded``, and operators that use them, stay in floating point.

    So do values and modules named in ``kept``, with the operators between them and quantized values.

    Raises:
        UsageError: for a name in ``kept`` that is none.
    """
    plan = _Planner(graph, excluded).plan()
    return _Planner(graph, {*excluded, *_kept(graph, plan, kept)}).plan() if kept else plan


def _kept(graph: fx.Graph, plan: QuantizationPlan, names: Collection[str]) -> set[str]:
    """Return the names of the values of ``names``, and of values that are computed together with them."""
    nodes = {node.name: node for node in graph.nodes if node.op == "call_function"}
    modules = {
        name: [
            member for member in nodes.values() if (path := module_of(member)) == name or path.startswith(f"{name}.")
        ]
        for name in names
        if name not in nodes
    }
    if unknown := [name for name, module in modules.items() if not module]:
        close = difflib.get_close_matches(unknown[0], {*nodes, *map(module_of, nodes.values())}, n=3)
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise UsageError(f"keep_float: the model has no value and no module named '{unknown[0]}'{hint}")
    stack = [member for name in names for member in modules.get(name, [nodes[name]] if name in nodes else [])]
    kept: set[str] = set()
    while stack:
        node = stack.pop()
        if node.name not in kept and node.op == "call_function":
            kept.add(node.name)
            stack += [operand for operand in node.all_input_nodes if operand not in plan.groups]
    return kept


def module_of(node: fx.Node) -> str:
    """Return the path of the module that ``node`` is an operator of; empty at the root."""
    stack = node.meta.get("nn_module_stack") or {"": ("",)}
    return str(list(stack.values())[-1][0]).removeprefix("L['self']").lstrip(".")


def is_huge(value: Tensor) -> bool:
    """Return whether int8 cannot hold a value: not finite, or as large as masks."""
    return value.is_floating_point() and value.numel() > 0 and not bool((value.abs() < HUGE).all())


class _Planner:
    def __init__(self, graph: fx.Graph, excluded: Collection[str]):
        self.graph, self.excluded = graph, excluded
        self.parents: dict[fx.Node, fx.Node] = {}
        self.fixed: dict[fx.Node, tuple[float, int]] = {}
        self.constants: dict[fx.Node, tuple[fx.Node, ...]] = {}
        self.weights: dict[fx.Node, fx.Node] = {}
        self.constant: set[fx.Node] = set()
        self.sources: dict[fx.Node, fx.Node] = {}

    def plan(self) -> QuantizationPlan:
        for node in self.graph.nodes:
            called = node.op == "call_function" and isinstance(node.target, OpOverload)
            if node.op == "get_attr" or (called and all(operand in self.constant for operand in node.all_input_nodes)):
                self.constant.add(node)
            elif node.op == "call_function" and node.target in MOVES:
                self._moved(node)
            elif called and is_activation(node):
                self._computed(node)
        self._share_steps()
        groups = {parent: self._root(parent) or parent for parent in self.parents}
        return QuantizationPlan(groups, self.fixed, self.constants, self.weights)

    # --- operators ----------------------------------------------------------------------------------------------------

    def _moved(self, node: fx.Node) -> None:
        """Propagate the scales of quantized operands through a data-movement operator."""
        operands = [value for value in _moved_values(node) if value not in self.constant]
        if operands and is_activation(node) and all(self._root(operand) for operand in operands):
            self._need(node)

    def _computed(self, node: fx.Node) -> None:
        rule = RULES.get(node.target)
        inputs = rule.inputs(node) if rule else node.all_input_nodes
        operands = [argument for argument in inputs if argument not in self.constant]
        if any(map(self._is_excluded, [node, *operands])) or any(input_.name in self.excluded for input_ in inputs):
            return
        if self._is_table(node):
            self._need(self.sources[node])
        elif rule is None or not self._accepts(node):
            return
        else:
            if rule.weight_axis is not None:
                operands = node.all_input_nodes[:1]
                self.weights[node] = node.all_input_nodes[1]
            elif rule.quantizes_constants:
                self.constants[node] = tuple(source for source in node.all_input_nodes if source in self.constant)
            for operand in operands:
                self._need(operand)
        if not self._is_inside(node):
            self._need(node)

    def _is_excluded(self, node: fx.Node) -> bool:
        """Return whether ``node`` is excluded, or moves an excluded value."""
        moves = node.op == "call_function" and node.target in MOVES
        return node.name in self.excluded or (moves and any(map(self._is_excluded, _moved_values(node))))

    def _is_table(self, node: fx.Node) -> bool:
        """Return whether ``node`` is a function of single elements of one value, and record that value."""
        constants = (operand for operand in node.all_input_nodes if operand in self.constant)
        if not is_elementwise(node.target) or any(_numel(constant) != 1 for constant in constants):
            return False
        operands = [operand for operand in node.all_input_nodes if operand not in self.constant]
        if not operands or not all(is_activation(operand) for operand in operands):
            return False
        if len(sources := {self.sources.get(operand, operand) for operand in operands}) != 1:
            return False
        (source,) = sources
        # A clamp after an operator that computes is fused: only its result is quantized.
        fused = source.target in RULES and _absorbs(source, node) and self.parents.get(source) is None
        self.sources[node] = node if fused else source
        if fused:
            self.parents.setdefault(node, node)
        return True

    def _accepts(self, node: fx.Node) -> bool:
        rule = RULES[node.target]
        if not node.args or not isinstance(node.args[0], fx.Node):
            return False
        if rule.weight_axis is not None:
            return len(node.args) > 1 and isinstance(node.args[1], fx.Node) and node.args[1].op == "get_attr"
        return rule.accepts(node, self.constant)

    def _is_inside(self, node: fx.Node) -> bool:
        """Return whether only operators that are computed together with ``node`` read its value."""
        users = list(node.users)
        if node.target in RULES and node not in self.sources:
            return len(users) == 1 and _absorbs(node, users[0]) and users[0].name not in self.excluded
        return bool(users) and all(self._continues(node, user) for user in users)

    def _continues(self, node: fx.Node, user: fx.Node) -> bool:
        if not is_elementwise(user.target) or not is_activation(user) or user.name in self.excluded:
            return False
        operands = [
            operand for operand in user.all_input_nodes if operand not in self.constant and operand.op != "get_attr"
        ]
        return all(self.sources.get(operand, operand) is self.sources[node] for operand in operands) and all(
            _numel(source) == 1 for source in user.all_input_nodes if source not in operands
        )

    # --- values that share a scale ------------------------------------------------------------------------------------

    def _need(self, node: fx.Node) -> None:
        """Quantize the value of ``node``, and the operands that it moves."""
        if node in self.parents or node in self.constant:
            return
        self.parents[node] = node
        if node.target in RESULT_SCALES:
            self.fixed[node] = RESULT_SCALES[node.target]
        rule = RULES.get(node.target)
        if node.op != "call_function" or not (node.target in MOVES or (rule and rule.shares_scale)):
            return
        for value in _moved_values(node):
            if value in self.constant:
                self.constants[node] = (*self.constants.get(node, ()), value)
            else:
                self._need(value)
                if node.target not in LISTS or (len(value.users) == 1 and self._root(value) not in self.fixed):
                    self._share(node, value)

    def _share_steps(self) -> None:
        """Give a value one scale for all steps of a recurrent layer, so that these share their constants."""
        first: dict[Any, fx.Node] = {}
        for node in self.graph.nodes:
            if (step := node.meta.get(STEP)) is not None and self._root(node):
                self._share(node, first.setdefault(step, node))

    def _root(self, node: fx.Node) -> fx.Node | None:
        while (parent := self.parents.get(node)) not in (node, None):
            node = parent
        return parent

    def _share(self, node: fx.Node, source: fx.Node) -> None:
        """Give ``node`` and ``source`` one representative: the one with a known range, or the earlier one."""
        mine, other = self._root(node), self._root(source)
        if mine and other and mine is not other:
            first, second = (mine, other) if mine in self.fixed else (other, mine)
            self.parents[second] = first


def _absorbs(producer: fx.Node, user: fx.Node) -> bool:
    """Return whether ``user`` clamps or scales the result of ``producer``, which nothing else reads."""
    return len(producer.users) == 1 and (clamp_bounds(user) is not None or positive_factor(user) is not None)


def _moved_values(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the operands whose elements an operator of `MOVES` moves."""
    first: Any = node.args[0]
    if node.target is operator.getitem:
        yield from first.all_input_nodes[:1]
    elif node.target in LISTS:
        yield from first
    else:
        yield node.all_input_nodes[0]


def _numel(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else 0
