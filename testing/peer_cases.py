"""One sample of an operator, or a model, lowered by us or by `torch_mlir.fx`: answers of a worker process."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer import CrashedError, FxImporterError, UsageError
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.driver import export_models, lower_exported
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines import backend_named, default_engine
from fx_importer.importing import FxImporter
from fx_importer.options import ImportOptions, Mutation, Options
from fx_importer.output_types import OutputType
from testing.families import FAMILIES
from testing.gradient_cases import ExportedGradients
from testing.op_cases import Exported, ExportedDynamic, Outcome, Unique, differences, distinct_calls, operators

KINDS: dict[str, type[Exported]] = {"static": Exported, "dynamic": ExportedDynamic, "gradients": ExportedGradients}


@dataclass(frozen=True)
class Request:
    """A cell: a sample of an operator, or a model of `testing.families`, and an output type."""

    kind: str
    """A key of `KINDS`, or ``families``."""
    name: str
    dtype: str
    samples: int
    sample: int
    output_type: str
    peer: bool
    run: bool
    """Whether a program that is lowered is run too, and compared with eager."""


@dataclass(frozen=True)
class Subject:
    """An exported program, and what eager gives for its inputs."""

    program: ExportedProgram
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: Any
    unique: Unique

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the inputs, in order."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return tuple(each.clone() for each in leaves if isinstance(each, Tensor))

    def compared(self, results: Any) -> Outcome:
        """Compare results with eager's; the peer's are a flat tuple."""
        leaves, spec = pytree.tree_leaves(results), pytree.tree_structure(self.expected)
        if len(leaves) != spec.num_leaves:
            return Outcome("mismatch", f"{len(leaves)} results where {spec.num_leaves} are expected")
        found, tensors = pytree.tree_unflatten(leaves, spec), self.tensors()
        different = differences(self.unique(found, tensors), self.unique(self.expected, tensors))
        return Outcome("mismatch", different) if different else Outcome("pass")


class Cells:
    """Answers requests with the outcome of a cell; None where there are no more samples."""

    def __init__(self, note: Callable[[str], None]):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        self._note = note
        self._key: object = None
        self._subjects: list[Subject | Outcome] = []

    def __call__(self, request: Request) -> Outcome | None:
        self._note("export")
        key = request.kind, request.name, request.dtype, request.samples
        if key != self._key:
            self._subjects, self._key = _subjects(*key), key
        if request.sample >= len(self._subjects):
            return None
        subject = self._subjects[request.sample]
        if isinstance(subject, Outcome):
            return subject
        self._note("lower")
        try:
            load = (_by_peer if request.peer else _by_us)(subject, OutputType.get(request.output_type))
        except Exception as error:
            return Outcome("lower", f"{type(error).__name__}: {_line(error)}")
        if not request.run:
            return Outcome("pass", "not run")
        self._note("run")
        try:
            return subject.compared(load())
        except CrashedError as error:
            return Outcome("run", _line(error))
        except UsageError as error:
            return Outcome("invalid" if request.peer and request.output_type == "tosa" else "run", _line(error))
        except Exception as error:
            return Outcome("run", f"{type(error).__name__}: {_line(error)}")


def _subjects(kind: str, name: str, dtype: str, samples: int) -> list[Subject | Outcome]:
    if kind == "families":
        return [_model(name)]
    if getattr(torch, dtype) not in operators()[name].dtypes:
        return []
    made = type(kind, (KINDS[kind],), {"pick": staticmethod(distinct_calls)})
    exported = made(name, getattr(torch, dtype), samples)
    if exported.outcome:
        return [exported.outcome]
    return [
        Subject(program, inputs, {}, expected, call.unique) for _, call, program, inputs, expected in exported.ready
    ]


def _model(name: str) -> Subject | Outcome:
    with torch.no_grad():
        model, args, kwargs = FAMILIES[name].build()
        try:
            program = torch.export.export(model, args, kwargs)
        except Exception as error:
            return Outcome("export", _line(error))
        args, kwargs = _copied(args), _copied(kwargs)
        return Subject(program, args, kwargs, model(*_copied(args), **_copied(kwargs)), lambda results, _: results)


def _by_us(subject: Subject, output_type: OutputType) -> Callable[[], Any]:
    """Lower without a report of what fails."""
    compilation = Compilation.of(Options(output_type, importing=ImportOptions(mutation=Mutation.FUNCTIONAL)))
    exported = export_models({"main": (subject.program, (), {})}, compilation, Trace())
    lowered = lower_exported(exported, FxImporter(), compilation, Trace(), report=False)
    return partial(lowered.run, *_copied(subject.args), **_copied(subject.kwargs))


def _by_peer(subject: Subject, output_type: OutputType) -> Callable[[], Any]:
    from torch_mlir import fx

    module = fx.export_and_import(subject.program, output_type=output_type.value)
    engine = default_engine(output_type)
    assert engine is not None
    backend = backend_named(engine.name)
    return lambda: backend.load(module)(*subject.tensors())


def _copied(inputs: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda each: each.clone(), inputs)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] if isinstance(error, FxImporterError) else str(error).strip()[:400]
