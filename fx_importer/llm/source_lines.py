"""Where in transformers a class is defined, and where its code raised an error."""

from __future__ import annotations

import inspect
import traceback
from typing import Any


def definition(code: Any) -> str:
    """Return the file and line of a class or function."""
    return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"


def raised_at(error: BaseException, model: Any) -> str:
    """Return the innermost line of the file of the class of ``model`` that an error passed, or of the class."""
    file = inspect.getsourcefile(type(model))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{file}:{lines[-1]}" if lines else definition(type(model))
