"""Importer of FX graphs as functions of one MLIR module."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from fx_importer import manifest
from fx_importer.errors import UsageError
from fx_importer.fx_graph.programs import add_examples
from fx_importer.importing.function_body import import_body
from fx_importer.importing.graph_walker import Locations, Walker
from fx_importer.importing.handlers.higher_order import HIGHER_ORDER, Handler
from fx_importer.importing.hooks import FxImporterHooks
from fx_importer.importing.import_result import ImportedFunction, ImportResult
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.signatures.manifest_records import held_in, weights_outside
from fx_importer.importing.signatures.program_inputs import SignaturePolicy
from fx_importer.importing.signatures.program_signature import plain_signature, read_signature
from fx_importer.importing.signatures.signature import ImportedSignature
from fx_importer.importing.subgraph_functions import Callees
from fx_importer.importing.types import TypeCache
from fx_importer.importing.weight_attributes import TensorAttributes
from fx_importer.mlir.bindings import func_d, ir, load_dialects, new_context
from fx_importer.mlir.declarations import StubDefinition
from fx_importer.options import ImportOptions, Mutation


class FxImporter:
    """Importer of programs and graphs into one module, each as a function.

    Args:
        module: the module to fill; a new one by default.
        context: the context of a new module, with the torch dialect registered; a new one by default.
        hooks: the hooks of an integrator.
        handlers: handlers by operator. A handler takes the node and a `NodeBuilder`, and returns
            the value of the node, or a sequence of values. They take precedence over the built-in ones.

    A failed import leaves the functions of the module unchanged.
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
        """Whether parameters and buffers are passed to the hooks as inputs, as for a mutable program."""
        self.defined: dict[str, StubDefinition] = {}
        """Definitions of the functions for operators that rules lower into another output type, by name."""
        self._external: dict[str, manifest.Weight] = {}
        """Weights outside the module, by the names of resources or arguments."""
        self._registered: dict[str, bool] = {}
        self.callees = Callees(self)
        """Callees of the function that is being imported."""
        self.hooks.prepare_module(self._module.operation)

    def fresh(self) -> FxImporter:
        """Return an importer with the same hooks and handlers, and a new module in a new context."""
        return FxImporter(hooks=self.hooks, handlers=self.handlers)

    @property
    def is_plain(self) -> bool:
        """Return whether nothing was imported so far and there are no hooks or handlers."""
        kinds = type(self) is FxImporter and type(self.hooks) is FxImporterHooks
        return kinds and self.handlers == HIGHER_ORDER and not list(self._module.body.operations)

    @property
    def module(self) -> ir.Module:
        """The module with everything imported so far."""
        return self._module

    @property
    def module_op(self) -> ir.Operation:
        """The module's operation."""
        return self._module.operation

    def is_registered(self, name: str) -> bool:
        """Return whether the operation ``name`` is registered in the context."""
        registered = self._registered.get(name)
        if registered is None:
            registered = self._registered[name] = self.context.is_registered_operation(name)
        return registered

    def import_program(
        self,
        prog: ExportedProgram,
        *,
        func_name: str = "main",
        func_visibility: str | None = None,
        import_symbolic_shape_expressions: bool = False,
    ) -> ir.Operation:
        """Import a program whose state may be mutated in place: mutated inputs are ``!torch.tensor`` arguments.

        A mutated buffer is passed to ``hooks.store_produced_value``, or is a ``!torch.tensor`` argument too.
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
        """Import a program whose parameters and buffers are constants. Raise an error if it mutates state."""
        return self.import_exported_program(
            prog, ImportOptions(func_name, func_visibility, Mutation.ERROR, import_symbolic_shape_expressions)
        )

    def import_exported_program(self, program: ExportedProgram, options: ImportOptions) -> ir.Operation:
        """Import ``program`` and return its function.

        Raises:
            UnsupportedProgramError: listing everything in the program that cannot be imported.
        """
        return self._import_exported(program, options).operation

    def import_programs(
        self,
        programs: Mapping[str, ExportedProgram],
        options: ImportOptions,
        *,
        state: Collection[str] = (),
        handlers: Mapping[Any, Handler] = MappingProxyType({}),
        tensors_only: bool = False,
        assertions: bool = True,
        elided: Mapping[object, int] = MappingProxyType({}),
    ) -> ImportResult:
        """Import programs as functions of these names, and return them with the module.

        Args:
            programs: the programs, by the names of their functions.
            options: for all of them, apart from the name.
            state: parameters and buffers that any of the functions mutates; arguments of all that hold them.
            handlers: more handlers, for these programs only. They take precedence, and may emit any dialect.
            tensors_only: leave numbers fixed by the export and empty tensors out of arguments and results; the
                manifest records them.
            assertions: assert what the capture of a program assumes; otherwise functions return it.
            elided: the numbers of weights whose values are elided from the module; see `TensorAttributes.elided`.

        Raises:
            UnsupportedProgramError: listing everything unsupported in the first program that cannot be imported.
            UsageError: for ``input_names`` and ``output_names`` that do not fit.
        """
        if len(programs) > 1 and (options.input_names or options.output_names):
            raise UsageError("input_names and output_names name those of one function: the module has several")
        before = self.handlers
        if handlers:
            load_dialects(self.context)
        self.handlers = {**before, **handlers}
        self.weights.elided = elided
        try:
            functions = {
                name: self._import_exported(
                    program, replace(options, func_name=name), state, tensors_only=tensors_only, assertions=assertions
                )
                for name, program in programs.items()
            }
        finally:
            self.handlers = before
        return ImportResult.of(self._module, functions, dict(self._external), dict(self.defined))

    def _import_exported(
        self,
        program: ExportedProgram,
        options: ImportOptions,
        state: Collection[str] = (),
        *,
        tensors_only: bool = False,
        assertions: bool = True,
    ) -> ImportedFunction:
        mutable = options.mutation is Mutation.MUTABLE
        stores = mutable and type(self.hooks).store_produced_value is not FxImporterHooks.store_produced_value
        names = options.input_names, options.output_names
        policy = SignaturePolicy(options.mutation, stores, state, tensors_only, options.weights, *names, assertions)
        signature = read_signature(program, policy)
        self.resolves_inputs = mutable
        try:
            operation = self._import(program.graph, program.graph_module, signature, options, program)
        finally:
            self.resolves_inputs = False
        for key, weight in weights_outside(program, signature, self.weights):
            self._external.setdefault(key, weight)
        assert signature.function is not None
        return ImportedFunction(operation, signature.function, *held_in(program, signature))

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
        """Import a graph whose placeholders are all arguments.

        Nodes have example values (``node.meta["val"]``); from ``node.meta["tensor_meta"]`` they are made here.
        """
        add_examples(g)
        options = ImportOptions(func_name, func_visibility, symbolic_shapes=import_symbolic_shape_expressions)
        return self._import(g, g.owning_module, plain_signature(g), options)

    def import_subgraph(self, graph: fx.Graph, build: NodeBuilder, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Import the nodes of ``graph`` at the insertion point of ``build``, and return its results.

        Unsupported nodes are added to ``build.unsupported``; placeholder values replace results that depend on them.

        Raises:
            UnsupportedNodeError: if a result has no type, and so no placeholder value.
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
        if missing := [result.name for result in results if isinstance(result, fx.Node) and result in walker.missing]:
            raise UnsupportedNodeError(f"its graph returns {missing[0]}, which cannot be imported")
        return build.values(results)

    def _import(
        self,
        graph: fx.Graph,
        owner: torch.nn.Module | None,
        signature: ImportedSignature,
        options: ImportOptions,
        program: ExportedProgram | None = None,
    ) -> ir.Operation:
        unknown = self.locations.unknown
        with self.context, unknown, ir.InsertionPoint(self._module.body):
            function = func_d.FuncOp(options.func_name, ([], []), visibility=options.func_visibility)
            function.add_entry_block()
        try:
            import_body(self, function, graph, owner, signature, options, program)
        except BaseException:
            for imported in (function, *self.callees.functions):
                imported.erase()
            raise
        finally:
            self.callees = Callees(self)
        return function.operation


def import_program(
    program: ExportedProgram,
    options: ImportOptions,
    *,
    hooks: FxImporterHooks | None = None,
    context: ir.Context | None = None,
) -> ir.Module:
    """Import ``program`` into a new module."""
    importer = FxImporter(context=context, hooks=hooks)
    importer.import_exported_program(program, options)
    return importer.module
