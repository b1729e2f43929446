"""Graph breaks as TorchDynamo logs them: the user's line, the reason in a sentence, and the remedy."""

from __future__ import annotations

import linecache
import logging
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from fx_importer.errors import ExportError
from fx_importer.frontend.torch_patches import tracing
from fx_importer.fx_graph.graph_break import GraphBreak

_LOGGER = "torch._dynamo.symbolic_convert.__graph_breaks"
_HEAD = re.compile(r"Graph [Bb]reak .*in user code at (?P<place>.+:\d+)\nGraph Break Reason: (?P<reason>.*)", re.DOTALL)
_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+), in ', re.MULTILINE)
_LIBRARIES = tuple(
    f"{path}/" for path in (Path(torch.__file__).parent, Path(__file__).parents[1], sysconfig.get_paths()["stdlib"])
)
"""The folders of torch, of this package and of Python's standard library."""


@contextmanager
def logged_breaks(add: Callable[[str, GraphBreak], None]) -> Iterator[None]:
    """Call ``add`` for each graph break in the body, with the ``file:line`` where TorchDynamo stopped.

    That line may be in a library; the break has the user's. Breaks for which TorchDynamo leaves a whole function to
    Python are included, although no graph ends there.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if match := _HEAD.match(record.getMessage()):
                reason, _, stack = match["reason"].partition("\nUser code traceback:")
                add(match["place"], _break(match["place"], reason.strip(), stack))

    logger, handler = logging.getLogger(_LOGGER), Handler()
    with tracing():
        level, propagates = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = propagates and level == logging.DEBUG  # the user's own TORCH_LOGS
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagates


def _break(place: str, reason: str, stack: str) -> GraphBreak:
    frames = [(frame["file"], frame["line"]) for frame in _FRAME.finditer(stack)]
    traced = [frame for frame in frames if not _in_library(frame[0])]
    running = list(user_lines())
    if not traced or (running and traced[-1] in running[1:]):  # TorchDynamo leaves out frames that it has resumed
        traced = running[:1]
    file, line = traced[-1] if traced else place.rsplit(":", 1)
    message, remedy = described(reason)
    return GraphBreak(reason, f"{file}:{line}", source_at(f"{file}:{line}"), message, remedy)


def untraceable(name: str, error: Exception) -> ExportError:
    """Return the error for ``name``, at which TorchDynamo failed with ``error``, with the user's line."""
    text = str(error)
    lines = [f"TorchDynamo cannot trace {name}: {text.strip().partition(chr(10))[0]}"]
    frames = [(frame["file"], frame["line"]) for frame in _FRAME.finditer(text) if not _in_library(frame["file"])]
    where = ":".join(frames[-1]) if frames else ""
    lines += [f"    at {where}: {source_at(where)}"] if where else []
    if "_autograd_grad" in text:
        lines.append(
            "A gradient (torch.func.grad) in two forward-mode derivatives is not supported. One forward-mode "
            "derivative of gradients is: torch.func.hessian, or torch.func.jvp of torch.func.grad of torch.func.grad."
        )
    return ExportError("\n".join(lines), where)


def source_at(where: str) -> str | None:
    """Return the text of the line ``file:line``; None if it cannot be read."""
    file, _, line = where.rpartition(":")
    return linecache.getline(file, int(line or 0)).strip() or None


def user_lines() -> Iterator[tuple[str, str]]:
    """Yield the file and line of the Python frames that run, which are not in a library; the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _in_library(frame.f_code.co_filename) and not frame.f_code.co_filename.startswith("<"):
            yield frame.f_code.co_filename, str(frame.f_lineno)
        frame = frame.f_back


def _in_library(file: str) -> bool:
    """Return whether ``file`` is of torch, of this package or of Python, and not of another installed package."""
    return file.startswith(_LIBRARIES) and ("site-packages" not in file or file.startswith(_LIBRARIES[:2]))


def described(reason: str) -> tuple[str, str]:
    """Return TorchDynamo's ``reason`` as a sentence, and the remedy; empty if nothing is known."""
    reason = re.sub(r"^(Encountered graph break when|Failed to handle graph break)[^\n]*\n+", "", reason)
    message, remedy = _known(reason)
    if "\ngraph break in loop" not in reason:
        return message, remedy
    loop = "move the body of the loop to a function, which becomes a graph"
    return f"{message}, in a loop: Python runs the whole function", f"{remedy}; or {loop}" if remedy else loop


def _known(reason: str) -> tuple[str, str]:
    for pattern, message, remedy in _REASONS:
        if match := re.search(pattern, reason):
            return match.expand(message), remedy
    headline, _, rest = reason.partition("\n")
    explained = re.search(r"^ *Explanation: (.*)$", rest, re.MULTILINE)
    hint = re.search(r"^ *Hint: (.*)$", rest, re.MULTILINE)
    return f"{headline}: {explained[1]}" if explained else headline, hint[1] if hint else ""


_COMPILING = "remove the call, or make it under `if not torch.compiler.is_compiling():`"
_GRADIENT = "torch.func.grad or torch.func.vjp of a function, which graphs hold"
_OPERATOR = (
    "make the call an operator, with torch.library.custom_op and register_fake; unsupported='outline' then calls it "
    "from the module"
)
_REASONS: tuple[tuple[str, str, str], ...] = (
    (
        r"^Data-dependent branching|^generic_jump",
        "a branch depends on the value of a tensor",
        "torch.where, or torch.cond (docs/control-flow.md); for a check that raises, `assert condition, 'text'`",
    ),
    (
        r"_local_scalar_dense|Tensor\.item\(\)",
        "Python reads a number from a tensor",
        "keep it a tensor; a size stays in the graph with torch._dynamo.config.capture_scalar_outputs = True",
    ),
    (
        r"`aten\.equal",
        "torch.equal makes a Python bool of tensors",
        "(x == y).all(), with torch.where or torch.cond (docs/control-flow.md)",
    ),
    (
        r"^Dynamic shape operator\n.*`aten\.(\w+)",
        r"the shape of the result of \1 depends on the values of a tensor",
        "torch.where over all elements; or torch._dynamo.config.capture_dynamic_output_shape_ops = True",
    ),
    (r"builtin operator `print`", "Python calls print", _COMPILING),
    (r"^logging\.Logger method|LoggingLoggerVariable", "Python writes a log", _COMPILING),
    (r"`_?warnings\.warn|builtin `_warnings", "Python calls warnings.warn", _COMPILING),
    (
        r"torch\.autograd\.grad`|autograd\.grad with|Tensor\.backward\(\)",
        "autograd computes gradients, in Python and not in a function of the module",
        _GRADIENT,
    ),
    (
        r"^requires_grad_\(\) intermediate",
        "a tensor that requires gradients is made in the call, for autograd in Python",
        _GRADIENT,
    ),
    (
        r"`(pack_padded_sequence|pad_packed_sequence|pack_sequence)`",
        r"\1 makes sizes of the values of the lengths",
        "pass the padded batch to the layer, and mask its results by the lengths",
    ),
    (
        r"/torch/distributions/|module: torch\.distributions",
        "torch.distributions validates its arguments in Python",
        "validate_args=False",
    ),
    (
        r"`torch\.nn\.Parameter\(\)` constructor",
        "the call makes a parameter, or replaces the values of one",
        "make it in __init__; convert values in forward (`weight.double()`), and not the module",
    ),
    (r"graph_break\(\)", "the model calls torch._dynamo.graph_break()", "remove the call"),
    (r"trace the builtin `([\w.]+?)\.?`", r"Python calls the builtin \1", _OPERATOR),
    (r"that the function `([\w.]+)`", r"Python calls \1, which TorchDynamo does not trace", _OPERATOR),
)
"""Patterns of TorchDynamo's reasons, the first match counts, with a sentence and what removes the break."""
