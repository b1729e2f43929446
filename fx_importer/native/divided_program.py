"""A TOSA program whose operations Ethos-U runs as far as Vela compiles them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fx_importer.engines.vela.c_arrays import read_raw
from fx_importer.engines.vela.partition import ProgramPart, divide, part_of, runs_in_integers
from fx_importer.engines.vela.vela import Estimate, RefusedError, run_vela
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import function_named

_WORK = ("conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d", "matmul", "avg_pool2d", "max_pool2d")
"""Operations of TOSA that are worth a call of the NPU. Others run there with one of these."""


@dataclass(frozen=True)
class DividedProgram:
    """The parts of a program in the order of calls."""

    parts: tuple[ProgramPart, ...]
    npu: Mapping[str, Mapping[str, Any]]
    """What Vela makes of the parts on the NPU: the entries of its file, by the name of the part."""
    estimate: Estimate
    """The sum of the parts on the NPU."""


def divide_program(
    module: ir.Module, accelerator: str, options: Sequence[str], floats: Sequence[str] = ()
) -> DividedProgram:
    """Divide ``module``, of TOSA: operations in floating point, and those that Vela refuses, are for the processor.

    So are parts without a convolution, matmul or pooling. ``floats`` lists the operators in floating point, for errors.

    Raises:
        RefusedError: if Vela refuses a part for a reason that names no operation of it.
        UsageError: if nothing is left for the NPU.
    """
    reasons: dict[str, int] = {}
    on_processor = {
        op for op in map(_operation, function_named(module, "main").entry_block) if not runs_in_integers(op)
    }
    compiled: dict[tuple[ir.Operation, ...], tuple[Estimate, bytes]] = {}
    while True:
        parts = divide(module, on_processor.__contains__)
        if small := [part for part in parts if part.on_npu and not any(map(_is_work, part.operations))]:
            on_processor |= {op for part in small for op in part.operations}
            continue
        waiting = [part for part in parts if part.on_npu and part.operations not in compiled]
        if not waiting:
            break
        try:
            made = run_vela(waiting[0].module(), accelerator, (*options, "--output-format", "raw"))
            compiled[waiting[0].operations] = made
        except RefusedError as error:
            refused = _refused(waiting[0], error, accelerator, options)
            if not refused:
                raise
            on_processor |= set(refused)
            for op, reason in refused.items():
                line = f"{op.name}: {reason}"
                reasons[line] = reasons.get(line, 0) + 1
    on_npu = [part for part in parts if part.on_npu]
    if not on_npu:
        raise UsageError(
            "\n  ".join([f"{accelerator} runs no convolution, matmul or pooling of the model:", *floats, *reasons])
        )
    listed = [*floats, *(f"{count} {line}" if count > 1 else line for line, count in reasons.items())]
    estimate = _sum([compiled[part.operations][0] for part in on_npu])
    count = sum(len(part.operations) for part in parts if not part.on_npu)
    npu = {part.name: read_raw(compiled[part.operations][1]) for part in on_npu}
    return DividedProgram(tuple(parts), npu, replace(estimate, cpu_operators=count, on_processor=listed))


def _refused(
    part: ProgramPart, error: RefusedError, accelerator: str, options: Sequence[str]
) -> dict[ir.Operation, str]:
    """Return the operations that Vela names, with its reasons: of several with one name, those it refuses alone too.

    A name of its own, which no operation has, is looked for in all operations, compiled one by one.
    """
    refused: dict[ir.Operation, str] = {}
    alone: dict[str, bool] = {}
    for name, texts in error.reasons.items():
        word = name.lower()
        named = [op for op in part.operations if _word(op).startswith(word)]
        if len(named) != 1:
            named = [
                op for op in named or part.operations if _is_refused(op, name, accelerator, options, alone)
            ] or named
        refused |= dict.fromkeys(named, ", ".join(dict.fromkeys(texts)))
    return refused


def _is_work(op: ir.Operation) -> bool:
    return op.name.removeprefix("tosa.") in _WORK


def _operation(op: ir.Operation | ir.OpView) -> ir.Operation:
    return op.operation


def _word(op: ir.Operation) -> str:
    return op.name.removeprefix("tosa.").replace("_", "")


def _is_refused(op: ir.Operation, name: str, accelerator: str, options: Sequence[str], known: dict[str, bool]) -> bool:
    """Return whether Vela refuses ``op`` with the rescaling that is its only use, which it compiles together.

    ``known`` has the answers by the text of the module.
    """
    users = {use.owner.operation for result in op.results for use in result.uses}
    together = [op, *(user for user in users if len(users) == 1 and user.name == "tosa.rescale")]
    module = part_of(together).module()
    if (text := str(module)) not in known:
        try:
            run_vela(module, accelerator, options)
            known[text] = False
        except RefusedError as error:
            known[text] = name in error.reasons
    return known[text]


def _sum(estimates: Sequence[Estimate]) -> Estimate:
    """Return the sum of calls after each other, whose memory is the largest."""
    first = estimates[0]
    return replace(
        first,
        cycles={name: sum(part.cycles[name] for part in estimates) for name in first.cycles},
        memory={name: max(part.memory[name] for part in estimates) for name in first.memory},
        **{
            name: sum(getattr(part, name) for part in estimates)
            for name in ("macs", "original_weights", "encoded_weights", "npu_operators")
        },
    )
