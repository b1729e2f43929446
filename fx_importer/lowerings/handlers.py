"""Handlers of the importer that apply users' lowerings to calls of operators."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import fx
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves

from fx_importer.decompositions.engine.kept.fault_table import is_measured
from fx_importer.decompositions.engine.kept.kept_rule import WrongWhenKept, check_kept
from fx_importer.diagnostics.causes import NO_MATCH_ATTRIBUTE
from fx_importer.fx_graph.emission import value_of
from fx_importer.importing import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.handlers.higher_order import Handler
from fx_importer.importing.handlers.schema_operators import import_overload
from fx_importer.importing.schema_arguments import plan_for
from fx_importer.lowerings.constants import CannotEmit
from fx_importer.lowerings.external_calls import import_call_of, nested
from fx_importer.lowerings.lowering_registry import Lowerings
from fx_importer.lowerings.lowering_rules import EMITTERS, External, Lowering, NodeRule, NoMatch
from fx_importer.lowerings.symbol_table import SymbolTable
from fx_importer.lowerings.target_emitter import TargetEmitter
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.declarations import StubDefinition
from fx_importer.mlir.emit.emitter import update_function_type
from fx_importer.mlir.types import TorchTensor
from fx_importer.output_types import OutputType
from fx_importer.rewrites.torch.region_types import UnsupportedRegionType


def handlers_for(
    layers: Sequence[Lowerings], output_type: OutputType, fallback: Sequence[OutputType] = (), *, refuses: bool = True
) -> dict[Any, Handler]:
    """Return handlers of the operators that rules lower into ``output_type``, or to external calls.

    An operator with rules only into a type of ``fallback`` becomes a call of a function in `FxImporter.defined`.
    A call that no rule matches, and whose built-in lowering is wrong, is refused with ``refuses``, or else warned of.
    """
    rules: dict[Any, list[tuple[Lowering | External, OutputType]]] = {}
    for into in (output_type, *fallback):
        for rule in (rule for layer in layers for rule in layer):
            if isinstance(rule, External) or (isinstance(rule, Lowering) and rule.is_for(into)):
                for operator in rule.operators:
                    if into is output_type or operator.namespace not in BUILT_IN:
                        rules.setdefault(operator, []).append((rule, into))
    built_in = _BuiltIn(tuple(dict.fromkeys(kind.root for kind in (output_type, *fallback))), refuses)
    return {operator: _handler(rule, output_type, built_in) for operator, rule in rules.items()}


BUILT_IN = ("aten", "prims")
"""Namespaces with built-in lowerings. Operators of others have only their rules."""


@dataclass(frozen=True)
class _BuiltIn:
    """The built-in lowering of calls that no rule matches."""

    output_types: tuple[OutputType, ...]
    """The requested one, and the fallbacks."""
    refuses: bool

    def check(self, node: fx.Node, unmatched: Sequence[str]) -> None:
        """Raise `UnsupportedNodeError` if it is known to be wrong for ``node``, whose operator rules keep."""
        measured = any(is_measured(str(node.target), output_type) for output_type in self.output_types)
        if self.output_types[0] not in EMITTERS or not measured:
            return
        operator: Any = node.target
        args, kwargs = cast("Any", map_aggregate((node.args, dict(node.kwargs)), value_of))
        try:
            check_kept(operator, args, kwargs, self.output_types, "lowerings=", refuses=self.refuses)
        except WrongWhenKept as wrong:
            raise UnsupportedNodeError("; ".join((*unmatched, wrong.sentence))) from None


def _handler(
    rules: Sequence[tuple[Lowering | External, OutputType]], output_type: OutputType, built_in: _BuiltIn
) -> Handler:
    def import_by_rules(node: fx.Node, build: NodeBuilder) -> Any:
        unmatched: list[str] = []
        for rule, into in rules:
            if isinstance(rule, External):
                return import_call_of(rule, node, build)
            try:
                if into is not output_type:
                    return _import_as_fallback(rule, into, node, build)
                return _RuleCall(rule, node, build, EMITTERS[into.root]).lowered()
            except NoMatch as reason:
                unmatched.append(f"{rule} does not match{f': {reason}' if str(reason) else ''}")
        built_in.check(node, unmatched)
        results = import_overload(node, build)
        first = next(iter([results] if isinstance(results, ir.Value) else results or ()), None)
        if first is not None:
            reasons = ir.StringAttr.get("; ".join(unmatched), context=build.fx_importer.context)
            first.owner.attributes[NO_MATCH_ATTRIBUTE] = reasons
        return results

    return import_by_rules


def _import_as_fallback(rule: Lowering, into: OutputType, node: fx.Node, build: NodeBuilder) -> Any:
    """Import an operator as a call of a function that ``rule`` lowers into ``into``. Raises as `_RuleCall` does."""
    context, importer = build.fx_importer.context, build.fx_importer
    inputs = list(dict.fromkeys(node.all_input_nodes))
    types = [build.type_of(value) for value in inputs]
    module = ir.Module.create(build.location)
    with context, build.location, ir.InsertionPoint(module.body):
        function = func_d.FuncOp("other", ir.FunctionType.get(types, []))
        block = function.add_entry_block()
    inner = NodeBuilder(importer, build.owner, block)
    inner.location = build.location
    for value, argument in zip(inputs, block.arguments, strict=True):
        inner.environment.bind(value, argument)
    results = tree_leaves(_RuleCall(rule, node, inner, EMITTERS[into.root]).lowered())
    inner.op("func.return", [], results)
    update_function_type(function)

    stem = "fallback_" + re.sub(r"\W", "_", str(node.target))
    outputs = import_call_of(External(rule.operators, stem), node, build)
    call = next(iter(tree_leaves(outputs))).owner
    name = ir.FlatSymbolRefAttr(call.attributes["callee"])
    if [operand.type for operand in call.operands] != types:
        raise UnsupportedNodeError(
            f"the rule {rule} lowers into {into.value}, where an operator takes each tensor once, and no scalars"
        )
    function.attributes["sym_name"] = ir.StringAttr.get(name.value, context)
    importer.defined.setdefault(name.value, StubDefinition(str(node.target), module, into))
    return outputs


class _RuleCall:
    """The application of a rule to one node."""

    def __init__(self, rule: Lowering, node: fx.Node, build: NodeBuilder, emitter: type[TargetEmitter]):
        self._rule, self._node, self._build = rule, node, build
        target: Any = node.target
        self._plan, self._schema = plan_for(target), target._schema
        self._emit = emitter(build.point, build.location)

    def lowered(self) -> Any:
        """Return the results as values of the torch dialect.

        Raises:
            NoMatch: if the rule raises it; the operations that it emitted are erased.
            UnsupportedNodeError: if the rule fails, or returns other types than the operator.
        """
        emit = self._emit
        lists = [isinstance(example, list | tuple) for example in self._examples()]
        try:
            # Lists of tensors have no type: only the tensors in them. A rule returns them in a list.
            types = [self._build.types.of(flat_example) for flat_example in self._flat_examples()]
            emit.results = tuple(map(emit.torch.builtin_type, types))
            arguments, keywords = self._arguments()
        except (UnsupportedRegionType, TypeError) as error:
            raise UnsupportedNodeError(f"{self._rule} cannot take it: {error}") from None
        try:
            with self._build.ambient():  # for rules that use the typed builders of dialects
                if isinstance(self._rule, NodeRule):
                    returned = self._rule.rule(self._node, SymbolTable(self._node, self._build, emit))
                else:
                    returned = self._rule.rule(emit, *arguments, **keywords)
            emit.emitted.verify()
        except NoMatch:
            emit.emitted.erase()
            raise
        except CannotEmit as error:
            raise UnsupportedNodeError(f"the rule {self._rule} fails{_line(self._rule)}: {error}") from None
        except Warning:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise UnsupportedNodeError(f"the rule {self._rule} fails{_line(self._rule)}: {message}") from error
        return nested(iter(self._as_torch_values(self._flat(returned, lists), types)), self._examples())

    def _examples(self) -> list[Any]:
        if self._plan.results == 0:
            return []
        example = self._build.example(self._node)
        return [example] if self._plan.results == 1 else list(example)

    def _flat_examples(self) -> list[Any]:
        return [
            one for example in self._examples() for one in (example if isinstance(example, list | tuple) else [example])
        ]

    def _flat(self, returned: Any, lists: Sequence[bool]) -> list[Any]:
        """Return the values that a rule returned as a flat list."""
        if isinstance(returned, ir.Operation | ir.OpView) and len(lists) > 1:
            returned = list(returned.operation.results)
        if isinstance(returned, list | tuple) and len(returned) == 1 and lists == [False]:
            returned = returned[0]  # `inline` returns a list
        results: Any = [returned] if len(lists) == 1 else returned
        if len(lists) == 0:
            results = [] if returned is None else returned
        if not isinstance(results, list | tuple) or len(results) != len(lists):
            raise self._mistake(f"returned {_value_text(returned)}, but {self._node.target} returns {len(lists)}")
        return [
            one for result, several in zip(results, lists, strict=True) for one in (result if several else [result])
        ]

    def _as_torch_values(self, values: Sequence[Any], types: Sequence[ir.Type]) -> list[ir.Value]:
        if len(values) != len(types):
            raise self._mistake(f"returned {len(values)} values, but {self._node.target} returns {len(types)} here")
        converted: list[ir.Value] = []
        for value, kind, torch_type in zip(values, self._emit.results, types, strict=True):
            value = value.result if isinstance(value, ir.Operation | ir.OpView) else value
            if not isinstance(value, ir.Value):
                raise self._mistake(f"returned {_value_text(value)}, and not one value")
            if not _compatible(value.type, kind):
                raise self._mistake(f"returned {value.type}, but {self._node.target} returns {kind} here")
            if value.type != kind:  # first the static sizes of the rule, then the sizes of the program
                known = _torch_type(value.type, torch_type)
                converted.append(self._build.cast(self._emit.torch.from_builtin(value, known), torch_type))
            else:
                converted.append(self._emit.torch.from_builtin(value, torch_type))
        return converted

    def _mistake(self, what: str) -> UnsupportedNodeError:
        return UnsupportedNodeError(f"the rule {self._rule} {what}")

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments of the rule."""
        values = [self._argument(argument) for argument in self._plan.bind(self._node.args, self._node.kwargs)]
        pairs = [*zip(self._schema.arguments, values, strict=True)]
        keywords = {argument.name: value for argument, value in pairs if argument.kwarg_only}
        return [value for argument, value in pairs if not argument.kwarg_only], keywords

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return [self._argument(item) for item in argument]
        if not isinstance(argument, fx.Node):
            return argument
        binding = self._build.environment.binding(argument)
        if isinstance(binding, ir.Value):
            return self._emit.torch.to_builtin(binding)
        return [self._emit.torch.to_builtin(value) for value in binding or () if isinstance(value, ir.Value)]


def _compatible(actual: ir.Type, wanted: ir.Type) -> bool:
    """Whether two types are equal, where a dynamic size equals any other."""
    if not (isinstance(actual, ir.RankedTensorType) and isinstance(wanted, ir.RankedTensorType)):
        return actual == wanted
    shapes = TargetEmitter.shape(actual), TargetEmitter.shape(wanted)
    same = actual.element_type == wanted.element_type and len(shapes[0]) == len(shapes[1])
    return same and all(a == b or None in (a, b) for a, b in zip(*shapes, strict=True))


def _torch_type(type_: ir.Type, like: ir.Type) -> ir.Type:
    """Return the ``!torch.vtensor`` with the shape of ``type_`` and the dtype of ``like``."""
    tensor = TorchTensor.read(like)
    assert tensor is not None, like
    return tensor.with_shape(TargetEmitter.shape(type_)).mlir(type_.context)


def _value_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} values"
    return (
        "nothing" if value is None else f"{value!r}" if isinstance(value, int | float | str) else type(value).__name__
    )


def _line(rule: Lowering) -> str:
    """Return the line of the rule's file that raised the exception being handled, as text."""
    file = rule.rule.__code__.co_filename if hasattr(rule.rule, "__code__") else None
    lines = [frame.lineno for frame in traceback.extract_tb(sys.exc_info()[2]) if frame.filename == file]
    return f" at line {lines[-1]}" if lines else ""
