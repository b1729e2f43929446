"""What a module of an output type may hold, and the check that it holds nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fx_importer.bindings import ir
from fx_importer.diagnostics import read_location, user_frame
from fx_importer.errors import ContractWarning
from fx_importer.options import Contract
from fx_importer.output_types import OutputType
from fx_importer.pipelines.pipeline import RewriteStep, Stage

_ALWAYS = frozenset(("builtin", "func"))


def _is_dynamic(op: ir.Operation) -> bool:
    """Whether ``op`` has a tensor of dynamic size, as a result or an argument of a region."""
    values = [*op.results, *(argument for region in op.regions for block in region for argument in block.arguments)]
    return any(isinstance(v.type, ir.RankedTensorType) and not v.type.has_static_shape for v in values)


def _has_dynamic_sizes_or_numbers(op: ir.Operation) -> bool:
    """Whether ``op`` has a tensor of dynamic size, or is a function that takes or returns a number."""
    if op.name != "func.func":
        return _is_dynamic(op)
    signature = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
    types = [*signature.inputs, *signature.results]
    return _is_dynamic(op) or not all(isinstance(each, ir.RankedTensorType) for each in types)


def _has_state(op: ir.Operation) -> bool:
    """Whether ``op`` is a function that takes memory to overwrite."""
    arguments = op.regions[0].blocks[0].arguments if op.name == "func.func" and op.regions[0].blocks else []
    return any(isinstance(argument.type, ir.MemRefType) for argument in arguments)


@dataclass(frozen=True)
class Dialects:
    """The dialects that an output type may hold, beside ``builtin`` and ``func``."""

    output_type: OutputType
    always: frozenset[str]
    sometimes: frozenset[str] = frozenset()
    """More, in a module that holds an operation of which ``when`` is true."""
    when: Callable[[ir.Operation], bool] = lambda op: False

    def check(self, module: ir.Operation) -> None:
        """Report every operation that may not be there as an error: once for each name, where it comes first."""
        for location, sentence in self._violations(module):
            location.emit_error(sentence)

    def warn(self, module: ir.Operation) -> None:
        """Warn of the same, with the user's line."""
        for location, sentence in self._violations(module):
            frame = user_frame(read_location(location)[0])
            warnings.warn(sentence + (f" (at {frame[0]}:{frame[1]})" if frame else ""), ContractWarning, stacklevel=2)

    def _violations(self, module: ir.Operation) -> Iterator[tuple[ir.Location, str]]:
        allowed = self.always | _ALWAYS
        found = _foreign(module, allowed)
        if found and self.sometimes and _any(module, self.when):
            allowed |= self.sometimes
            found = _foreign(module, allowed)
        said = ", ".join(sorted(allowed - {"builtin"}))
        for name, (count, location) in found.items():
            times = f", {count} times" if count > 1 else ""
            yield location, f"{self.output_type.value} may not hold '{name}'{times}: its dialects are {said}"


def _foreign(module: ir.Operation, allowed: frozenset[str]) -> dict[str, tuple[int, ir.Location]]:
    """Return the names of the operations of other dialects: how often each is there, and where first."""
    found: dict[str, tuple[int, ir.Location]] = {}

    def see(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name.partition(".")[0] not in allowed:
            count, location = found.get(name, (0, op.location))
            found[name] = count + 1, location
        return ir.WalkResult.ADVANCE

    module.walk(see, ir.WalkOrder.PRE_ORDER)
    return found


def _any(module: ir.Operation, holds: Callable[[ir.Operation], bool]) -> bool:
    found: list[ir.Operation] = []

    def see(op: ir.Operation) -> ir.WalkResult:
        if not holds(op):
            return ir.WalkResult.ADVANCE
        found.append(op)
        return ir.WalkResult.INTERRUPT

    module.walk(see, ir.WalkOrder.PRE_ORDER)
    return bool(found)


LINALG = Dialects(
    OutputType.LINALG_ON_TENSORS,
    frozenset(("linalg", "tensor", "arith", "math", "complex", "affine", "scf", "cf", "ml_program")),
    sometimes=frozenset(("bufferization", "memref")),
    when=_has_state,
)
TOSA = Dialects(OutputType.TOSA, frozenset(("tosa",)))
STABLEHLO = Dialects(
    OutputType.STABLEHLO,
    frozenset(("stablehlo",)),
    sometimes=frozenset(("tensor", "arith", "shape")),  # which compute sizes, and take numbers out of tensors
    when=_has_dynamic_sizes_or_numbers,
)

CONTRACTS = {dialects.output_type: dialects for dialects in (LINALG, TOSA, STABLEHLO)}
CHECKS = {
    (kind, policy): RewriteStep(f"fx-importer-{verb}-{kind.value}-contract", run)
    for kind, dialects in CONTRACTS.items()
    for policy, verb, run in ((Contract.ERROR, "check", dialects.check), (Contract.WARN, "warn-of", dialects.warn))
}


def contract(output_type: OutputType, policy: Contract) -> Stage:
    """Return the stage that checks the contract of ``output_type``. It changes nothing."""
    return Stage("contract", "Nothing is left that the output type may not hold.", (CHECKS[output_type, policy],))
