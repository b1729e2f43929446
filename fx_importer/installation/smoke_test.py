"""Checks that run in a separate process, since they may crash, hang or fail to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from fx_importer.api.lower import lower
from fx_importer.diagnostics.installed_packages.findings import Finding
from fx_importer.engines import engine_named
from fx_importer.errors import FxImporterError, NotInstalledError
from fx_importer.fx_graph.torch_internals import PRIVATE_NAMES, lacking
from fx_importer.mlir.bindings import (
    ir,
    load_dialects,
    new_context,
    passmanager,
    portable_artifact,
    stablehlo_version,
    torch_mlir_opt,
)
from fx_importer.output_types import OutputType
from fx_importer.pipelines import PIPELINES, Nested, Pass, Step
from fx_importer.pipelines.to_linalg import TO_LINALG
from fx_importer.process.one_shot import output_of
from fx_importer.process.worker import Note


class Trial:
    """Answers requests: ``("start",)``, ``("wheel",)``, ``("lower", output type)``, ``("run", backend)``."""

    def __init__(self, _note: Note):
        pass

    def __call__(self, request: tuple[str, ...]) -> tuple[Finding, ...]:
        match request:
            case ("start",):
                return ()
            case ("wheel",):
                return tuple(_tried(name, look) for name, look in WHEEL.items())
            case ("lower", output_type):
                return (_tried(output_type, lambda: _lowers(output_type)),)
            case ("run", backend):
                return (_tried(backend, lambda: _runs(backend)),)
        raise AssertionError(request)


def _tried(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, look())
    except NotInstalledError as error:
        return Finding(name, False, str(error), error.extra)
    except Exception as error:
        message = str(error) if isinstance(error, FxImporterError) else f"{type(error).__name__}: {error}"
        return Finding(name, False, message)


def _passes() -> str:
    """Parse every pass of the package's pipelines, with its options."""
    stages = [*(stage for pipeline in PIPELINES.values() for stage in pipeline.stages), *TO_LINALG.values()]
    passes = dict.fromkeys(text for stage in stages for step in stage.passes for text in _spelled(step))
    context, unknown = new_context(), []
    for text in passes:
        try:
            passmanager.PassManager.parse(f"builtin.module({text})", context)
        except ValueError:
            unknown.append(text)
    if unknown:
        raise LookupError(f"the wheel does not know {', '.join(unknown)}")
    return f"all {len(passes)} that the pipelines name are known"


def _spelled(step: Step) -> Iterator[str]:
    if isinstance(step, Pass):
        yield str(step)
    elif isinstance(step, Nested):
        for inner in step.passes:
            yield from (f"{step.anchor}({text})" for text in _spelled(inner))


_DOUBLED = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{ {} return %y : tensor<2xf32> }}"


def _module(text: str) -> ir.Module:
    load_dialects(context := new_context())
    return ir.Module.parse(_DOUBLED.format(text), context)


def _engine() -> str:
    from torch_mlir.execution_engine import ExecutionEngine

    text = "llvm.func @one() -> i64 { %0 = llvm.mlir.constant(1 : i64) : i64 llvm.return %0 : i64 }"
    if not ExecutionEngine(ir.Module.parse(text, new_context())).raw_lookup("one"):
        raise LookupError("it compiled a function, and cannot find it")
    return ""


def _artifact() -> str:
    portable_artifact(_module("%y = stablehlo.add %x, %x : tensor<2xf32>"))
    return f"versions {stablehlo_version('minimum')} to {stablehlo_version('current')}"


def _opt() -> str:
    command = [torch_mlir_opt(), "--version"]
    ran = output_of(command, 60)
    ran.check_returncode()
    return next((line.strip() for line in ran.stdout.splitlines() if "version" in line), "")


def _torch_internals() -> str:
    if missing := [*lacking()]:
        raise LookupError("; ".join(missing))
    return f"all {sum(len(private_name.names) for private_name in PRIVATE_NAMES)} that the package uses are there"


WHEEL: dict[str, Callable[[], str]] = {
    "passes": _passes,
    "JIT": _engine,
    "StableHLO artifacts": _artifact,
    "torch-mlir-opt": _opt,
    "private names of torch": _torch_internals,
}
"""Features of the torch-mlir wheel and of torch, each with its check."""


class _Tiny(torch.nn.Module):
    """A model with a weight, a matrix product and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).reshape(4, 3) / 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.weight)


_INPUT = (torch.arange(8.0).reshape(2, 4) / 8,)


def _lowers(output_type: str) -> str:
    lower(_Tiny(), *_INPUT, output_type=output_type)
    return ""


def _runs(backend: str) -> str:
    output_type = engine_named(backend).accepts[0]
    model = _Tiny()
    result = lower(model, *_INPUT, output_type=output_type).caller(backend=backend)(*_INPUT)
    difference = float((result - model(*_INPUT)).abs().max().detach())
    if not difference < 1e-5:
        raise ArithmeticError(f"a small program differs from eager PyTorch by {difference:.1e}")
    return f"ran a small program in {OutputType.get(output_type).value}"
