"""Loading of a model and its example inputs from a command-line argument."""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fx_importer.errors import UsageError, first_line

ACCEPTED = "a .pt2 file that torch.export.save wrote, or package.module:callable"


@functools.cache
def silence_torch() -> None:
    """Keep torch from logging, unless ``TORCH_LOGS`` asks for it.

    It logs the traceback of a failed export, whose error is reported anyway, and advice to packages that models import.
    Later calls do nothing, since torch takes 40 ms.
    """
    if "TORCH_LOGS" not in os.environ:
        import torch

        torch._logging.set_logs(all=logging.CRITICAL)  # pyright: ignore[reportPrivateImportUsage]


def load_model(spec: str, *, trust: bool = False) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """Return the model that ``spec`` names, its positional inputs and its keyword inputs; a ``.pt2`` file has its own.

    ``trust`` is passed to `read_program`, for files; ``package.module:callable`` is the user's own code, and runs.

    Raises:
        UsageError: if ``spec`` does not name a model.
    """
    if spec.endswith(".pt2"):
        from fx_importer.fx_graph.program_files import read_program  # which imports torch

        return read_program(Path(spec), trust=trust), (), {}
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"'{spec}' names no model: MODEL is {ACCEPTED}")
    attribute = named_attribute(module, name)
    if not callable(attribute):
        raise UsageError(f"'{spec}' is a {type(attribute).__name__}, which cannot be called")
    return _call(spec, attribute)


def named_attribute(module: str, name: str) -> Any:
    """Return ``name`` of an importable module. Raises `UsageError` if there is none."""
    return _find(_import(module), name)


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no module '{error.name}' in {here} or among the installed packages") from error
        raise UsageError(f"importing '{name}' failed{_where(error)}: {first_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"importing '{name}' failed{_where(error)}: {first_line(error)}") from error


def _find(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError as error:
        close = difflib.get_close_matches(name, dir(module), n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"module '{module.__name__}' ({module.__file__}) has no '{name}'{hint}") from error


def _call(spec: str, function: Any) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    try:
        returned = function()
    except (Exception, SystemExit) as error:
        raise UsageError(f"calling '{spec}' without arguments failed{_where(error)}: {first_line(error)}") from error
    match returned:
        case (model, tuple() | list() as args) if callable(model):
            return model, args, {}
        case (model, tuple() | list() as args, dict() as kwargs) if callable(model):
            return model, args, kwargs
    raise UsageError(
        f"'{spec}' returned {_described(returned)}: it must return (model, args) or (model, args, kwargs), where "
        f"args is a tuple of example inputs and kwargs a dictionary of them"
    )


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of ({', '.join(type(item).__name__ for item in value)})"
    return f"a {type(value).__name__}"


def _where(error: BaseException) -> str:
    """Return the location in the user's code that raised ``error``; empty if the traceback has no line of it."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__ and "importlib" not in f.filename
    ]
    return f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
