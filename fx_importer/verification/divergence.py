"""Where a lowered program parts from eager PyTorch: one node, and all that helps to repair it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.verification.comparison import Comparison


class Cause(Enum):
    """What the node has to do with it."""

    ITSELF = "it is wrong by itself: lowered alone and given eager's values, it differs too"
    ACCUMULATED = (
        "by itself it is right: what comes in differs within the tolerance and adds up, or its surroundings matter"
    )
    CONTEXT = "by itself every operation is right: this one differs only inside of the whole program"
    UNKNOWN = "it could not be lowered alone"


@dataclass(frozen=True)
class Divergence:
    """The first node of an exported program whose value differs from eager's."""

    node: str
    """Its name in the graph of the exported program."""
    operator: str
    """``aten.gelu.default``."""
    cause: Cause
    comparison: Comparison
    """Of its value inside of the program; where that could not be had, or differs not, by itself."""
    backend: str
    where: str | None
    """``file:line`` in the user's code."""
    source: str | None
    """The text of that line."""
    module: str | None
    """The qualified name of the ``nn.Module`` that it is in; empty for the model itself."""
    takes: tuple[str, ...]
    """Its arguments: ``float32[2x3]``, or the value of what is no tensor."""
    gives: tuple[str, ...]
    agreeing: int
    """How many values before it agree with eager's."""
    remarks: tuple[str, ...] = ()
    script: Path | None = None
    """A Python file that runs the node alone, and exits with 1 while it is wrong."""

    def __str__(self) -> str:
        when = "once it is decomposed" if self.backend == "eager" else f"on {self.backend}"
        lines = [f"the first value that differs {when}: {self.node} = {self.operator}"]
        if self.where:
            lines.append(f"    at {self.where}" + (f" in {self.module}" if self.module else ""))
            lines += [f"        {self.source}"] if self.source else []
        lines += [
            f"  takes {', '.join(self.takes)}",
            f"  gives {', '.join(self.gives)}",
            f"  {self.comparison}",
            f"  {self.cause.value}",
            f"  {self.agreeing} values before it agree",
            *textwrap.indent("\n".join(self.remarks), "  ").splitlines(),
        ]
        if self.script:
            lines.append(f"  to see it again: python {self.script}")
        return "\n".join(lines)


def describe(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> dict[str, Any]:
    """Return what a `Divergence` says of ``node`` itself, called with these arguments."""
    found = unsupported_node(node, "")
    generated = found.where is not None and found.where.startswith("<")  # by torch: there is no such file
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    named = [f"{name}={_spelled(each)}" for name, each in kwargs.items()]
    return {
        "node": node.name,
        "operator": str(node.target),
        "where": None if generated else found.where,
        "source": None if generated else found.source,
        "module": _qualified(stack[-1][0]) if stack else None,
        "takes": (*map(_spelled, args), *named),
        "gives": tuple(map(_spelled, pytree.tree_leaves(value))),
    }


def _qualified(name: str) -> str:
    return name.removeprefix("L['self']").lstrip(".")


def _spelled(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{'x'.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spelled, value))}]"
    return "a graph" if isinstance(value, fx.GraphModule) else repr(value)
