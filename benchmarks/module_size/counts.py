"""Counts of a module's operations, of any bindings of MLIR: ours, those of `torch_mlir.fx`, those of jax."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_STRUCTURE = frozenset(
    (
        *("builtin.module", "func.func", "func.return", "func.call", "linalg.yield", "scf.yield", "tensor.yield"),
        *("tosa.yield", "stablehlo.return", "scf.condition", "ml_program.global"),
    )
)
"""Operations that hold or end others."""
_CONSTANTS = frozenset(("arith.constant", "tosa.const", "tosa.const_shape", "stablehlo.constant"))
_INITIAL = frozenset(("tensor.empty", "linalg.fill", "linalg.index"))
"""Operations that linalg needs for each result or loop: they have no data as operands."""
_CASTS = frozenset(
    (
        *("tosa.cast", "stablehlo.convert", "tensor.cast", "tensor.bitcast", "arith.index_cast", "arith.bitcast"),
        *("arith.extf", "arith.extsi", "arith.extui", "arith.truncf", "arith.trunci"),
        *("arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"),
    )
)
_MOVES = frozenset(
    (
        *("tosa.transpose", "tosa.reshape", "stablehlo.transpose", "stablehlo.reshape", "linalg.transpose"),
        *("tensor.expand_shape", "tensor.collapse_shape", "tensor.reshape", "linalg.transpose"),
    )
)
_BITS = {"i1": 8, "index": 64, "bf16": 16, "f16": 16, "f32": 32, "f64": 64}


@dataclass(frozen=True)
class Counts:
    """What is in a module, without functions, calls and terminators."""

    operations: int
    """All operations, constants and bodies of structured operations among them."""
    undecided: int
    """Operations that depend on no input: not constants, nor what linalg needs to initialize results."""
    casts: int
    moves: int
    """Transposes and reshapes."""
    constant_bytes: int
    """Of different constants; a splat has one element."""


def count(module: Any) -> Counts:
    """Return the counts of ``module``."""
    names = names_of(module)
    return Counts(
        operations=names.total(),
        undecided=undecided(module).total(),
        casts=sum(names[name] for name in _CASTS),
        moves=sum(names[name] for name in _MOVES) + sum(map(_is_transpose, operations(module))),
        constant_bytes=sum(dict(map(_constant, operations(module))).values()),
    )


def operations(module: Any) -> Iterator[Any]:
    """Yield the operations of ``module`` in order, without functions, calls and terminators."""
    for region in module.operation.regions:
        for block in region.blocks:
            for op in block.operations:
                if op.operation.name not in _STRUCTURE:
                    yield op.operation
                yield from operations(op)


def names_of(module: Any) -> Counter[str]:
    """Return how many operations of each name ``module`` has."""
    return Counter(op.name for op in operations(module))


def undecided(module: Any) -> Counter[str]:
    """Return the names of the operations that no input decides, each once for each operation."""
    decided: dict[Any, bool] = {}
    found: Counter[str] = Counter()

    def visit(op: Any) -> None:
        is_decided = op.name == "func.call" or any(decided.get(value, False) for value in _read(op))
        is_decided |= op.name == "linalg.index"
        if not is_decided and op.name not in (*_STRUCTURE, *_CONSTANTS, *_INITIAL):
            found[op.name] += 1
        decided.update((result, is_decided) for result in op.results)
        for region in op.regions:
            for block in region.blocks:
                # The body of an operation that is counted already is not counted again.
                decided.update((argument, True) for argument in block.arguments)
                for inner in block.operations:
                    visit(inner.operation)

    visit(module.operation)
    return found


def _read(op: Any) -> Iterator[Any]:
    """Yield the operands of ``op`` and of the operations in its regions."""
    yield from op.operands
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _read(inner.operation)


def _is_transpose(op: Any) -> bool:
    """Return whether ``op`` is a ``linalg.generic`` that only returns its operand with the axes in another order."""
    if op.name != "linalg.generic" or len(list(op.regions[0].blocks[0].operations)) > 1:
        return False
    maps = re.findall(r"affine_map<\((.*?)\) -> \((.*?)\)>", str(op.attributes["indexing_maps"]))
    return len(maps) == 2 and maps[0] != maps[1] and sorted(maps[0][1].split(", ")) == sorted(maps[1][1].split(", "))


def _constant(op: Any) -> tuple[Any, int]:
    """Return what identifies the constant that ``op`` is, and its size in bytes; 0 for other operations."""
    if op.name not in _CONSTANTS:
        return None, 0
    value = op.attributes["values" if op.name.startswith("tosa.") else "value"]
    type_ = op.results[0].type
    shape = list(type_.shape) if hasattr(type_, "shape") else []
    text = str(type_.element_type if hasattr(type_, "element_type") else type_)
    if op.name == "tosa.const_shape":
        return value, 8 * len(value)
    bits = _BITS.get(text) or int(re.sub(r"\D", "", text.partition("E")[0]) or 64)
    elements = 1 if getattr(value, "is_splat", False) else math.prod(shape)
    return value, elements * bits // 8
