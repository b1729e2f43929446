"""Compare random programs with eager PyTorch, on every output type.

    python -m testing.fuzz --target linalg --programs 2000
    python -m testing.fuzz --target linalg tosa stablehlo --programs 500 --seed 7 --dynamic
    python -m testing.fuzz --target tosa --seed 7 --index 123              # one program, with its source
    python -m testing.fuzz --target tosa --seed 7 --index 123 --reduce DIR # and the smallest part that fails too

A program has one to eight operators, and is the same whenever seed, index and options are. Programs run in a worker
process with a time limit: a native death is a verdict. `--json` keeps a line for each program that does not agree,
with its source as a Python module; a run continues behind the last line of its file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.process.worker import Child, RestartingWorker

if TYPE_CHECKING:
    from testing.fuzzing.draw import Settings
    from testing.fuzzing.judge import Verdict

TARGETS = {"linalg": "linalg-on-tensors", "stablehlo": "stablehlo", "tosa": "tosa"}
KINDS = {
    "agrees": "all results, written inputs and buffers are eager's",
    "tolerance-limited": "differences that eager shows too if it rounds otherwise",
    "refused": "an error of the package: not lowered",
    "eager raises": "not counted",
    "undefined": "not counted: PyTorch does not define the result",
    "unpredictable": "integers overflow, for which TOSA does not define a result; torch wraps them around",
    "wrong": "other results than eager's",
    "native death": "the process that lowers or runs it ends by a signal",
    "stops in the backend": "the process of a reference backend ends, or a check that the program makes fails",
    "time limit": "it does not end",
    "untyped error": "an exception that is none of the package's",
}
"""Verdicts, and what they mean."""
FAILURES = ("wrong", "native death", "stops in the backend", "time limit", "untyped error")
"""Verdicts that are bugs."""


LIMITS = Limits(60.0, 6 * 2**30)


@dataclass(frozen=True)
class Row:
    """The verdict about one program on one target."""

    seed: int
    index: int
    target: str
    kind: str
    why: str = ""
    source: str = ""


@dataclass(frozen=True)
class Fuzzer:
    """Asks a worker for verdicts; copies with other settings share it."""

    settings: Settings
    seed: int
    limits: Limits = LIMITS
    """For one program on one target."""
    backend: str | None = None
    worker: RestartingWorker[Child] = field(
        default_factory=lambda: RestartingWorker(lambda: Child("testing.fuzzing.judge:Judge"))
    )

    def rows(self, targets: Sequence[str], indices: Iterable[int]) -> Iterator[Row]:
        """Yield the verdict about each program on each target."""
        for index in indices:
            for target in targets:
                yield self.row(target, index)

    def row(self, target: str, index: int) -> Row:
        """Return the verdict about one program, with its source if it does not agree."""
        from testing.fuzzing.judge import Request

        request = Request(self.seed, index, self.settings, TARGETS[target], self.backend)
        child = self.worker.running()
        try:
            verdict: Verdict = child.ask("the program", request, self.limits)
        except CrashedError as error:
            kind = "time limit" if error.limit else "native death"
            return Row(self.seed, index, target, kind, f"{child.noted}: {error}", self.source(index))
        source = "" if verdict.kind == "agrees" else self.source(index)
        return Row(self.seed, index, target, verdict.kind, verdict.why, source)

    def source(self, index: int) -> str:
        """Return a program as a Python module."""
        from testing.fuzzing.judge import Request

        request = Request(self.seed, index, self.settings)
        return self.worker.running().ask("the generator", request, self.limits)


def summary(rows: Iterable[Row]) -> str:
    """Return a table of the number of programs by verdict and target."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row.target, Counter())[row.kind] += 1
    lines = [f"{'':22}" + "".join(f"{target:>12}" for target in counts)]
    for kind in KINDS:
        if any(found[kind] for found in counts.values()):
            lines.append(f"{kind:22}" + "".join(f"{found[kind]:12}" for found in counts.values()))
    return "\n".join(lines)


def reduced(row: Row, output: Path, backend: str | None) -> int:
    """Reduce a program that fails with ``fx-importer reduce``; return the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "random_program.py").write_text(row.source, encoding="utf-8")
        command = [sys.executable, "-m", "fx_importer", "reduce", "random_program:build", "-o", str(output.absolute())]
        command += ["--output-type", TARGETS[row.target], "--mutation", "functional"]
        if row.kind == "wrong":
            from fx_importer.engines import default_engine

            default = default_engine(OutputType.get(TARGETS[row.target]))
            command += ["--backend", backend or ("" if default is None else default.name)]
        path = os.pathsep.join([directory, *filter(None, sys.path)])
        return subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": path}).returncode


def main() -> int:
    arguments = _parser().parse_args()
    from testing.fuzzing.draw import DTYPES, NARROW, Settings

    dtypes = ("f32",) if arguments.quantized else NARROW if "tosa" in arguments.target else DTYPES
    settings = Settings(
        tuple(arguments.dtypes or dtypes),
        arguments.dynamic,
        arguments.mutation,
        arguments.training,
        arguments.quantized,
        special=not (arguments.training or arguments.quantized),
        most_calls=arguments.calls,
    )
    fuzzer = Fuzzer(settings, arguments.seed, replace(LIMITS, seconds=arguments.seconds), arguments.backend)
    if arguments.index is not None:
        (row,) = fuzzer.rows(arguments.target[:1], [arguments.index])
        print(f"{fuzzer.source(arguments.index)}\n# {row.kind}: {row.why}")
        return reduced(row, arguments.reduce, arguments.backend) if arguments.reduce else int(row.kind in FAILURES)
    rows: list[Row] = []
    for row in fuzzer.rows(arguments.target, range(arguments.first, arguments.first + arguments.programs)):
        rows.append(row)
        if row.kind in FAILURES:
            print(f"{row.index} {row.target}: {row.kind}: {row.why[:300]}", flush=True)
        if arguments.json and row.kind != "agrees":
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
        if len(rows) % 90 == 0:
            print(summary(rows), flush=True)
    print(summary(rows))
    return int(any(row.kind in FAILURES for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", nargs="+", choices=[*TARGETS], default=[*TARGETS])
    parser.add_argument("--backend", help="a backend of the target; by default that of the output type")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the index of the first program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=8, help="the largest number of operators of a program")
    parser.add_argument("--dtypes", nargs="+", help="f32 f64 f16 bf16 bool u8 i8 i16 i32 i64 c64")
    parser.add_argument("--dynamic", action="store_true", help="dynamic sizes; run with other ones too")
    parser.add_argument("--mutation", action="store_true", help="operators that write into inputs and buffers")
    parser.add_argument("--training", action="store_true", help="gradients by the inputs")
    parser.add_argument("--quantized", action="store_true", help="quantized programs with state, over three calls")
    parser.add_argument("--seconds", type=float, default=LIMITS.seconds, help="time limit of a program")
    parser.add_argument("--json", type=Path, help="a file to add failures to, as JSON lines")
    parser.add_argument("--index", type=int, help="one program: print it")
    parser.add_argument("--reduce", type=Path, metavar="DIR", help="reduce the program of --index")
    return parser


if __name__ == "__main__":
    sys.exit(main())
