"""Contracts: the legality of operations and types in each output type, as in MLIR's dialect conversion."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from fx_importer.diagnostics.mlir_diagnostics import emit_errors, emit_warnings
from fx_importer.mlir.bindings import ir, passmanager, stablehlo_version
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.resources import resource_of
from fx_importer.mlir.types import is_incomplete
from fx_importer.mlir.walk import operations
from fx_importer.options import Contract
from fx_importer.output_types import OutputType
from fx_importer.pipelines.stage import RewriteStep, Stage

_ALWAYS = frozenset(("builtin", "func"))


def _takes_memref(op: ir.Operation) -> bool:
    """Whether ``op`` is a function with memref arguments, which are state to overwrite."""
    arguments = op.regions[0].blocks[0].arguments if op.name == "func.func" and op.regions[0].blocks else []
    return any(isinstance(argument.type, ir.MemRefType) for argument in arguments)


@dataclass(frozen=True)
class Dialects:
    """Legal dialects and single operations of an output type, besides ``builtin`` and ``func``."""

    output_type: str
    always: frozenset[str]
    sometimes: frozenset[str] = frozenset()
    """Dialects that are also legal in a module with an operation for which ``when`` is true."""
    when: Callable[[ir.Operation], bool] = lambda op: False

    def violations(self, module: ir.Operation) -> Iterator[tuple[ir.Location, str]]:
        """Yield every illegal operation: once for each name, at its first location."""
        allowed = self.always | _ALWAYS
        illegal = _operations_outside(module, allowed)
        if illegal and self.sometimes and _any(module, self.when):
            allowed |= self.sometimes
            illegal = _operations_outside(module, allowed)
        dialects = ", ".join(sorted(allowed - {"builtin"}))
        for name, (count, location) in illegal.items():
            times = f", {count} times" if count > 1 else ""
            yield location, f"{self.output_type} may not hold '{name}'{times}: its dialects are {dialects}"


def _operations_outside(module: ir.Operation, allowed: frozenset[str]) -> dict[str, tuple[int, ir.Location]]:
    """Return the operations outside of ``allowed`` by name: the count of each, and the first location."""
    outside: dict[str, tuple[int, ir.Location]] = {}

    def see(op: ir.Operation) -> ir.WalkResult:
        name = op.name
        if name.partition(".")[0] not in allowed and name not in allowed:
            count, location = outside.get(name, (0, op.location))
            outside[name] = count + 1, location
        return ir.WalkResult.ADVANCE

    module.walk(see, ir.WalkOrder.PRE_ORDER)
    return outside


def _any(module: ir.Operation, holds: Callable[[ir.Operation], bool]) -> bool:
    matches: list[ir.Operation] = []

    def see(op: ir.Operation) -> ir.WalkResult:
        if not holds(op):
            return ir.WalkResult.ADVANCE
        matches.append(op)
        return ir.WalkResult.INTERRUPT

    module.walk(see, ir.WalkOrder.PRE_ORDER)
    return bool(matches)


@dataclass(frozen=True)
class Portable(Dialects):
    """Legal dialects, and convertibility to VHLO, StableHLO's portable artifact, of the release ``version``."""

    version: str = "week-12"

    def violations(self, module: ir.Operation) -> Iterator[tuple[ir.Location, str]]:
        """Yield every operation of another dialect; if there is none, what cannot be converted to ``version``."""
        foreign = list(super().violations(module))
        yield from foreign
        if foreign:
            return
        release = stablehlo_version(self.version)
        legalize = f"builtin.module(stablehlo-legalize-to-vhlo,vhlo-to-version{{target={release}}})"
        copy = copy_module(module)
        try:
            passmanager.PassManager.parse(legalize, module.context).run(_with_zero_weights(copy.operation))
        except ir.MLIRError as error:
            for diagnostic in error.error_diagnostics:
                reason = diagnostic.message.partition(': "')[0]  # the operation follows
                yield diagnostic.location, f"{self.output_type} {release} cannot hold it: {reason}"


def _with_zero_weights(module: ir.Operation) -> ir.Operation:
    """Replace the weights of ``module`` by zeros: an artifact has no ``dense_resource``."""
    for op in operations(module, ("stablehlo.constant",)):
        if resource_of(op) is None:
            continue
        replace(op, StablehloOps.before(op).zeros(op.results[0].type))
    return module


@dataclass(frozen=True)
class KnownTypes:
    """Complete types in the torch dialect: each tensor has a rank and a dtype, and no value is ``!torch.any``."""

    output_type: str

    def violations(self, module: ir.Operation) -> Iterator[tuple[ir.Location, str]]:
        """Yield each operation with a result of an incomplete type: once for each name and type."""
        known: dict[ir.Type, bool] = {}
        kinds: dict[tuple[str, str], ir.Location] = {}

        def see(op: ir.Operation) -> ir.WalkResult:
            for value in op.results:
                if value.type not in known:
                    known[value.type] = not is_incomplete(value.type)
                if not known[value.type]:
                    kinds.setdefault((op.name, str(value.type)), op.location)
            return ir.WalkResult.ADVANCE

        module.walk(see, ir.WalkOrder.PRE_ORDER)
        for (name, kind), location in kinds.items():
            yield location, f"{self.output_type} may not leave a type unknown: '{name}' returns {kind}"


ContractRules = Dialects | KnownTypes
"""The rules of a contract. ``violations(module)`` yields the location and a sentence for each violation; it does not
change the module."""

TORCH = KnownTypes(OutputType.TORCH.value)
LINALG = Dialects(
    OutputType.LINALG_ON_TENSORS.value,
    frozenset(("linalg", "tensor", "arith", "math", "complex", "affine", "scf", "cf", "ml_program")),
    sometimes=frozenset(("bufferization", "memref")),
    when=_takes_memref,
)
TOSA = Dialects(OutputType.TOSA.value, frozenset(("tosa",)))
STABLEHLO = Portable(OutputType.STABLEHLO.value, frozenset(("stablehlo",)))


def _check(rules: ContractRules, module: ir.Operation) -> None:
    """Report every violation as an error."""
    emit_errors(rules.violations(module))


def _warn(rules: ContractRules, module: ir.Operation) -> None:
    """Report every violation as a warning, with the source line of the user."""
    emit_warnings(rules.violations(module))


_POLICIES = {Contract.ERROR: ("check", _check), Contract.WARN: ("warn-of", _warn)}
CHECKS = {
    (rules, policy): RewriteStep(f"fx-importer-{verb}-{rules.output_type}-contract", partial(run, rules))
    for rules in (TORCH, LINALG, TOSA, STABLEHLO)
    for policy, (verb, run) in _POLICIES.items()
}
CONTRACT = "contract"
"""The name of the stage that checks the contract."""


def contract(rules: ContractRules, policy: Contract) -> Stage:
    """Return the stage that checks that a module complies with ``rules``. It does not change the module."""
    step = CHECKS.get((rules, policy))
    if step is None:
        assert isinstance(rules, Dialects)  # of a user-defined output type
        step = user_contract_check(rules, policy)
    return Stage(CONTRACT, "Every op is legal for the output type.", (step,))


@cache
def user_contract_check(rules: Dialects, policy: Contract) -> RewriteStep:
    """Return the step that checks the contract of a user-defined output type. Its text lists the legal dialects."""
    verb, run = _POLICIES[policy]
    text = f"fx-importer-{verb}-{rules.output_type}-contract{{{','.join(sorted(rules.always))}}}"
    return RewriteStep(text, partial(run, rules))


def parse_user_contract_check(text: str) -> RewriteStep | None:
    """Return the step of `user_contract_check` whose text is ``text``; None if it is another step."""
    if not (parsed := _USER_CHECK.fullmatch(text)):
        return None
    policy = next(policy for policy, (verb, _) in _POLICIES.items() if verb == parsed[1])
    return user_contract_check(Dialects(parsed[2], frozenset(part.strip() for part in parsed[3].split(","))), policy)


_USER_CHECK = re.compile(r"fx-importer-(check|warn-of)-([\w-]+)-contract\{(.*)\}")
