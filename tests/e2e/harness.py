"""Programs as rows of a table: each is lowered to every form, and run on the JIT beside eager PyTorch.

A table is a decorator on a test that calls `check`:

    @table(Case("relu", lambda: (torch.relu, (normal(2, 3),))))
    def test_elementwise(case, output_type):
        check(case, output_type)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer import OutputType, StageFailed, UsageError, lower
from fx_importer.mlir.bindings import ir, passmanager
from fx_importer.mlir.module_contents import copy_module
from fx_importer.results.lowered import Lowered

LINALG, TORCH, TOSA, STABLEHLO = (
    OutputType.LINALG_ON_TENSORS,
    OutputType.TORCH,
    OutputType.TOSA,
    OutputType.STABLEHLO,
)
DIALECTS = {
    LINALG: {"builtin", "func", "linalg", "tensor", "arith", "math", "affine", "scf", "cf", "complex", "ml_program"},
    TORCH: {"builtin", "func", "torch"},
    TOSA: {"builtin", "func", "tosa"},
    STABLEHLO: {"builtin", "func", "stablehlo"},
}
"""Dialects that a module may contain."""


@dataclass(frozen=True, eq=False)
class Case:
    """One row: a program, and its expected behavior."""

    name: str
    build: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    """Returns the model or function, and inputs. Called with the random seed at 0."""
    dynamic_shapes: Any = None
    others: Callable[[], Sequence[tuple[Any, ...]]] = tuple
    """Returns more inputs, of other sizes, for the same compiled program."""
    tolerance: tuple[float, float] | None = None
    """``(relative, absolute)``; None is what `torch.testing.assert_close` takes for the dtype. Integers are exact."""
    fails: Mapping[OutputType, str] = field(default_factory=dict)
    """Output types that the program does not lower to, with the operation that the error names."""
    differs: str = ""
    """Why the linalg module deviates from eager, if it does: an error of a C++ pass."""


def table(*cases: Case) -> pytest.MarkDecorator:
    """Return the parametrization of a test over ``case`` and ``output_type``.

    Of programs of static sizes, TOSA and StableHLO, which are not run here, have turns: the other is slow.
    """
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "two rows have the same name"
    return pytest.mark.parametrize(
        "case, output_type",
        [
            pytest.param(
                case, output_type, id=f"{case.name}-{output_type.value}", marks=_marks(case, output_type, turn)
            )
            for case, turn in zip(cases, itertools.cycle((TOSA, STABLEHLO)))
            for output_type in (LINALG, TORCH, TOSA, STABLEHLO)
        ],
    )


def _marks(case: Case, output_type: OutputType, turn: OutputType) -> list[pytest.MarkDecorator]:
    if operation := case.fails.get(output_type):
        return [
            pytest.mark.xfail(raises=StageFailed, strict=True, reason=f"{operation} does not lower to {output_type}")
        ]
    if case.differs and output_type is LINALG:
        return [pytest.mark.xfail(raises=(AssertionError, UsageError), strict=True, reason=case.differs)]
    # The other output types lower through the torch dialect.
    waits = output_type is not turn and output_type is not LINALG and not case.dynamic_shapes
    return [pytest.mark.slow] if output_type is TORCH or waits else []


def check(case: Case, output_type: OutputType, *, tosa: bool = False) -> None:
    """Lower a row, run it, and compare with eager: in linalg, twice and on its other inputs. Of dynamic sizes in
    StableHLO too, and with ``tosa`` in TOSA, on the other inputs: these engines compile it again for each size.
    """
    torch.manual_seed(0)
    model, inputs = case.build()
    if isinstance(model, torch.nn.Module):
        model.eval()
    try:
        lowered = _lowered(case, model, inputs, output_type)
    except StageFailed as error:
        if (named := case.fails.get(output_type, "").removeprefix("torch.")) not in str(error):
            pytest.fail(f"expected '{named}' to be named in: {error}")
        raise
    illegal = dialects_of(lowered.module) - DIALECTS[output_type]
    assert not illegal, f"a module for {output_type.value} holds {illegal}"
    if output_type is LINALG:
        assert_loops_bufferize(lowered.module)
    dynamic = (STABLEHLO, TOSA) if tosa else (STABLEHLO,)
    if output_type is not LINALG and not (output_type in dynamic and case.dynamic_shapes):
        return
    for given in (inputs, *case.others(), inputs) if output_type is LINALG else case.others():
        before = pytree.tree_map_only(torch.Tensor, torch.clone, given)
        with torch.no_grad():
            expected = model(*before)
        assert_same(lowered.run(*given), expected, case.tolerance)
        assert_same(given, before, (0, 0))


_exported: dict[Case, ExportedProgram] = {}
"""The last case, exported: the rows of a case follow each other."""


def _lowered(case: Case, model: Callable[..., Any], inputs: tuple[Any, ...], output_type: OutputType) -> Lowered:
    """Lower a row, from the exported program of the row before where that has no state which eager may have changed."""
    if (program := _exported.get(case)) is not None:
        return lower(program, output_type=output_type)
    _exported.clear()
    lowered = lower(model, *inputs, output_type=output_type, dynamic_shapes=case.dynamic_shapes)
    (program,) = lowered.exported.values()
    if not program.graph_signature.buffers_to_mutate:
        _exported[case] = program
    return lowered


def dialects_of(module: ir.Module) -> set[str]:
    found: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.add(op.name.partition(".")[0])
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def assert_loops_bufferize(module: ir.Module) -> None:
    """Check that one-shot bufferization with default options takes loops, also after the usual passes before it."""
    if "scf" not in dialects_of(module):
        return
    fused = (
        "func.func(canonicalize,cse),linalg-fuse-elementwise-ops,func.func(linalg-generalize-named-ops,canonicalize),"
    )
    for before in ("", fused):
        copy = copy_module(module.operation).operation
        with copy.context:
            text = f"builtin.module({before}one-shot-bufferize{{bufferize-function-boundaries}})"
            passmanager.PassManager.parse(text).run(copy)


def assert_same(actual: Any, expected: Any, tolerance: tuple[float, float] | None) -> None:
    """Compare nested values: structure, types, dtypes, shapes and numbers. NaN equals NaN."""
    leaves, structure = pytree.tree_flatten(actual)
    expected_leaves, expected_structure = pytree.tree_flatten(expected)
    assert structure == expected_structure, f"{structure} is not {expected_structure}"
    for leaf, expected_leaf in zip(leaves, expected_leaves, strict=True):
        if isinstance(expected_leaf, torch.Tensor):
            floats = expected_leaf.is_floating_point() or expected_leaf.is_complex()
            rtol, atol = tolerance if tolerance and floats else (None, None)
            torch.testing.assert_close(leaf, expected_leaf, rtol=rtol, atol=atol, equal_nan=True)
        else:
            same = type(leaf) is type(expected_leaf) and leaf == expected_leaf
            assert same, f"{leaf!r} is not {expected_leaf!r}"


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> torch.Tensor:
    """Return the same standard normal numbers whenever it is called."""
    real = torch.float64 if not dtype.is_complex else torch.complex128
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=real).to(dtype)


def integers(*shape: int, low: int, high: int, dtype: torch.dtype = torch.int64, seed: int = 1) -> torch.Tensor:
    """Return the same integers of ``[low, high)`` whenever it is called."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
