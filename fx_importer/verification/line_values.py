"""Values that the lines of a model compute, in the model and in its exported program."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.mlir_diagnostics import read_frames, user_frame
from fx_importer.diagnostics.source_lines import source_line
from fx_importer.frontend.user_calls import call_of_user
from fx_importer.verification.comparison import Tolerance, compare

Line = tuple[str, int]
"""File and number."""


class ModelLines(TorchFunctionMode):
    """Mode that records the tensors that the lines of a model compute, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[Line, torch.Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``, and record its results."""
        result = func(*args, **(kwargs or {}))
        call = call_of_user(sys._getframe(1))
        if call.file:
            self.values += [((call.file, call.line), each) for each in _copies(result)]
        return result


class ProgramLines:
    """Observer of `Reference` that records the tensors that the lines of a model compute in its program."""

    def __init__(self) -> None:
        self.values: defaultdict[Line, list[torch.Tensor]] = defaultdict(list)

    def __call__(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> None:
        """Record the value of ``node``."""
        if (frame := user_frame(tuple(reversed(read_frames(node.meta.get("stack_trace")))))) is not None:
            self.values[frame] += _copies(value)


def first_line_that_differs(model: ModelLines, program: ProgramLines, tolerance: Tolerance) -> str:
    """Return the first line with a value in the model that it does not have in the program; empty if unknown.

    Lines that run in one of them only are not compared.
    """
    for line, value in model.values:
        others = [
            each for each in program.values.get(line, ()) if (each.shape, each.dtype) == (value.shape, value.dtype)
        ]
        if others and not any(compare(each, value, tolerance).passed for each in others):
            source = source_line(*line)
            return f"{line[0]}:{line[1]}" + (f": {source}" if source else "")
    return ""


def _copies(value: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            yield leaf.detach().clone()
