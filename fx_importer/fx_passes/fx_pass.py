"""FX passes as values: a name, a function from program to program, and a predicate that selects compilations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import fx
from torch.export import ExportedProgram

from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.fx_passes.node_rewriting import NodeRewrites, is_in_place, rewrite_nodes
from fx_importer.options import Options
from fx_importer.output_types import OutputType

if TYPE_CHECKING:
    from fx_importer.fx_passes.legalization import Dtypes


class Capabilities(Protocol):
    """Properties of an output type that FX passes depend on; `fx_importer.targets.Target` implements it."""

    @property
    def output_type(self) -> OutputType: ...
    @property
    def library_operators(self) -> bool: ...
    @property
    def memory(self) -> bool: ...
    @property
    def scalars(self) -> bool: ...
    @property
    def random(self) -> bool: ...
    @property
    def folds_constants(self) -> bool: ...
    @property
    def position_operators(self) -> int | None: ...
    @property
    def folds_casts(self) -> bool: ...
    @property
    def dynamic_shapes(self) -> bool: ...
    @property
    def data_dependent_sizes(self) -> bool: ...


@dataclass(frozen=True)
class FxContext:
    """The compilation that an FX pass runs in."""

    target: Capabilities
    options: Options
    dtypes: Dtypes
    """The dtypes of the output type, with these options."""
    decompose: Callable[[ExportedProgram], ExportedProgram]
    """Decomposes a program with the table of the compilation."""
    decompose_calls: Callable[[ExportedProgram, Collection[Any]], ExportedProgram]
    """Decomposes the calls of some operators only, with the same table."""
    functionalize: Callable[[ExportedProgram], ExportedProgram]
    """Returns a program without writes to memory, whose other operators stay."""
    remark: Callable[[str], None] = field(default=lambda remark: None)
    """Records a message about the compilation in its trace."""
    exported: Mapping[str, ExportedProgram] = field(default_factory=dict[str, ExportedProgram])
    """The programs of the user, by function, whose graphs passes must not change in place."""
    programs: Mapping[str, ExportedProgram] = field(default_factory=dict[str, ExportedProgram])
    """The programs before the pass, by function."""

    def owns(self, program: ExportedProgram) -> bool:
        """Return whether passes may change the graphs of ``program`` in place."""
        return all(program is not exported for exported in self.exported.values())


Run = Callable[[ExportedProgram, FxContext], ExportedProgram]
RewriteGraph = Callable[[fx.Graph], None]


def always(context: FxContext) -> bool:
    """Return True: the pass runs in every compilation."""
    return True


@dataclass(frozen=True)
class FxPass:
    """A named pass from FX graph to FX graph, or a check that returns its program."""

    name: str
    run: Run
    """Returns the changed program, or its argument if there is nothing to do."""
    when: Callable[[FxContext], bool] = always
    """Whether the pass is part of a compilation, which depends on its options and output type."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FxStage:
    """A named sequence of FX passes: it is timed, and named in errors and dumps."""

    name: str
    passes: tuple[FxPass, ...] = ()


def functional_graph_pass(name: str, rewrite: RewriteGraph) -> FxPass:
    """Return the pass that applies ``rewrite`` to each graph without in-place operators, in place if possible."""

    def rewrite_functional(graph: fx.Graph, owner: fx.GraphModule) -> None:
        if not any(is_in_place(node) for node in graph.nodes):
            rewrite(graph)

    def run(program: ExportedProgram, context: FxContext) -> ExportedProgram:
        return with_rewritten_graphs(program, rewrite_functional, in_place=context.owns(program))

    return FxPass(name, run)


def node_pass(name: str, rules: NodeRewrites) -> FxPass:
    """Return the pass that applies ``rules`` to the nodes of each graph without in-place operators."""
    return functional_graph_pass(name, lambda graph: rewrite_nodes(graph.nodes, rules))
