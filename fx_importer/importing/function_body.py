"""Import of a function body: arguments, constants, nodes and results; guards on sizes are assertions at its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.programs import LIFTED_TENSOR_PREFIX, as_node_dtype
from fx_importer.importing.graph_walker import Walker
from fx_importer.importing.handlers.assertions import assert_range
from fx_importer.importing.handlers.scalar_operators import ScalarOperators
from fx_importer.importing.hooks import InputInfo
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.signatures.manifest_records import name_values
from fx_importer.importing.signatures.signature import ImportedArgument, ImportedConstant, ImportedSignature
from fx_importer.importing.symbolic_shapes import Symbols
from fx_importer.importing.types import static_dimension
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import update_function_type
from fx_importer.options import ImportOptions
from fx_importer.symbolic.conversions import to_integer, to_linear, to_operations
from fx_importer.symbolic.guards import guards_of

if TYPE_CHECKING:
    from fx_importer.importing.importer import FxImporter


def add_arguments(
    arguments: Sequence[ImportedArgument], build: NodeBuilder, walker: Walker
) -> list[tuple[ImportedArgument, ir.Value]]:
    """Add the function's arguments and bind their nodes. Return the mutable ones with their ``!torch.tensor``."""
    mutable: list[tuple[ImportedArgument, ir.Value]] = []
    for argument in arguments:
        node = argument.node
        try:
            if argument.constant is not None:
                type_ = build.types.of(argument.constant.value)
            else:
                type_ = build.type_of(node, mutable=argument.overwritten_by is not None)
        except UnsupportedNodeError as reason:
            walker.mark_unsupported(node, str(reason))
            continue
        value = build.block.add_argument(type_, build.fx_importer.locations.named(argument.name))
        if argument.overwritten_by is not None:
            mutable.append((argument, value))
            value = build.op("torch.copy.to_vtensor", [build.type_of(node)], [value]).result
        for source in (node, *argument.also):
            walker.bind(source, value)
    return mutable


def bind_constant(constant: ImportedConstant, build: NodeBuilder, walker: Walker, program: ExportedProgram) -> None:
    """Bind the node of a parameter, buffer or tensor constant to its literal."""
    target = constant.spec.target
    assert target is not None
    build.location = build.fx_importer.locations.named(target)
    try:
        info = info_of(program, constant, build)
        tensor = as_node_dtype(constant.node, constant.tensor)
        name = None if target.startswith(LIFTED_TENSOR_PREFIX) and not constant.external else target
        walker.bind(constant.node, build.literal(tensor, name, info, external=constant.external))
    except UnsupportedNodeError as reason:
        walker.mark_unsupported(constant.node, f"'{target}': {reason}")


def info_of(program: ExportedProgram, constant: ImportedConstant, build: NodeBuilder) -> InputInfo:
    stored = constant.stored.name if constant.stored is not None else None
    return InputInfo(program, constant.spec, constant.node, build.type_of(constant.node), store_producer_node=stored)


def import_body(
    importer: FxImporter,
    function: func_d.FuncOp,
    graph: fx.Graph,
    owner: torch.nn.Module | None,
    signature: ImportedSignature,
    options: ImportOptions,
    program: ExportedProgram | None,
) -> None:
    """Import ``graph``, whose ``get_attr`` nodes read from ``owner``, into ``function``, and set the function's type.

    ``program`` is None for a bare graph, which has no constants.

    Raises:
        UnsupportedProgramError: listing everything that cannot be imported.
    """
    block = function.entry_block
    build = NodeBuilder(importer, owner, block)
    build.runtime_asserts = options.runtime_asserts
    build.asserts_assumptions = signature.asserts_assumptions
    build.outlines = options.func_name if options.outline_layers else None
    ranges = program.range_constraints if program else {}
    symbols = Symbols(build, ranges) if options.symbolic_shapes else None
    walker = Walker(build, importer.locations, symbols)
    mutable = add_arguments(signature.arguments, build, walker)
    for constant in signature.constants:
        assert program is not None
        bind_constant(constant, build, walker, program)
    if options.runtime_asserts and not walker.unsupported_nodes:
        guards = guards_of(program) if program else []
        InputGuards(build, ranges, guards).emit([(argument.name, argument.node) for argument in signature.arguments])
    walker.walk(graph.nodes)
    walker.finish()

    build.location = importer.locations.unknown
    for argument, value in mutable:
        assert argument.overwritten_by is not None
        build.op("torch.overwrite.tensor.contents", [], [build.value(argument.overwritten_by), value])
    for constant in signature.constants:
        if constant.stored is not None:
            assert program is not None
            with build.ambient():
                info = info_of(program, constant, build)
                importer.hooks.store_produced_value(build, constant.tensor, build.value(constant.stored), info)
    results = build.values(signature.results)
    build.op("func.return", [], results)
    update_function_type(function)
    if signature.function is not None:
        name_values(function, signature.function)
    if program is not None and _is_dynamic(argument.node for argument in signature.arguments):
        # export has proved which sizes are equal: symbolic sizes are not broadcast from 1.
        for part in (function, *importer.callees.functions):
            part.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get(importer.context)


def _is_dynamic(nodes: Iterable[fx.Node]) -> bool:
    """Return whether an example value of ``nodes`` is a tensor with a dynamic dimension."""
    examples = (node.meta.get("val") for node in nodes)
    return any(static_dimension(d) is None for e in examples if isinstance(e, torch.Tensor) for d in e.shape)


class InputGuards:
    """Assertions on dynamic input sizes: ranges, equality of sizes with the same expression, and other guards."""

    def __init__(self, build: NodeBuilder, ranges: Mapping[Any, Any], guards: Sequence[sympy.Basic]):
        """``ranges`` is ``ExportedProgram.range_constraints``, ``guards`` is ``guards_of(program)``."""
        self._build = build
        self._ranges = ranges
        self._guards = guards
        self._seen: dict[sympy.Basic, tuple[str, ir.Value]] = {}

    def emit(self, arguments: Sequence[tuple[str, fx.Node]]) -> None:
        """Assert the guards on ``arguments``, which come with the names that users gave them."""
        sizes: list[tuple[sympy.Expr, str, ir.Value]] = []
        for name, node in arguments:
            example = node.meta.get("val")
            for axis, size in enumerate(example.shape if isinstance(example, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and not isinstance(size.node.expr, sympy.Integer):
                    sizes.append((size.node.expr, f"size {axis} of '{name}'", self._size(node, axis)))
        for expression, name, value in sorted(sizes, key=lambda size: not isinstance(size[0], sympy.Symbol)):
            self._check_size(expression, name, value)
        for guard in self._guards:
            if (holds := self._compute(guard)) is not None:
                self._build.runtime_assert(holds, f"{self._words(guard)} is false")

    def _check_size(self, expression: sympy.Expr, name: str, value: ir.Value) -> None:
        build = self._build
        first = self._seen.setdefault(expression, (name, value))
        if first[1] is not value:
            self._equal(value, first[1], f"{name} is not equal to {first[0]}")
            return
        if limits := self._ranges.get(expression):
            assert_range(build, value, name, to_integer(limits.lower), to_integer(limits.upper))
        known = self._compute(expression)
        if known is None:
            self._solve(expression, name, value)
        elif known is not value:
            self._equal(value, known, f"{name} is not {self._words(expression)}")

    def _solve(self, expression: sympy.Expr, name: str, value: ir.Value) -> None:
        """Solve for the symbol if ``value`` is a multiple of it plus a constant, since other sizes may use it."""
        build = self._build
        form = to_linear(expression)
        if form is None:
            return
        factor, offset = form.factor, form.offset
        (symbol,) = expression.free_symbols
        multiple = self._emit("sub.int", value, build.constant(offset)) if offset else value
        quotient = self._emit("floordiv.int", multiple, build.constant(factor))
        self._seen[symbol] = (f"{name}, less {offset}, by {factor}" if offset else f"{name}, by {factor}", quotient)
        if factor != 1:
            whole = self._emit("mul.int", quotient, build.constant(factor))
            kind = f"a multiple of {factor}" + (f", plus {offset}" if offset else "")
            self._equal(multiple, whole, f"{name} is not {kind}")

    def _compute(self, expression: sympy.Basic) -> ir.Value | None:
        names = {str(symbol): value for symbol, (_, value) in self._seen.items()}
        symbols = {symbol: names[str(symbol)] for symbol in expression.free_symbols if str(symbol) in names}
        return to_operations(expression, symbols, ScalarOperators(self._build))

    def _words(self, expression: sympy.Basic) -> str:
        """Return ``expression`` as text, with the sizes that define its symbols."""
        names = {str(symbol): sympy.Symbol(f"({name})") for symbol, (name, _) in self._seen.items()}
        return str(expression.xreplace({symbol: names[str(symbol)] for symbol in expression.free_symbols}))

    def _equal(self, a: ir.Value, b: ir.Value, message: str) -> None:
        equal = self._build.op("torch.aten.eq.int", [self._build.types.parse("!torch.bool")], [a, b]).result
        self._build.runtime_assert(equal, message)

    def _size(self, node: fx.Node, axis: int) -> ir.Value:
        return self._emit("size.int", self._build.value(node), self._build.constant(axis))

    def _emit(self, name: str, *operands: ir.Value) -> ir.Value:
        return self._build.op(f"torch.aten.{name}", [self._build.types.parse("!torch.int")], operands).result
