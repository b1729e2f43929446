"""Runner of stages on a module, with all errors that passes report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import Any

from fx_importer.diagnostics.observers import pass_observers
from fx_importer.diagnostics.pass_filter import current_filter
from fx_importer.diagnostics.progress import is_followed, ticker
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir, load_dialects, passmanager
from fx_importer.mlir.walk import operations
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.stage import BACKEND_TYPES, Nested, Pass, RewriteStep, Stage, Step

Problem = tuple[ir.Location, str]

NOT_LOWERED = "nothing lowered"
"""The beginning of the error message about an operator of torch that no pass lowered."""


def run_stage(
    stage: Stage, module: ir.Module, *, print_passes: bool = False, on_pass: Callable[[str], None] | None = None
) -> None:
    """Run ``stage`` on ``module``, in place. ``print_passes`` prints to the native standard error.

    ``on_pass`` is called with each pass, in MLIR's syntax, right before it runs.

    Raises:
        UsageError: if MLIR does not know a pass.
        ir.MLIRError: if a pass failed or reported an error, or if the resulting module is invalid. ``module`` must not
            be used then.
    """
    if any(isinstance(step, RewriteStep) for step in stage.passes):
        load_dialects(module.context)  # MLIR loads the dialects that its own passes depend on
    on_pass = on_pass or _progress_callback(stage)
    observers, pass_filter = pass_observers(), current_filter()
    passes = passmanager.PassManager("builtin.module", module.context)
    raised: list[Exception] = []
    with _collecting_errors(passes) as reported:
        for steps in single_passes(stage) if on_pass or observers or pass_filter else _step_groups(stage):
            if pass_filter and not pass_filter.keeps(stage.name, str(steps[0])):
                continue
            if on_pass:
                _add_callback(passes, on_pass, str(steps[0]))
            for observer in observers:
                _add_observer(passes, observer.before_pass, str(steps[0]))
            if isinstance(steps[0], RewriteStep):
                _add_rewrite(passes, steps[0], reported, raised)
            else:
                _add(passes, ",".join(map(str, steps)))
            for observer in observers:
                _add_observer(passes, observer.after_pass, str(steps[0]))
        passes.enable_verifier(False)  # after each pass it would double the time; it runs once at the end
        if print_passes:
            module.context.enable_multithreading(False)
            passes.enable_ir_printing(print_module_scope=True, large_elements_limit=16, large_resource_limit=16)
        try:
            passes.run(module.operation)
        except ir.MLIRError as error:
            if raised:
                raise raised[0] from None
            if stage.name == BACKEND_TYPES and (left := _unlowered(module)):
                error.error_diagnostics[:0] = _error(module, left).error_diagnostics
            raise
    if reported:
        raise _error(module, reported)
    module.operation.verify()


def run_text(pipeline: str, module: ir.Module, *, print_passes: bool = False) -> None:
    """Run a pipeline in MLIR's syntax, ``builtin.module(...)``, on ``module`` in place. Raises as `run_stage` does."""
    run_stage(Stage("pipeline", "", parse_steps(pipeline)), module, print_passes=print_passes)


def _progress_callback(stage: Stage) -> Callable[[str], None] | None:
    """Return a callback that reports progress after each pass of ``stage``; None if nobody follows."""
    if not is_followed():
        return None
    tick = ticker(sum(1 for _ in single_passes(stage)), "passes")
    return None if tick is None else lambda _name: tick()


def _step_groups(stage: Stage) -> Iterator[Sequence[Step]]:
    """Yield the steps to add to the pass manager together: each rewrite alone, and the passes between rewrites."""
    for rewrites, steps in groupby(stage.passes, lambda step: isinstance(step, RewriteStep)):
        between = list(steps)
        yield from ([step] for step in between) if rewrites else [between]


def single_passes(stage: Stage) -> Iterator[Sequence[Step]]:
    """Yield each pass alone, also of nested pipelines: passes on a function do not depend on other functions."""
    for step in stage.passes:
        yield from ([step],) if isinstance(step, RewriteStep) else ([item] for item in _flattened(step))


def _flattened(step: Pass | Nested) -> Iterator[Pass | Nested]:
    if isinstance(step, Pass):
        yield step
        return
    for inner in step.passes:
        yield from (Nested(step.anchor, (item,)) for item in _flattened(inner))


def _add_callback(passes: passmanager.PassManager, on_pass: Callable[[str], None], name: str) -> None:
    passes.add(lambda _operation, _this: on_pass(name))


def _add_observer(passes: passmanager.PassManager, observe: Callable[[str, ir.Operation], None], name: str) -> None:
    passes.add(lambda operation, _this: observe(name, operation))


def _add(passes: passmanager.PassManager, text: str) -> None:
    try:
        passes.add(text)
    except ValueError as error:
        raise UsageError(f"not a pass pipeline: {error}") from error


def _add_rewrite(
    passes: passmanager.PassManager, step: RewriteStep, reported: list[Problem], raised: list[Exception]
) -> None:
    def run(operation: ir.Operation, this: Any) -> None:
        before = len(reported)
        try:
            step.run(operation)
        except Exception as error:  # must not propagate through MLIR; `run_stage` raises it
            raised.append(error)
        if raised or len(reported) > before:
            this.signal_pass_failure()

    passes.add(run, name=step.name)


@contextmanager
def _collecting_errors(passes: passmanager.PassManager) -> Iterator[list[Problem]]:
    """Collect the errors that the passes report that are added to ``passes`` in the body.

    A pass may report an error and still succeed, where a pattern failed on an op that another pattern may match. The
    bindings drop such an error, and the op is found unlowered, or wrong, some stages later. A diagnostic handler gets
    errors only if it is attached after the one of the bindings, which is attached at the start of the run: a first pass
    attaches it.
    """
    reported: list[Problem] = []

    def hear(diagnostic: ir.Diagnostic) -> bool:
        if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
            reported.append((diagnostic.location, diagnostic.message))
        return False  # the handler of the bindings gets it too

    with ExitStack() as attached:

        def listen(operation: Any, _this: Any) -> None:
            attached.enter_context(operation.context.attach_diagnostic_handler(hear))

        passes.add(listen)
        yield reported


def _unlowered(module: ir.Module) -> list[Problem]:
    """Return the torch ops left in ``module``, each name once. MLIR's own error may name only a constant operand."""
    unlowered: dict[str, ir.Location] = {}
    count: Counter[str] = Counter()
    for operation in operations(module.operation):
        name = operation.name
        if name.startswith("torch.") and not name.startswith(("torch.constant.", "torch.prim.ListConstruct")):
            if name == "torch.operator":
                name = ir.StringAttr(operation.attributes["name"]).value
            unlowered.setdefault(name, operation.location)
            count[name] += 1
    times = {name: f", {number} times" if number > 1 else "" for name, number in count.items()}
    return [(location, f"{NOT_LOWERED} '{name}'{times[name]}") for name, location in unlowered.items()]


def _error(module: ir.Module, problems: Sequence[Problem]) -> ir.MLIRError:
    """Return an error with ``problems`` as its diagnostics. Only MLIR can create one, from a failing pass."""

    def fail(_operation: Any, this: Any) -> None:
        for location, message in problems:
            location.emit_error(message)
        this.signal_pass_failure()

    passes = passmanager.PassManager("builtin.module", module.context)
    passes.add(fail)
    passes.enable_verifier(False)
    try:
        passes.run(module.operation)
    except ir.MLIRError as error:
        return error
    raise AssertionError("a pass that signals failure fails")
