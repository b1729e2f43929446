"""Python functions of users as steps of a pipeline."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from fx_importer.diagnostics.mlir_diagnostics import PassError, reason_of
from fx_importer.diagnostics.trace import IMPORTED_FUNCTION, LOCAL_FUNCTION
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.pipelines.stage import RewriteStep


@dataclass(frozen=True)
class PythonPass:
    """A function that changes a module; errors name it and its line."""

    function: Callable[[ir.Operation], None]

    def __call__(self, module: ir.Operation) -> None:
        """Run it on ``module``, whose context is the current one.

        Raises:
            PassError: if it raises, returns a value, or leaves an invalid module.
        """
        try:
            with module.context:
                returned: Any = self.function(module)
        except Warning:
            raise
        except Exception as error:
            raise PassError(f"{self} raised {_error_text(error)}") from error
        if returned is not None:
            raise PassError(
                f"{self} returned a value of type {type(returned).__name__}: a pass changes the module that it is "
                "given, and returns nothing"
            )
        try:
            module.verify()
        except ir.MLIRError as error:
            raise PassError(f"{self} left a module that is not valid:\n{reason_of(error)}") from error

    def __str__(self) -> str:
        code = _code(self.function)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        return f"the pass '{name_of(self.function)}'{where}"


def function_step(function: Callable[[ir.Operation], None]) -> RewriteStep:
    """Return the step that calls ``function`` with the module's operation.

    If the function can be imported, the text of the step is its path, which other processes can parse.
    """
    path = _path(function)
    text = f"{LOCAL_FUNCTION}{name_of(function)}}}" if path is None else f"{IMPORTED_FUNCTION}{path}}}"
    return RewriteStep(text, PythonPass(function))


def imported_step(path: str) -> RewriteStep:
    """Return the step that calls ``package.module:function`` with the module's operation.

    Raises:
        UsageError: if the function does not exist.
    """
    module, _, name = path.partition(":")
    try:
        function = operator.attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"a pipeline calls '{path}', which is not a package.module:function here: {error}") from error
    return RewriteStep(f"{IMPORTED_FUNCTION}{path}}}", PythonPass(function))


def calls_functions(pipeline: str) -> bool:
    """Whether the text of a pipeline has functions of users."""
    return IMPORTED_FUNCTION in pipeline or LOCAL_FUNCTION in pipeline


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of ``function``, or of its class if it is a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def description_of(function: Callable[..., Any]) -> str:
    """Return the first line of the docstring of ``function``; ``""`` without one."""
    text = "" if isinstance(function, functools.partial) else (function.__doc__ or "").strip()
    return text.splitlines()[0] if text else ""


def _path(function: Callable[..., Any]) -> str | None:
    """Return ``package.module:function`` if ``function`` can be imported from there; else None."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module is None or name is None or module == "__main__" or "<" in name:
        return None
    try:
        named = operator.attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):
        return None
    return f"{module}:{name}" if named is function else None


def _code(function: Callable[..., Any]) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    for candidate in (function, vars(type(function)).get("__call__")):
        code = getattr(candidate, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


def _error_text(error: Exception) -> str:
    """Return the type and text of ``error``, and the line that raised it: the last one outside of site-packages."""
    message = f"MLIRError:\n{reason_of(error)}" if isinstance(error, ir.MLIRError) else reason_of(error)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    frames = [frame for frame in frames if "/site-packages/" not in frame.filename] or frames
    if not frames:
        return message
    at = frames[-1]
    return f"{message}\n  at {at.filename}:{at.lineno}" + (f": {at.line}" if at.line else "")
