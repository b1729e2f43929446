"""The importer: FX graphs into functions of one MLIR module."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer import manifest
from fx_importer.bindings import func_d, ir, load_dialects, new_context
from fx_importer.declarations import Defined
from fx_importer.errors import UsageError
from fx_importer.importing.builder import NodeBuilder, Refused
from fx_importer.importing.calls import Callees, give_type
from fx_importer.importing.guards import InputGuards
from fx_importer.importing.handlers import HIGHER_ORDER, Handler
from fx_importer.importing.hooks import FxImporterHooks, InputInfo
from fx_importer.importing.locations import Locations
from fx_importer.importing.signature import HELD, Argument, Constant, Signature, read_signature
from fx_importer.importing.symbols import Symbols
from fx_importer.importing.trees import value_type
from fx_importer.importing.types import TypeCache, static_dimension
from fx_importer.importing.walker import Walker
from fx_importer.importing.weights import TensorAttributes
from fx_importer.options import ImportOptions, Mutation, Weights
from fx_importer.programs import LIFTED, as_held, held_value, is_weight, place_of
from fx_importer.resources import key_of


class FxImporter:
    """Imports any number of programs and graphs into one module, a function each.

    Args:
        module: the module to fill; a new one where it is not given.
        context: the context of a new module, with the torch dialect registered; a new one where it is not given.
        hooks: where an integrator steps in.
        handlers: how calls of these operators are imported: a handler takes the node and a `NodeBuilder`, and returns
            the value of the node, or a sequence of values. They go before the importer's own.

    A failed import leaves no function behind.
    """

    def __init__(
        self,
        *,
        module: ir.Module | None = None,
        context: ir.Context | None = None,
        hooks: FxImporterHooks | None = None,
        handlers: Mapping[Any, Handler] | None = None,
    ):
        if module is not None and context is not None:
            raise UsageError("FxImporter takes module= or context=, not both: a module has its own context")
        self.context = module.context if module is not None else context or new_context()
        self._module = module or ir.Module.create(ir.Location.unknown(self.context))
        self.hooks = hooks or FxImporterHooks()
        self.handlers: Mapping[Any, Handler] = {**HIGHER_ORDER, **(handlers or {})}
        self.types = TypeCache(self.context)
        self.locations = Locations(self.context)
        self.weights = TensorAttributes(self.context, self.types)
        self.resolves_inputs = False
        """Whether parameters and buffers go to the hooks as inputs: while a mutable program is imported."""
        self.functions: dict[str, manifest.Function] = {}
        """What each imported program's function takes and returns, by the function's name."""
        self.state: dict[str, dict[str, manifest.Held]] = {}
        """By function, the state that it takes, by its name in the state dict."""
        self.constants: dict[str, dict[str, manifest.Held]] = {}
        """By function, the tensors that it holds, by name."""
        self.external: dict[str, manifest.Weight] = {}
        """What is not in the module, by the names of resources or arguments."""
        self.defined: dict[str, Defined] = {}
        """What functions compute that stand for operators which rules lower into another output type, by name."""
        self._registered: dict[str, bool] = {}
        self.callees = Callees(self)
        """What is called by the function that is being imported."""
        self.hooks.prepare_module(self._module.operation)

    @contextmanager
    def handling(self, handlers: Mapping[Any, Handler]) -> Iterator[None]:
        """Have more handlers for a while, which go before those that are there, and may emit any dialect."""
        before = self.handlers
        if handlers:
            load_dialects(self.context)
        self.handlers = {**before, **handlers}
        try:
            yield
        finally:
            self.handlers = before

    @property
    def is_plain(self) -> bool:
        """Whether nothing was imported so far, and nobody steps in."""
        kinds = type(self) is FxImporter and type(self.hooks) is FxImporterHooks
        return kinds and self.handlers == HIGHER_ORDER and not list(self._module.body.operations)

    @property
    def module(self) -> ir.Module:
        """The module with all that was imported so far."""
        return self._module

    @property
    def module_op(self) -> ir.Operation:
        """The module's operation."""
        return self._module.operation

    def is_registered(self, name: str) -> bool:
        """Whether the context knows the operation ``name``."""
        found = self._registered.get(name)
        if found is None:
            found = self._registered[name] = self.context.is_registered_operation(name)
        return found

    def import_program(
        self,
        prog: ExportedProgram,
        *,
        func_name: str = "main",
        func_visibility: str | None = None,
        import_symbolic_shape_expressions: bool = False,
    ) -> ir.Operation:
        """Import a program whose state may be mutated in place: mutated inputs are ``!torch.tensor`` arguments.

        A mutated buffer goes to ``hooks.store_produced_value``, or is a ``!torch.tensor`` argument too.
        """
        return self.import_exported_program(
            prog, ImportOptions(func_name, func_visibility, Mutation.MUTABLE, import_symbolic_shape_expressions)
        )

    def import_frozen_program(
        self,
        prog: ExportedProgram,
        *,
        func_name: str = "main",
        func_visibility: str | None = None,
        import_symbolic_shape_expressions: bool = False,
    ) -> ir.Operation:
        """Import a program whose parameters and buffers are constants. One that mutates state is refused."""
        return self.import_exported_program(
            prog, ImportOptions(func_name, func_visibility, Mutation.ERROR, import_symbolic_shape_expressions)
        )

    def import_exported_program(
        self,
        program: ExportedProgram,
        options: ImportOptions,
        state: Collection[str] = (),
        *,
        tensors_only: bool = False,
    ) -> ir.Operation:
        """Import ``program`` and return its function.

        ``state`` names parameters and buffers that other functions of the module mutate: they are arguments here too.
        ``tensors_only`` leaves numbers, which the export fixed, and tensors without elements out of arguments and
        results; the manifest says what they are.

        Raises:
            UnsupportedProgramError: listing everything in the program that cannot be imported.
        """
        mutable = options.mutation is Mutation.MUTABLE
        stores = mutable and type(self.hooks).store_produced_value is not FxImporterHooks.store_produced_value
        signature = read_signature(
            program, options.mutation, stores, state, tensors_only=tensors_only, weights=options.weights
        )
        self.resolves_inputs = mutable
        try:
            function = self._import(program.graph, program.graph_module, signature, options, program)
        finally:
            self.resolves_inputs = False
        self._record(program, signature, options.func_name, options.weights)
        return function

    def _record(self, program: ExportedProgram, signature: Signature, name: str, weights: Weights) -> None:
        """Note what the function ``name`` takes, returns and holds."""
        assert signature.function is not None
        self.functions[name] = signature.function
        state, kept = self.state[name], self.constants[name] = {}, {}
        arguments = {each.node.name: each.name for each in signature.arguments if each.kind == "state"}
        constants = {each.node.name: each.spec.target for each in signature.constants}
        for spec in program.graph_signature.input_specs:
            for names, held in ((arguments, state), (constants, kept)):
                if (target := names.get(spec.arg.name)) is not None:
                    type_ = value_type(held_value(program, spec))
                    held[target] = manifest.Held(HELD[spec.kind], type_, spec.persistent is not False)
        if weights is not Weights.INLINE:
            self._record_weights(program, signature, weights)

    def _record_weights(self, program: ExportedProgram, signature: Signature, weights: Weights) -> None:
        """Note what the program holds and the module does not."""
        names: dict[Any, list[str]] = {}
        for target, held in program.state_dict.items():
            if isinstance(held, torch.Tensor) and held.layout is torch.strided:
                names.setdefault(place_of(held), []).append(target)
        if weights is Weights.ARGS:
            found = [(each.name, each.node) for each in signature.arguments if each.kind == "weight"]
        else:
            found = [(each.spec.target or "", each.node) for each in signature.constants if _is_external(each, weights)]
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        for name, node in found:
            held = held_value(program, specs[node.name])
            passed = as_held(node, held)
            key = name if weights is Weights.ARGS else key_of(self.weights.external(passed, name))
            passed_as = None if passed.dtype == held.dtype else str(passed.dtype).removeprefix("torch.")
            first, *also = [name, *(each for each in names.get(place_of(held), ()) if each != name)]
            self.external.setdefault(key, manifest.Weight(first, value_type(held), passed_as, tuple(also)))

    def import_graph_module(
        self,
        gm: fx.GraphModule,
        *,
        func_name: str = "main",
        func_visibility: str | None = None,
        import_symbolic_shape_expressions: bool = False,
    ) -> ir.Operation:
        """Import a graph whose placeholders are all arguments and whose ``get_attr`` nodes read tensors of ``gm``."""
        return self.import_stateless_graph(
            gm.graph,
            func_name=func_name,
            func_visibility=func_visibility,
            import_symbolic_shape_expressions=import_symbolic_shape_expressions,
        )

    def import_stateless_graph(
        self,
        g: fx.Graph,
        *,
        func_name: str = "main",
        func_visibility: str | None = None,
        import_symbolic_shape_expressions: bool = False,
    ) -> ir.Operation:
        """Import a graph whose placeholders are all arguments."""
        options = ImportOptions(func_name, func_visibility, symbolic_shapes=import_symbolic_shape_expressions)
        return self._import(g, g.owning_module, _plain_signature(g), options)

    def import_subgraph(self, graph: fx.Graph, build: NodeBuilder, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Import the nodes of ``graph`` where ``build`` stands, and return its results.

        What cannot be imported is left in ``build.refused``; stand-ins take the place of results that depend on it.

        Raises:
            Refused: if a result has no type, and so no stand-in.
        """
        walker, outer = Walker(build, self.locations), build.refused
        build.refused = []
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node, operand in zip(placeholders, operands, strict=True):
            walker.bind(node, operand)
        walker.walk(graph.nodes)
        build.refused = [*outer, *walker.refusals]
        returned: Any = graph.output_node().args[0]
        results = returned if isinstance(returned, (list, tuple)) else [returned]
        if missing := [each.name for each in results if isinstance(each, fx.Node) and each in walker.missing]:
            raise Refused(f"its graph returns {missing[0]}, which cannot be imported")
        return build.values(results)

    def _import(
        self,
        graph: fx.Graph,
        owner: torch.nn.Module | None,
        signature: Signature,
        options: ImportOptions,
        program: ExportedProgram | None = None,
    ) -> ir.Operation:
        unknown = self.locations.unknown
        with self.context, unknown, ir.InsertionPoint(self._module.body):
            function = func_d.FuncOp(options.func_name, ([], []), visibility=options.func_visibility)
            block = function.add_entry_block()
        try:
            self._fill(function, block, graph, owner, signature, options, program)
        except BaseException:
            for each in (function, *self.callees.functions):
                each.erase()
            raise
        finally:
            self.callees = Callees(self)
        return function.operation

    def _fill(
        self,
        function: func_d.FuncOp,
        block: ir.Block,
        graph: fx.Graph,
        owner: torch.nn.Module | None,
        signature: Signature,
        options: ImportOptions,
        program: ExportedProgram | None,
    ) -> None:
        build = NodeBuilder(self, owner, block)
        build.runtime_asserts = options.runtime_asserts
        build.outlines = options.func_name if options.outline_layers else None
        ranges = program.range_constraints if program else {}
        symbols = Symbols(build, ranges) if options.symbolic_shapes else None
        walker = Walker(build, self.locations, symbols)
        mutable = _arguments(signature.arguments, build, walker)
        for constant in signature.constants:
            _constant(constant, build, walker, program, options.weights)
        if options.runtime_asserts and not walker.refusals:
            InputGuards(build, ranges).emit([(argument.name, argument.node) for argument in signature.arguments])
        walker.walk(graph.nodes)
        walker.finish()

        build.location = self.locations.unknown
        for argument, value in mutable:
            assert argument.overwritten_by is not None
            build.op("torch.overwrite.tensor.contents", [], [build.value(argument.overwritten_by), value])
        for constant in signature.constants:
            if constant.stored is not None:
                assert program is not None
                with build.ambient():
                    info = _info(program, constant, build)
                    self.hooks.store_produced_value(build, constant.tensor, build.value(constant.stored), info)
        results = build.values(signature.results)
        build.op("func.return", [], results)
        give_type(function, [argument.type for argument in block.arguments], results)
        if signature.function is not None:
            _name_values(function, signature.function)
        if program is not None and _is_dynamic(argument.node for argument in signature.arguments):
            # export has proved which sizes are equal: no broadcast of a symbolic size that happens to be 1.
            for each in (function, *self.callees.functions):
                each.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get(self.context)


def _arguments(arguments: Sequence[Argument], build: NodeBuilder, walker: Walker) -> list[tuple[Argument, ir.Value]]:
    """Add the function's arguments and bind their nodes. Returns the mutable ones with their ``!torch.tensor``."""
    mutable: list[tuple[Argument, ir.Value]] = []
    for argument in arguments:
        node = argument.node
        try:
            if argument.constant is not None:
                type_ = build.types.of(argument.constant.value)
            else:
                type_ = build.type_of(node, mutable=argument.overwritten_by is not None)
        except Refused as reason:
            walker.refuse(node, str(reason))
            continue
        value = build.block.add_argument(type_, build.fx_importer.locations.named(argument.name))
        if argument.overwritten_by is not None:
            mutable.append((argument, value))
            value = build.op("torch.copy.to_vtensor", [build.type_of(node)], [value]).result
        for each in (node, *argument.also):
            walker.bind(each, value)
    return mutable


def _constant(
    constant: Constant, build: NodeBuilder, walker: Walker, program: ExportedProgram | None, weights: Weights
) -> None:
    """Bind the node of a parameter, buffer or tensor constant to its literal."""
    assert program is not None
    target = constant.spec.target
    assert target is not None
    build.location = build.fx_importer.locations.named(target)
    external = _is_external(constant, weights)
    try:
        info = _info(program, constant, build)
        tensor = as_held(constant.node, constant.tensor)
        name = None if target.startswith(LIFTED) and not external else target
        walker.bind(constant.node, build.literal(tensor, name, info, external=external))
    except Refused as reason:
        walker.refuse(constant.node, f"'{target}': {reason}")


def _is_external(constant: Constant, weights: Weights) -> bool:
    """Whether a constant is named in the module, and its values are elsewhere."""
    return weights is Weights.EXTERNAL and is_weight(constant.spec, constant.tensor) and constant.stored is None


def _info(program: ExportedProgram, constant: Constant, build: NodeBuilder) -> InputInfo:
    stored = constant.stored.name if constant.stored is not None else None
    return InputInfo(program, constant.spec, constant.node, build.type_of(constant.node), store_producer_node=stored)


def _name_values(function: func_d.FuncOp, record: manifest.Function) -> None:
    """Put the names of arguments and results on the function, and what its types do not say of them.

    A lone result needs no name.
    """
    context = function.context

    def described(each: manifest.Argument | manifest.Result) -> ir.DictAttr:
        role = "name" if each.kind in ("input", "output") else each.kind
        said: dict[str, ir.Attribute] = {f"fx_importer.{role}": ir.StringAttr.get(each.name, context)}
        if isinstance(each, manifest.Result) and each.name == "output":
            said.clear()
        shape = each.type.shape or ()
        if each.type.dtype.startswith("complex") and each.passed_as is not None:
            shape = (*shape, 2)
        if any(isinstance(dim, str) for dim in shape):
            i64 = ir.IntegerType.get_signless(64, context)
            dims = [ir.StringAttr.get(d, context) if isinstance(d, str) else ir.IntegerAttr.get(i64, d) for d in shape]
            said["fx_importer.shape"] = ir.ArrayAttr.get(dims, context)
        # MLIR's integers lose their sign on the way down; and here may be the two parts of complex numbers.
        if each.type.dtype.startswith("uint") or len(shape) > len(each.type.shape or ()):
            said["fx_importer.dtype"] = ir.StringAttr.get(each.type.dtype, context)
        return ir.DictAttr.get(said, context)

    if record.arguments:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([*map(described, record.arguments)], context)
    if record.results:
        function.attributes["res_attrs"] = ir.ArrayAttr.get([*map(described, record.results)], context)


def _plain_signature(graph: fx.Graph) -> Signature:
    """Return the signature of a graph whose placeholders are all arguments."""
    arguments = tuple(Argument(node, node.name) for node in graph.nodes if node.op == "placeholder")
    returned: Any = graph.output_node().args[0]
    flat = returned if isinstance(returned, (list, tuple)) else [returned]
    return Signature(arguments, (), tuple(value for value in flat if isinstance(value, (fx.Node, bool, int, float))))


def _is_dynamic(nodes: Iterable[fx.Node]) -> bool:
    examples = (node.meta.get("val") for node in nodes)
    return any(static_dimension(d) is None for e in examples if isinstance(e, torch.Tensor) for d in e.shape)


def import_program(
    program: ExportedProgram,
    options: ImportOptions,
    *,
    hooks: FxImporterHooks | None = None,
    context: ir.Context | None = None,
) -> ir.Module:
    """Import ``program`` into a module of its own."""
    importer = FxImporter(context=context, hooks=hooks)
    importer.import_exported_program(program, options)
    return importer.module
