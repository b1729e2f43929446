"""Reduction of a pass failure: the smallest slice of a module on which a single pass fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fx_importer.diagnostics.trace import StageRecord
from fx_importer.mlir.bindings import ir, load_dialects, new_context, passmanager
from fx_importer.mlir.emit.emitter import Emitter, is_used, terminator, update_function_type
from fx_importer.pipelines import Stage, run_stage
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.runner import single_passes
from fx_importer.reduction.ddmin import minimized
from fx_importer.reduction.symptom import Symptom
from fx_importer.reduction.trials import Entering, Trials


def parsed(text: str) -> ir.Module:
    """Return the module, parsed in a new context without threads, since this process may be forked."""
    context = new_context()
    context.enable_multithreading(False)
    load_dialects(context)
    return ir.Module.parse(text, context)


def generic_text(module: ir.Operation) -> str:
    """Return ``module`` in the generic form, without locations, so that it can be parsed again."""
    return module.get_asm(enable_debug_info=False)


def operations_in(text: str) -> int:
    """Return the number of operations in the first function, not counting its return."""
    module = parsed(text)  # keeps it alive; the function does not
    return len(_body(_function(module)))


def with_operations(text: str, kept: Collection[int]) -> str:
    """Return the module with only the operations of its first function at the positions ``kept``.

    The values that they use become arguments of the function; it returns the values that none of them uses. Functions
    without a reference are removed.
    """
    module = parsed(text)
    function = _function(module)
    block = function.regions[0].blocks[0]
    body = _body(function)
    staying = [operation for position, operation in enumerate(body) if position in kept]
    with module.context, ir.Location.unknown(module.context):
        _return(
            block,
            [result for staying_op in staying if not _is_read(staying_op, staying) for result in staying_op.results],
        )
        for operation in reversed([op for position, op in enumerate(body) if position not in kept]):
            for result in operation.results:
                if is_used(result):
                    result.replace_all_uses_with(block.add_argument(result.type, operation.location))
            operation.erase()
        for position in reversed(range(len(block.arguments))):
            if not is_used(block.arguments[position]):
                block.erase_argument(position)
        update_function_type(function)
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            del function.attributes[name]
    passmanager.PassManager.parse("builtin.module(symbol-dce)", module.context).run(module.operation)
    module.operation.verify()
    return generic_text(module.operation)


def _function(module: ir.Module) -> Any:
    return next(
        operation for operation in module.body.operations if operation.regions and len(operation.regions[0].blocks)
    )


def _body(function: Any) -> list[Any]:
    return list(function.regions[0].blocks[0].operations)[:-1]


def _is_read(operation: Any, others: Collection[Any]) -> bool:
    """Return whether one of ``others``, or an operation nested in one, uses a result of ``operation``."""
    wanted = {other.operation for other in others}
    return any(_outermost(use.owner, operation) in wanted for result in operation.results for use in result.uses)


def _outermost(user: Any, sibling: Any) -> Any:
    """Return the ancestor of ``user``, or ``user`` itself, in the block of ``sibling``."""
    user, parent = user.operation, sibling.operation.parent
    while user.parent != parent:
        user = user.parent.operation
    return user


def _return(block: Any, values: list[Any]) -> None:
    old = terminator(block)
    Emitter.before(old).op(old.name, [], values)
    old.erase()


@dataclass(frozen=True)
class Case:
    """A module, and the pass pipeline that fails on it."""

    text: str
    stage: str
    pipeline: str
    """In MLIR's syntax; empty if the failure is not in a pass."""

    @classmethod
    def of(cls, record: StageRecord) -> Case | None:
        """Return the module before a stage; None if there was none."""
        if record.snapshot is None or record.name == "importing":  # its module is still empty
            return None
        return cls(generic_text(record.snapshot), record.name, record.pipeline)

    @classmethod
    def read(cls, path: Path) -> Case | None:
        """Return the case that `write` wrote; None if there is none."""
        if not path.exists():
            return None
        stage, pipeline, text = path.read_text(encoding="utf-8").split("\n", 2)
        return cls(text, stage, pipeline)

    def write(self, path: Path) -> None:
        path.write_text("\n".join([self.stage, self.pipeline, self.text]), encoding="utf-8")

    def run(self, entering: Entering) -> None:
        """Run the passes. Raise `ir.MLIRError` if they fail."""
        self._run(self._parsed(), entering)

    def _parsed(self) -> ir.Module:
        load_dialects(context := new_context())
        return ir.Module.parse(self.text, context)

    def _run(self, module: ir.Module, entering: Entering) -> None:
        entering(self.stage)
        run_stage(Stage(self.stage, "", parse_steps(self.pipeline)), module)

    def run_one_by_one(self, path: Path, entering: Entering) -> None:
        """Run each pass alone, and write its input to ``path`` before it runs. Raise as `run` does."""
        module = self._parsed()
        for steps in single_passes(Stage(self.stage, "", parse_steps(self.pipeline))):
            alone = replace(
                self, text=generic_text(module.operation), pipeline=str(Stage(self.stage, "", tuple(steps)))
            )
            alone.write(path)
            alone._run(module, entering)


def reduced_case(case: Case, symptom: Symptom, trials: Trials, scratch: Path) -> Case:
    """Return the failing pass of ``case``, with as few operations as it fails on."""

    def fails(candidate: Case) -> bool:
        other = trials.run(candidate.run)
        return other is not None and other.is_same_as(symptom)

    path = scratch / "pass"
    trials.run(partial(case.run_one_by_one, path))
    one = Case.read(path)
    if one is not None and fails(one):
        case = one
    elif not fails(case):  # the failure depends on locations, which the text lacks
        return case
    return replace(case, text=_fewer(case.text, lambda text: fails(replace(case, text=text))))


def _fewer(text: str, fails: Callable[[str], bool]) -> str:
    total = range(operations_in(text))
    kept = minimized(total, lambda chosen: _holds(text, chosen, fails))
    return with_operations(text, kept) if _holds(text, kept, fails) else text


def _holds(text: str, kept: Sequence[int], fails: Callable[[str], bool]) -> bool:
    try:
        candidate = with_operations(text, kept)
    except ir.MLIRError:  # an operation that is only valid together with another
        return False
    return fails(candidate)
