"""`import_function`: a function that torch.export rejects, as functions of one module with Python between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn, no_grad
from torch.export import ExportedProgram

from fx_importer.api.keywords import options_of
from fx_importer.api.lower import lower
from fx_importer.calls.backend import Backend
from fx_importer.dynamo.backend_options import LOWERING
from fx_importer.dynamo.captured_graphs import captured_call
from fx_importer.dynamo.graph_module import NamedGraph
from fx_importer.dynamo.verify_function import copy_before, verify_function
from fx_importer.errors import SpecializedNumberWarning, UsageError
from fx_importer.frontend.export import export_program
from fx_importer.fx_graph.graph_break import GraphBreak
from fx_importer.process.once import once
from fx_importer.results.lowered import Lowered
from fx_importer.verification import Tolerance, Verdict
from fx_importer.verification.eager_reference import copied


@dataclass(frozen=True)
class Imported:
    """The graphs of one call of a function, as functions of one module, and the graph breaks between them."""

    lowered: Lowered | None
    """The module, with the functions ``graph_0``, ``graph_1``, … in the order of their first run, and the graph breaks
    in its manifest. Weights are constants, as in a program. None if nothing was captured."""
    breaks: tuple[GraphBreak, ...]
    """The places where Python runs between the functions."""
    result: Any
    """The result of the call in eager PyTorch."""
    fn: Callable[..., Any] = field(repr=False)
    """A copy of the function, or the module with its state, from before the call. It has the same weights."""
    inputs: tuple[Sequence[Any], Mapping[str, Any]] = field(repr=False)
    """Copies of the arguments and keyword arguments of the call, from before it."""
    options: Mapping[str, Any] = field(repr=False)
    dynamic: bool | None = field(repr=False)
    captured: Mapping[str, NamedGraph] = field(repr=False)
    """The graphs as modules, by function."""

    @once
    def graphs(self) -> tuple[Lowered, ...]:
        """Each graph in a module of its own, as the function ``main``."""
        programs = {} if self.lowered is None else self.lowered.exported
        return tuple(lower(program, **self.options) for program in programs.values())

    def verify(
        self,
        *args: Any,
        backends: Sequence[str | Backend] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Verdict:
        """Run the function with its graphs on backends and the Python between them, and compare it with eager PyTorch.

        The results of each function of the module are compared with its graph's for the same inputs, and the
        result, the arguments and the state of the whole call with eager's. The function is called with copies: a module
        is copied, state elsewhere is not. Gradients that autograd computes in Python are eager's.

        Args:
            *args: the arguments; by default the arguments of the import, as they were before its call.
            backends: as for `Lowered.verify`; by default the output type's own.
            rtol: as for `Lowered.verify`.
            atol: as for `Lowered.verify`.
            kwargs: the keyword arguments.

        Raises:
            UsageError: if nothing was captured, for an unknown backend, or if ``fn`` cannot be copied.
        """
        if self.lowered is None:
            raise UsageError("nothing can be verified: the whole function runs in Python")
        inputs = (args, kwargs or {}) if args or kwargs else self.inputs
        tolerance = Tolerance(rtol, atol)
        return verify_function(self.lowered, self.fn, inputs, self.captured, self.dynamic, backends, tolerance)

    def __str__(self) -> str:
        kind = f" of {self.lowered.options.output_type.value}" if self.lowered else ""
        lines = [f"{_counted(len(self.captured), 'graph')}{kind}, {_counted(len(self.breaks), 'break')}"]
        if self.lowered:
            for number, (name, function) in enumerate(self.lowered.manifest.functions.items()):
                calls = sum(node.op == "call_function" for node in self.lowered.exported[name].graph.nodes)
                sizes = calls, len(function.arguments), len(function.results)
                lines.append(
                    f"  graph {number}: " + ", ".join(map(_counted, sizes, ("operation", "argument", "result")))
                )
            if numbers := self.lowered.manifest.specialized:
                lines.append(f"  only for {_listed(numbers)}")
        for number, graph_break in enumerate(self.breaks):
            lines.append(f"  break {number}: {graph_break}")
        return "\n".join(lines)


def _title(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _listed(numbers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return ``graph_1 n == 3, graph_2 a number between the functions == 0.5``."""
    return ", ".join(
        f"{function} {'a number read in Python' if name.startswith('___stack') else name} == {value}"
        for function, values in numbers.items()
        for name, value in values.items()
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def import_function(
    fn: Callable[..., Any],
    *args: Any,
    dynamic: bool | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Imported:
    """Run ``fn`` once, and lower the graphs that TorchDynamo captures to functions of one module.

    For functions and modules that torch.export rejects. ``fn`` really runs, with all its side effects. Functions
    compiled earlier in this process by `torch.compile` are recompiled on their next call.

    Args:
        fn: a function, or a module.
        *args: its positional arguments.
        dynamic: as for `torch.compile`: with True, sizes are symbolic.
        kwargs: keyword arguments of ``fn``.
        **options: ``output_type``, ``mutation``, and the lowering options of `lower`.

    Raises:
        UsageError: for an unknown option.
        FxImporterError: as `lower` does, for the first graph that fails.
    """
    accepted = {"output_type", "mutation", *LOWERING}
    if unknown := [name for name in options if name not in accepted]:
        raise UsageError(
            f"import_function has no option {', '.join(map(repr, unknown))}: accepted are "
            f"'dynamic' (for symbolic sizes), 'kwargs' (the function's keyword arguments), "
            f"{', '.join(map(repr, sorted(accepted)))}"
        )
    checked = options_of(options)  # raises before the function runs
    if not callable(fn) or isinstance(fn, Tensor):
        raise UsageError(f"expected a function or an nn.Module, not {type(fn).__name__}")
    inputs = args, kwargs or {}
    kept, before = copied(inputs), copy_before(fn)
    call = captured_call(fn, *inputs, dynamic)
    names = [f"graph_{number}" for number in range(len(call.graphs))]
    training = fn.training if isinstance(fn, nn.Module) else True
    graphs, programs = dict[str, NamedGraph](), dict[str, ExportedProgram]()
    for name, graph in zip(names, call.graphs, strict=True):
        title = f"{_title(fn)}, {name}"
        graphs[name], values, shapes = graph.bound(title, training)
        with no_grad():
            programs[name] = export_program(graphs[name], values, {}, replace(checked.export, dynamic_shapes=shapes))
    lowered, breaks = None, call.named_breaks(names)
    if programs:
        lowered = lower(programs, **options)
        numbers = {name: graph.numbers for name, graph in zip(names, call.graphs, strict=True) if graph.numbers}
        lowered = replace(lowered, manifest=replace(lowered.manifest, graph_breaks=breaks, specialized=numbers))
        if numbers:
            warnings.warn(
                f"functions of {_title(fn)} hold for these numbers of Python only: {_listed(numbers)}. With "
                "dynamic=True they are arguments, as far as TorchDynamo can",
                SpecializedNumberWarning,
                stacklevel=2,
            )
    return Imported(lowered, breaks, call.result, before, kept, options, dynamic, graphs)
