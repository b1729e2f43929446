"""``fx_importer.doctor()``: a check of everything that matters about an installation."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fx_importer.diagnostics.installed_packages.findings import Finding
from fx_importer.diagnostics.installed_packages.other_mlir_packages import Neighbour, neighbours, torch_mlir_here
from fx_importer.diagnostics.installed_packages.package_versions import DISTRIBUTION, Package, packages
from fx_importer.engines.engine_table import module_engines
from fx_importer.errors import CrashedError, NotInstalledError
from fx_importer.native.compilers import EXTRA, find_compiler
from fx_importer.options import Limits
from fx_importer.output_types import OutputType
from fx_importer.process.worker import Child, RestartingWorker

_LIMITS = Limits(seconds=300)
_WIDTH = 160


@dataclass(frozen=True)
class Checkup:
    """The findings. True if models can be lowered; ``print`` shows a table."""

    python: str
    platform: str
    packages: tuple[Package, ...]
    torch_mlir: Finding
    """Whether the package of this name is the wheel's."""
    wheel: tuple[Finding, ...]
    """Features of the wheel that work."""
    output_types: tuple[Finding, ...]
    """Output types that a small program lowers to."""
    backends: tuple[Finding, ...]
    """Backends that run a small program correctly."""
    compiler: Finding
    """The compiler of `Lowered.build`."""
    neighbours: tuple[Neighbour, ...]
    dump_directory: Finding
    """The directory for failure reports."""

    @property
    def works(self) -> bool:
        """Whether a small program lowers to every output type."""
        return all(output_type.works for output_type in self.output_types)

    @property
    def verdict(self) -> str:
        """Whether models can be lowered, and where they run, in one sentence."""
        if not self.works:
            failed = ", ".join(output_type.name for output_type in self.output_types if not output_type.works)
            return f"does not work: no model can be lowered to {failed} here"
        running = [backend.name for backend in self.backends if backend.works]
        others = [backend.name for backend in self.backends if not backend.works]
        places = f"they run on {', '.join(running)}" if running else "no backend runs them"
        return f"works: models can be lowered, and {places}" + (f"; not on {', '.join(others)}" if others else "")

    def __bool__(self) -> bool:
        return self.works

    def to_json(self) -> str:
        """Return the findings as a JSON document."""
        summary = {"works": self.works, "verdict": self.verdict}
        return json.dumps({**summary, **dataclasses.asdict(self), "advice": self.advice()}, indent=2) + "\n"

    def __str__(self) -> str:
        file = io.StringIO()
        Console(file=file, width=_WIDTH, color_system=None, legacy_windows=False).print(self.table())
        lines = [line.rstrip() for line in file.getvalue().strip("\n").splitlines()]
        return "\n".join([*lines, *self.advice(), self.verdict])

    def table(self) -> Table:
        """Return the findings as a `rich` table, coloured on a terminal."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("", "found", "verdict", ""):
            table.add_column(heading, overflow="fold")
        table.add_row("Python", self.python, "", self.platform)
        for package in self.packages:
            style = "" if package.fits else "yellow" if package.extra else "bold red"
            table.add_row(
                package.name,
                package.found or "-",
                Text(package.verdict, style),
                f"extra '{package.extra}'" if package.extra else "",
            )
        for title, findings in self._sections():
            table.add_section()
            for finding in findings:
                style = "" if finding.works else "yellow" if finding.extra else "bold red"
                table.add_row(finding.name, title, Text(finding.verdict, style), Text(finding.message))
        table.add_section()
        for package in self.neighbours:
            table.add_row(package.name, "other MLIR", "imported" if package.loaded else "installed", package.where)
        return table

    def _sections(self) -> Iterator[tuple[str, Sequence[Finding]]]:
        yield "wheel", (self.torch_mlir, *self.wheel)
        yield "output type", self.output_types
        yield "backend", self.backends
        yield "native code", (self.compiler,)
        yield "reports", (self.dump_directory,)

    def advice(self) -> list[str]:
        """Return the next steps, one sentence each."""
        wrong = [package.advice for package in self.packages if package.advice]
        lines = [f"pip install {' '.join(map(repr, wrong))}"] if wrong else []
        extras = {backend.extra: backend.name for backend in self.backends if backend.extra}
        lines += [
            f"pip install '{DISTRIBUTION}[{extra}]' brings the backend '{name}'" for extra, name in extras.items()
        ]
        if self.compiler.extra:
            lines.append(f"pip install '{DISTRIBUTION}[{self.compiler.extra}]' brings the compiler of native code")
        return lines


def doctor() -> Checkup:
    """Check the installation: each backend in a separate process, with a small program.

    It works, and reports the problem, even if torch or torch-mlir cannot be imported. It takes some seconds for each
    backend.
    """
    lowering = _Trials()
    broken = lowering.start()
    names = [engine.name for engine in module_engines()]
    return Checkup(
        platform.python_version(),
        platform.platform(),
        packages(),
        torch_mlir_here(),
        lowering.findings("wheel", "wheel"),
        tuple(finding for kind in OutputType for finding in lowering.findings(kind.value, "lower", kind.value)),
        tuple(finding for name in names for finding in _Trials(broken).findings(name, "run", name)),
        _compiler(),
        neighbours(),
        _dump_directory(),
    )


class _Trials:
    """Checks in a worker process."""

    def __init__(self, broken: str = "") -> None:
        self._broken = broken
        self._worker = RestartingWorker(lambda: Child("fx_importer.installation.smoke_test:Trial"))

    def start(self) -> str:
        """Return why no process can be started, which is then the finding of every check; empty if one can."""
        try:
            self._worker.running().ask("the process", ("start",), _LIMITS)
        except CrashedError as error:
            self._broken = (error.output.splitlines() or [str(error)])[-1]
        return self._broken

    def findings(self, name: str, *request: str) -> tuple[Finding, ...]:
        """Return the answer to ``request``; if there is none, a finding that ``name`` ended the process."""
        if self._broken:
            return (Finding(name, False, self._broken),)
        try:
            return self._worker.running().ask(name, request, _LIMITS)
        except CrashedError as error:
            return (Finding(name, False, str(error)),)


def _compiler() -> Finding:
    try:
        compiler = find_compiler()
    except NotInstalledError:
        return Finding("zig", False, "lowered.build writes C source only", EXTRA)
    name, program = "zig" if compiler.is_zig else "clang", compiler.program
    try:
        ran = subprocess.run(compiler.version_command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(name, False, f"{program}: {error}")
    about = (ran.stdout.strip() or ran.stderr.strip()).partition("\n")[0]
    return Finding(name, not ran.returncode, f"{about}, {program}")


def _dump_directory() -> Finding:
    name = "dump directory"
    chosen = os.environ.get("FX_IMPORTER_DUMP_DIR")
    place = Path(chosen or tempfile.gettempdir())
    existing = next(parent for parent in (place.absolute(), *place.absolute().parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Finding(name, False, f"no directory can be made in '{existing}': set FX_IMPORTER_DUMP_DIR")
    free = shutil.disk_usage(existing).free / 2**30
    return Finding(
        name, True, f"{place}, {free:.1f} GiB free" + ("" if chosen else "; FX_IMPORTER_DUMP_DIR is not set")
    )
