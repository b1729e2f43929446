"""The command line. A command imports what it needs when it runs: ``--help`` and ``--version`` answer at once."""

from __future__ import annotations

import sys
import traceback

from fx_importer.cli.app import app
from fx_importer.errors import FxImporterError, UsageError

__all__ = ["app", "main"]

USAGE = 2
FAILED = 1


def main() -> None:
    """Run the command that ``sys.argv`` holds, and exit.

    The exit code is 0, 1 where the program could not be lowered, or 2 where the call itself was mistaken. Errors that
    this package raises on purpose are printed as sentences, without a traceback unless ``--debug`` is given; any other
    exception is a defect of ours and keeps its traceback.
    """
    try:
        app(prog_name="fx-importer")
    except FxImporterError as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        else:
            print(f"error: {error}", file=sys.stderr)
        sys.exit(USAGE if isinstance(error, UsageError) else FAILED)
