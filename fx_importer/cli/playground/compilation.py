"""Compilation of an edited program, in a process of its own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from fx_importer.cli.playground.child import MODULE, compile_page
from fx_importer.errors import CrashedError
from fx_importer.options import Limits
from fx_importer.process.one_shot import run_isolated
from fx_importer.process.scratch import Scratch

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "OMP_NUM_THREADS")
"""Environment variables that the process sees, besides ``PYTHONPATH``, and ``HOME`` and ``TMPDIR`` of its own."""


@dataclass(frozen=True)
class EditOutcome:
    """The result of an edit."""

    message: str
    """The error; empty if there is none."""
    page: str | None
    """The explorer, as HTML; None if there is nothing to show."""


def passed_on() -> dict[str, str]:
    """Return the environment variables of this process that may be seen."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def compile_source(source: str, output_type: str, limits: Limits) -> EditOutcome:
    """Return the outcome of lowering ``build`` of the Python program ``source`` within ``limits``.

    The process has a new directory, and only the environment variables in `PASSED_ON`.
    """
    with Scratch() as scratch:
        directory = scratch.resolve()
        (directory / f"{MODULE}.py").write_text(source, encoding="utf-8")
        page, result = directory / "page.html", directory / "result.json"
        own = {"HOME": str(directory), "TMPDIR": str(directory), "HF_HUB_OFFLINE": "1"}
        try:
            run_isolated(
                "the program",
                compile_page,
                output_type,
                page,
                result,
                limits=limits,
                environment={**passed_on(), **own},
                directory=directory,
            )
            answer = json.loads(result.read_text(encoding="utf-8"))
            shown = page.read_text(encoding="utf-8") if answer["page"] else None
        except CrashedError as error:
            return EditOutcome(str(error), None)
        except (OSError, ValueError, KeyError, TypeError) as error:  # the program may write over the files
            return EditOutcome(f"the program ended without a result: {error}", None)
        return EditOutcome(str(answer["message"]).replace(f"{directory}/", ""), shown)
