"""The command-line interface. Commands import dependencies when they run, to keep ``--help`` and ``--version`` fast."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

from fx_importer.cli.app import app
from fx_importer.cli.option_arguments import with_options
from fx_importer.cli.terminal import StandardOutputError, labelled, print_labelled, writing
from fx_importer.diagnostics.installed_packages.explained_imports import imports_explained
from fx_importer.errors import FxImporterError, UsageError

__all__ = ["app", "main"]

USAGE = 2
FAILED = 1
_PACKAGE = str(Path(__file__).parents[1])
_in_python = warnings.formatwarning


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning of this package as one line, and others as Python prints them."""
    if filename.startswith(_PACKAGE):
        return labelled("warning", "yellow", with_options(str(message)), sys.stderr) + "\n"
    return _in_python(message, category, filename, lineno, line)


def _silence_other_packages() -> None:
    """Leave out what other packages warn of and log below an error: users can do nothing about it.

    Warnings that name a line of the user's stay. ``--debug`` and Python's own option and variable keep all of them.
    """
    show = warnings.showwarning

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: object = None,
    ) -> None:
        if filename.startswith(_PACKAGE) or "site-packages" not in Path(filename).parts:
            show(message, category, filename, lineno, file, line)  # type: ignore[arg-type]

    warnings.showwarning = shown
    if logging.lastResort is not None:  # the handler of loggers that have none
        logging.lastResort.setLevel(logging.ERROR)
    logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)  # torchao registers enums as torch deprecates it
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def main() -> None:
    """Run the command in ``sys.argv``, and exit.

    The exit code is 0 on success, 1 if the program could not be lowered, 2 for a usage error, or 130 after Ctrl-C.
    Errors that this package raises on purpose are printed as sentences, without a traceback unless ``--debug`` is
    given; any other exception is a bug of this package and keeps its traceback. Warnings are lines on standard error.
    """
    warnings.formatwarning = _format_warning
    _open_closed_streams()
    debug = "--debug" in sys.argv
    if not (debug or sys.warnoptions):
        _silence_other_packages()
    try:
        _run()
    except FxImporterError as error:
        if debug:
            traceback.print_exc()
        else:
            print_labelled("error", "red", with_options(str(error)))
        sys.exit(USAGE if isinstance(error, UsageError) else FAILED)
    except StandardOutputError as error:
        print_labelled("error", "red", f"standard output cannot be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it is flushed again at exit
        sys.exit(FAILED)


def _run() -> None:
    """Run the command; raise `MisfitError` where it cannot import torch or torch-mlir."""
    with imports_explained():
        try:
            app(prog_name="fx-importer")
        except SystemExit:
            with writing(sys.stdout):
                sys.stdout.flush()
            raise


def _open_closed_streams() -> None:
    """Open standard output and standard error where they are closed, so that no other file gets their numbers.

    Writes to standard output then fail; writes to standard error are lost.
    """
    for name, number, mode in (("stdout", 1, os.O_RDONLY), ("stderr", 2, os.O_WRONLY)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w"))
