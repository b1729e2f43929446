"""The importer: FX graphs into functions of one MLIR module."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer import manifest
from fx_importer.errors import UsageError
from fx_importer.importing.function_entry import add_arguments, bind_constant, info_of
from fx_importer.importing.graph_walker import Walker
from fx_importer.importing.handlers import HIGHER_ORDER, Handler
from fx_importer.importing.hooks import FxImporterHooks
from fx_importer.importing.locations import Locations
from fx_importer.importing.manifest_records import held_in, name_values, weights_outside
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.program_signature import Signature, plain_signature, read_signature
from fx_importer.importing.size_guards import InputGuards
from fx_importer.importing.subgraph_functions import Callees, give_type
from fx_importer.importing.symbolic_shapes import Symbols
from fx_importer.importing.types import TypeCache, static_dimension
from fx_importer.importing.weight_attributes import TensorAttributes
from fx_importer.mlir.bindings import func_d, ir, load_dialects, new_context
from fx_importer.mlir.declarations import Defined
from fx_importer.options import ImportOptions, Mutation


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
        assert signature.function is not None
        self.functions[options.func_name] = signature.function
        self.state[options.func_name], self.constants[options.func_name] = held_in(program, signature)
        for key, weight in weights_outside(program, signature, self.weights):
            self.external.setdefault(key, weight)
        return function

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
        return self._import(g, g.owning_module, plain_signature(g), options)

    def import_subgraph(self, graph: fx.Graph, build: NodeBuilder, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Import the nodes of ``graph`` where ``build`` stands, and return its results.

        What cannot be imported is left in ``build.unsupported``; stand-ins take the place of results that depend on it.

        Raises:
            UnsupportedNodeError: if a result has no type, and so no stand-in.
        """
        walker, outer = Walker(build, self.locations), build.unsupported
        build.unsupported = []
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node, operand in zip(placeholders, operands, strict=True):
            walker.bind(node, operand)
        walker.walk(graph.nodes)
        build.unsupported = [*outer, *walker.unsupported_nodes]
        returned: Any = graph.output_node().args[0]
        results = returned if isinstance(returned, (list, tuple)) else [returned]
        if missing := [each.name for each in results if isinstance(each, fx.Node) and each in walker.missing]:
            raise UnsupportedNodeError(f"its graph returns {missing[0]}, which cannot be imported")
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
        mutable = add_arguments(signature.arguments, build, walker)
        for constant in signature.constants:
            assert program is not None
            bind_constant(constant, build, walker, program)
        if options.runtime_asserts and not walker.unsupported_nodes:
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
                    info = info_of(program, constant, build)
                    self.hooks.store_produced_value(build, constant.tensor, build.value(constant.stored), info)
        results = build.values(signature.results)
        build.op("func.return", [], results)
        give_type(function, [argument.type for argument in block.arguments], results)
        if signature.function is not None:
            name_values(function, signature.function)
        if program is not None and _is_dynamic(argument.node for argument in signature.arguments):
            # export has proved which sizes are equal: no broadcast of a symbolic size that happens to be 1.
            for each in (function, *self.callees.functions):
                each.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get(self.context)


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
