"""Verdicts about random programs, in a worker process: each is exported, lowered, run, and compared with eager."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fx_importer import CrashedError, FxImporterError, OutputType
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.driver import export_models, lower_exported
from fx_importer.diagnostics.trace import Trace
from fx_importer.importing import FxImporter
from fx_importer.options import ExportOptions, ImportOptions, Mutation, Options, Quantized
from fx_importer.results.lowered import Lowered
from fx_importer.verification import compare
from testing.fuzzing.defined import is_defined
from testing.fuzzing.draw import Settings
from testing.fuzzing.generate import program
from testing.fuzzing.interpreters import use_forks
from testing.fuzzing.overrides import overrides
from testing.fuzzing.program import Call, Program
from testing.fuzzing.quantized import compared, lost, quantized_model, values_of
from testing.fuzzing.rounding import explained_by_rounding


@dataclass(frozen=True)
class Request:
    """A program, and an output type with a backend; without one, the program is only generated."""

    seed: int
    index: int
    settings: Settings
    output_type: str = ""
    backend: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a program."""

    kind: str
    """One of `testing.fuzz.KINDS`."""
    why: str = ""


class Judge:
    """Answers requests: with the source of a program, or the verdict about it."""

    def __init__(self, note: Callable[[str], None]):
        warnings.simplefilter("ignore")
        logging.getLogger("torch").setLevel(logging.ERROR)  # which sizes torch.export specializes
        torch.set_num_threads(1)
        use_forks()
        self._note = note
        self._key: object = None
        self._subject: _Subject | None = None

    def __call__(self, request: Request) -> str | Verdict:
        subject = self._of(request)
        if not request.output_type:
            return subject.program.source()
        self._note("")
        try:
            return subject.verdict(request.output_type, request.backend, self._note)
        except _Found as found:
            return found.verdict

    def _of(self, request: Request) -> _Subject:
        """Return the program of a request, which further output types share."""
        key = request.seed, request.index, request.settings
        if self._subject is None or self._key != key:
            self._key, self._subject = key, _Subject(program(*key))
        return self._subject


class _Found(Exception):
    """The verdict is known."""

    def __init__(self, kind: str, why: str):
        self.verdict = Verdict(kind, why)
        super().__init__(why)


@dataclass(frozen=True)
class _Run:
    """Inputs, and what eager makes of them: results, inputs as they are left, and buffers."""

    sizes: Mapping[int, int]
    values: Sequence[Tensor]
    """After several calls, if the program has state."""


class _Subject:
    """One program, exported once."""

    def __init__(self, given: Program):
        self.program = given
        self._exported: Any = None
        self._quantized: torch.nn.Module | None = None
        self._callable: Any = None

    def verdict(self, output_type: str, backend: str | None, note: Callable[[str], None]) -> Verdict:
        """Return the verdict for an output type; raise `_Found` for all but agreement."""
        wanted = self.eager({})
        if self.program.quantized:
            note("quantizing")
            wanted = self.quantized(wanted)
        note("lowering")
        lowered = self.lowered(OutputType.get(output_type))
        note("running")
        kind = self.compared(lowered, backend, wanted) or "agrees"
        for sizes in self.program.other_sizes:
            try:
                run = self.eager(sizes)
                run = self.quantized(run) if self.program.quantized else run
            except _Found:
                continue
            try:
                kind = self.compared(lowered, backend, run) or kind
            except _Found as found:
                if found.verdict.kind != "refused":  # of sizes that the export excludes, which eager takes
                    raise
        return Verdict(kind)

    def eager(self, sizes: Mapping[int, int]) -> _Run:
        """Run the program in eager. It does not count where that raises, or PyTorch does not define the results."""
        try:
            return _Run(sizes, eager_values(self.program, sizes, _defined))
        except _Found:
            raise
        except Exception as error:
            raise _Found("eager raises", _line(error)) from None

    def quantized(self, floats: _Run) -> _Run:
        """Quantize the program, and run it in eager; raise `_Found` if it is far from the float model.

        It may be farther for other inputs than those that it is calibrated with.
        """
        program = self.program
        try:
            if self._quantized is None:
                self._quantized = quantized_model(program)
            values = values_of(self._quantized, program, floats.sizes)
        except FxImporterError as error:
            raise _Found("refused", f"{type(error).__name__}: {_line(error)}") from None
        except Exception as error:
            raise _Found("untyped error", _where(error)) from None
        if not floats.sizes and (why := lost(values, floats.values[: len(values)])):
            raise _Found("wrong", why)
        return _Run(floats.sizes, values)

    def lowered(self, output_type: OutputType) -> Lowered:
        """Lower the program without diagnosing failures: in two threads, if it is threaded."""
        try:
            self._callable = self._callable or self._quantized or self.program.callable()
        except Exception as error:  # torch does not trace its gradients
            raise _Found("eager raises", _line(error)) from None
        if not self.program.threaded:
            return self._lowered(output_type)
        with ThreadPoolExecutor(2) as threads:
            return [*threads.map(self._lowered, [output_type] * 2)][-1]

    def _lowered(self, output_type: OutputType) -> Lowered:
        program = self.program
        options = Options(
            output_type,
            export=ExportOptions(
                program.dynamic_shapes(is_flat=self._quantized is not None),
                quantized=Quantized.INTEGER if program.quantized else Quantized.FLOAT,
            ),
            importing=ImportOptions(mutation=Mutation.FUNCTIONAL),
        )
        try:
            compilation, exported = Compilation.of(options), self._exported
            if exported is None:
                calls = {"main": (self._callable, program.tensors(), {})}
                self._exported = exported = export_models(calls, compilation, Trace())
            changes = overrides(exported.given["main"], output_type, program.overrides)
            compilation = Compilation.of(replace(options, decompositions=changes))
            return lower_exported(exported, FxImporter(), compilation, Trace(), report=False)
        except FxImporterError as error:
            kind = "untyped error" if _is_ours(error) else "refused"
            raise _Found(kind, f"{type(error).__name__}: {_line(error)}") from None
        except Exception as error:
            raise _Found("untyped error", _where(error)) from None

    def compared(self, lowered: Lowered, backend: str | None, run: _Run) -> str:
        """Run and compare; return ``"tolerance-limited"`` if differences are explained by rounding."""
        found = self.values(lowered, backend, run)
        at = f" at the sizes {dict(run.sizes)}" if run.sizes else ""
        if len(found) != len(run.values):
            raise _Found("wrong", f"{len(found)} values, eager has {len(run.values)}{at}")
        differing = [
            (i, result)
            for i, (a, e) in enumerate(zip(found, run.values, strict=True))
            if not (result := (compared if self.program.quantized else compare)(a, e)).passed
        ]
        if not differing:
            return ""
        i, result = differing[0]
        if (
            not self.program.quantized
            and all(not each.problem for _, each in differing)
            and explained_by_rounding(found, run.values, lambda around: eager_values(self.program, run.sizes, around))
        ):
            return "tolerance-limited"
        raise _Found("wrong", f"value {i} ({result.dtype}{list(result.shape)}): {result}{at}")

    def values(self, lowered: Lowered, backend: str | None, run: _Run) -> list[Tensor]:
        """Return what a backend gives: results, inputs as they are left, and buffers."""
        program, found = self.program, list[Any]()
        try:
            caller = lowered.caller(backend=backend)
            for call in range(program.runs):
                given = program.tensors(run.sizes, call)
                found += [*_several(caller(*given)), *given]
            if program.threaded and program.runs == 1:
                found = _together(caller, program, run.sizes, found)
        except _Found:
            raise
        except CrashedError as error:
            kind = "unpredictable" if "UNPREDICTABLE" in str(error) else "stops in the backend"
            raise _Found(kind, _line(error)) from None
        except FxImporterError as error:
            kind = "stops in the backend" if " stopped: " in str(error) else "refused"  # eager did not
            raise _Found(kind, f"{type(error).__name__}: {_line(error)}") from None
        except Exception as error:
            raise _Found("untyped error", _where(error)) from None
        initial: dict[str, Tensor] = {} if program.quantized else dict(program.model().state_dict())
        found += [caller.state.get(name, initial[name]) for name in initial]
        return [each if isinstance(each, Tensor) else _rank_zero(each) for each in found]


def _several(results: Any) -> list[Any]:
    return [*results] if isinstance(results, tuple | list) else [results]


def _together(caller: Any, program: Program, sizes: Mapping[int, int], alone: Sequence[Any]) -> list[Any]:
    """Call from two threads at once; return the values of one whose results differ, or of both."""

    def values(given: tuple[Any, ...]) -> list[Any]:
        return [*_several(caller(*given)), *given]

    with ThreadPoolExecutor(2) as threads:
        for found in threads.map(values, [program.tensors(sizes) for _ in range(2)]):
            if any(not compare(a, e).passed for a, e in zip(found, alone, strict=True)):
                return found
    return [*alone]


def eager_values(given: Program, sizes: Mapping[int, int], around: Any) -> list[Tensor]:
    """Return eager's results and the inputs as they are left, of each call, and buffers after the last one."""
    model, values = given.model(around), list[Any]()
    for call in range(given.runs):
        inputs = given.tensors(sizes, call)
        with torch.set_grad_enabled(given.training):
            results = model(*inputs)
        values += [each.clone() if isinstance(each, Tensor) else each for each in (*results, *inputs)]
    values += model.state_dict().values()
    return [each.detach().clone() if isinstance(each, Tensor) else _rank_zero(each) for each in values]


def _rank_zero(number: float | int | bool) -> Tensor:
    """Return a number as a tensor: TOSA's floating-point numbers are float32."""
    return torch.tensor(number, dtype=torch.float32 if isinstance(number, float) else None)


def _defined(call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        defined = is_defined(call.target, args, kwargs)
    if not defined:
        raise _Found("undefined", call.target)
    return function(*args, **kwargs)


def _is_ours(error: FxImporterError) -> bool:
    """Return whether an error of a stage is a Python exception that a stage did not expect."""
    cause = error.__cause__ or error.__context__
    return type(error).__name__ == "StageFailed" and isinstance(
        cause, AssertionError | AttributeError | KeyError | TypeError | IndexError | ZeroDivisionError
    )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__


def _where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {_line(error)} ({frame.filename}:{frame.lineno})"
