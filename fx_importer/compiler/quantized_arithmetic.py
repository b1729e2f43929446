"""Arithmetic of quantized programs: integers or floating point, and the choice of ``quantized="auto"``.

A program from `fx_importer.quantize` is meant for integers, and so is every quantized program in TOSA, whose quantized
operators are integer operators. Other programs with Q/DQ have the numbers of eager PyTorch, bit for bit: integers are
up to a step away from these, so they are for ``quantized="integer"`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

import torch

from fx_importer.compiler.compilation import Compilation, Exported, Programs
from fx_importer.diagnostics.trace import Trace
from fx_importer.errors import CrashedError, FxImporterError, StageFailed, UnsupportedProgramError
from fx_importer.importing import FxImporter
from fx_importer.lowerings import EMITTERS, layers
from fx_importer.options import Options, Quantized
from fx_importer.quantization import DYNAMIC_SIZES, INTEGER_LIBRARY, is_from_quantize, is_quantized
from fx_importer.results.lowered import Lowered

Remark = Callable[[str], None]
Check = Callable[[Compilation, Remark], Programs]
"""Checks exported programs, and returns them in the form that a compilation computes."""

_ACCEPT = "Pass quantized='float' if that is intended"
_NOT_LOWERED = (UnsupportedProgramError, StageFailed, CrashedError)
"""Errors of programs that cannot be lowered."""


def _ignored(remark: str) -> None:
    """Do nothing, for callers without a trace."""


def in_chosen_arithmetic(
    programs: Programs, models: Iterable[Any], compilation: Compilation, check: Check, remark: Remark = _ignored
) -> Exported:
    """Return exported programs in the arithmetic of the options, which is resolved in their compilation.

    Args:
        programs: the programs, by function.
        models: the models that they were exported from.
        compilation: of the options that the user passed.
        check: see `Check`.
        remark: receives the choice of ``quantized="auto"`` and its reason, and the remarks of ``check``.

    Raises:
        UsageError: as ``check`` does.
    """
    options = compilation.options
    automatic = options.export.quantized is Quantized.AUTO
    if not automatic or not any(is_quantized(program.graph) for program in programs.values()):
        return Exported(programs, check(compilation, remark), compilation)
    from_quantize = any(is_from_quantize(program.graph) for program in programs.values()) or any(
        map(_has_quantized_module, models)
    )
    kind = options.output_type
    if kind.root not in EMITTERS:
        reason = f"{kind.value} has no integer operators, and {', '.join(emitter.value for emitter in EMITTERS)} have"
        from_quantize = False  # nothing to warn of: another lowering follows
    elif from_quantize or compilation.target.integer_quantized:
        chosen = _in_integers(programs, compilation, check, remark)
        if isinstance(chosen, Exported):
            return chosen
        reason = chosen
    else:
        reason = "it has the numbers of eager PyTorch; quantized='integer' may differ by a step"
    remark(f"quantized: in floating point: {reason}")
    floats = _in_floats(programs, compilation, reason if from_quantize else "")
    return replace(floats, computed=check(floats.compilation, remark))


class Lower(Protocol):
    """Lowers programs with an importer, and adds the stages to a trace; ``report`` asks for a diagnosis of failures."""

    def __call__(self, exported: Exported, importer: FxImporter, trace: Trace, *, report: bool) -> Lowered: ...


def lowered_as_chosen(
    exported: Exported, importer: FxImporter, trace: Trace, lower: Lower, *, report: bool, keep: bool
) -> tuple[Exported, Lowered]:
    """Lower programs for which ``quantized="auto"`` chose integers; in floating point if only that can be lowered.

    Returns the programs too. With ``keep``, the result is in the module of ``importer``.

    Raises:
        FxImporterError: if neither can be lowered, for the integers.
    """
    quiet = replace(trace, reporter=None, investigate=None, stages=[*trace.stages])
    try:
        compiled = lower(exported, importer.fresh(), quiet, report=False)
    except _NOT_LOWERED as error:
        reason = f"integers cannot be lowered: {' '.join(' '.join(str(error).splitlines()[:2]).split())}"
        floats = _in_floats(exported.given, exported.compilation, reason)
        quiet.stages = [*trace.stages]
        try:
            compiled = lower(floats, importer.fresh(), quiet, report=False)
        except _NOT_LOWERED:
            return exported, lower(exported, importer, trace, report=report)
        record = next(stage for stage in trace.stages if stage.name == "frontend")
        others = [text for text in record.remarks if not text.startswith(("quantized: ", "float: "))]
        record.remarks = [*others, f"quantized: in floating point: {reason}"]
        trace.programs = floats.computed
        exported = floats
    if keep:
        return exported, lower(exported, importer, trace, report=report)
    trace.stages = quiet.stages
    return exported, replace(compiled, trace=trace)


def _in_floats(programs: Programs, compilation: Compilation, reason: str) -> Exported:
    """Return checked programs in floating point, with a warning of the ``reason``, if there is one."""
    warning = f"a quantized program is lowered in floating point: {reason}. {_ACCEPT}" if reason else ""
    return Exported(programs, programs, _with_arithmetic(compilation, Quantized.FLOAT), warning=warning)


def _in_integers(programs: Programs, compilation: Compilation, check: Check, remark: Remark) -> Exported | str:
    """Return the programs in integers, or the reason why they stay in floating point."""
    if options := _naming_operators(compilation.options):
        return f"{', '.join(options)} would not apply to operators that integers replace"
    remarks: list[str] = []
    try:
        integers = _with_arithmetic(compilation, Quantized.INTEGER)
        computed = check(integers, remarks.append)
    except FxImporterError as error:
        return str(error)
    for text in remarks:
        remark(text)
    floats = [text.removeprefix("float: ") for text in remarks if text.startswith("float: ")]
    if all(computed[name] is program for name, program in programs.items()):
        return "; ".join(floats[:3]) or "no operator computes between quantized values"
    dynamic = [text.partition(" = ")[0] for text in floats if text.endswith(DYNAMIC_SIZES)]
    warning = (
        f"{len(dynamic)} operators of a quantized program are lowered in floating point, since their sizes are "
        f"dynamic: {', '.join(dynamic[:4])}{', …' if len(dynamic) > 4 else ''}. Export the program with static sizes"
    )
    return Exported(programs, computed, integers, chosen=True, warning=warning if dynamic else "")


def _with_arithmetic(compilation: Compilation, arithmetic: Quantized) -> Compilation:
    options = compilation.options
    return Compilation.of(replace(options, export=replace(options.export, quantized=arithmetic)))


def _naming_operators(options: Options) -> list[str]:
    """Return the names of the options that change how operators in floating point are lowered."""
    rules = (rule for layer in layers(options.lowering.lowerings) for rule in layer)
    namespaces = {operator.namespace for rule in rules for operator in rule.operators}
    names = {
        "decomposition_table": options.decompositions.table is not None,
        "keep": bool(options.decompositions.keep),
        "extra": bool(options.decompositions.extra),
        "backend_legal_ops": bool(options.lowering.backend_legal_ops),
        "lowerings": bool(namespaces - {INTEGER_LIBRARY}),
    }
    return [name for name, is_given in names.items() if is_given]


def _has_quantized_module(model: Any) -> bool:
    """Return whether a module contains one from `quantize`: torch.export drops the marks of inner modules."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    return any(isinstance(module, torch.fx.GraphModule) and is_from_quantize(module.graph) for module in modules)
