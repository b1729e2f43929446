"""The contract of TOSA: legal dialects, and TOSA's own validator for a target."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fx_importer.diagnostics.mlir_diagnostics import deduplicated, emit_errors, emit_warnings
from fx_importer.mlir.bindings import ir, passmanager
from fx_importer.mlir.emit.emitter import producer
from fx_importer.options import Contract, TosaTarget
from fx_importer.pipelines.contracts import TOSA, contract
from fx_importer.pipelines.stage import Pass, RewriteStep, Stage

_TARGET = "tosa.target_env"
_VALIDATE = "builtin.module(tosa-validate{strict-op-spec-alignment=true})"
_ADVICE = " Otherwise, please refer"
_DYNAMIC = ("contains inferable dimension (-1)", "shape dimension cannot be dynamic", "requires any of [shape]")
"""In messages about dynamic sizes, -1 or computed, which are constants in a static copy."""


def check_validity(module: ir.Operation) -> None:
    """Report the errors of the validator, each sentence once, and remove the target from the module."""
    emit_errors(_violations(module))


def warn_of_invalidity(module: ir.Operation) -> None:
    """Report the errors of the validator as warnings, each once, and remove the target from the module."""
    emit_warnings(_violations(module))


def _violations(module: ir.Operation) -> Iterator[tuple[ir.Location, str]]:
    """Yield what is invalid for the target attached to ``module``, and remove it: consumers may not know it."""
    version = str(module.attributes[_TARGET]).partition('specification_version = "')[2].partition('"')[0]
    whole = module.clone()  # shares the weights
    del module.attributes[_TARGET]
    if not _validator_errors(_without_duplicates(whole.clone())):
        return
    sentences = [
        (error.location, f"not valid TOSA {version}: {error.message.partition(_ADVICE)[0]}{_torch_dtypes(error)}")
        for error in _validator_errors(whole)
        if not any(text in error.message for text in _DYNAMIC)
    ]
    yield from deduplicated(sentences)


def _validator_errors(module: ir.Operation) -> Sequence[ir.DiagnosticInfo]:
    """Return the errors of the validator for ``module``."""
    passes = passmanager.PassManager.parse(_VALIDATE, module.context)
    passes.enable_verifier(False)
    try:
        passes.run(module)
    except ir.MLIRError as error:
        return error.error_diagnostics
    return ()


def _without_duplicates(module: ir.Operation) -> ir.Operation:
    """Keep one of the operations that are equal to the validator, which takes 170 µs for each.

    It depends on the operation, the types of operands and results, and the values of constant operands.
    """
    for function in module.regions[0].blocks[0].operations:
        first: dict[tuple[object, ...], ir.Operation] = {}
        for view in list(function.regions[0].blocks[0].operations) if function.regions[0].blocks else ():
            op = view.operation
            if op.name in _CONSTANTS or len(op.regions) or not len(op.results):
                continue
            operands = (_constant(operand) or operand.type for operand in op.operands)
            kept = first.setdefault((op.name, *operands, *op.results.types, *op.attributes.items()), op)
            if kept is not op:
                for old, new in zip(op.results, kept.results, strict=True):
                    old.replace_all_uses_with(new)
                op.erase()
    return module


def _constant(value: ir.Value) -> ir.Attribute | None:
    return value.owner.attributes["values"] if producer(value) in _CONSTANTS else None


_CONSTANTS = ("tosa.const", "tosa.const_shape")


def _torch_dtypes(error: ir.DiagnosticInfo) -> str:
    """Return the torch dtypes of the tensors of an operation, if the message is about types or profiles."""
    if "type" not in error.message and "profiles" not in error.message:
        return ""
    operation = " ".join(note.message.rpartition(" : ")[2] for note in error.notes)
    names = dict.fromkeys(_DTYPES[dtype] for dtype in _ELEMENT.findall(operation) if dtype in _DTYPES)
    advice = "; narrow_floats=True takes and returns float32 for it" if "torch.float64" in names else ""
    return f" (on tensors of {', '.join(names)}{advice})" if names else ""


_ELEMENT = re.compile(r"tensor<(?:[\d?]+x)*(\w+)>")
_DTYPES = {
    **{f"f{bits}": f"torch.float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"torch.int{bits}" for bits in (8, 16, 32, 64)},
    **{f"f8{name.upper()}": f"torch.float8_{name}" for name in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz", "e8m0fnu")},
    "i1": "torch.bool",
    "bf16": "torch.bfloat16",
}


CHECK = RewriteStep("fx-importer-check-tosa-target", check_validity)
WARN = RewriteStep("fx-importer-warn-of-tosa-target", warn_of_invalidity)


def tosa_contract(target: TosaTarget, policy: Contract) -> Stage:
    """Return the stage that checks that a module is TOSA, valid for ``target``. It does not change the module."""
    dialects = contract(TOSA, policy)
    attach = Pass(
        "tosa-attach-target",
        {
            "specification_version": target.version,
            "level": target.level,
            "profiles": target.profiles,
            "extensions": target.extensions,
        },
    )
    validate = CHECK if policy is Contract.ERROR else WARN
    return Stage(dialects.name, dialects.description, (*dialects.passes, attach, validate))
