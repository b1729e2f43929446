"""Result of a bisection: the first node that differs from eager PyTorch."""

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
from fx_importer.engines import engine_of
from fx_importer.verification.comparison import Comparison


class DivergenceCause(Enum):
    """Why the value of the node differs."""

    ITSELF = "the operation itself is wrong: lowered alone, with eager's inputs, it differs too"
    ACCUMULATED = (
        "lowered alone it is right: differences of its inputs within the tolerance accumulate, or its context matters"
    )
    CONTEXT = "lowered alone every operation is right: this one differs only in the whole program"
    UNKNOWN = "it cannot be lowered alone"


@dataclass(frozen=True)
class Divergence:
    """The first node of an exported program whose value differs from eager's."""

    node: str
    """Name in the graph of the exported program."""
    operator: str
    """``aten.gelu.default``."""
    cause: DivergenceCause
    comparison: Comparison
    """Comparison of its value in the program; lowered alone, if that is not available or equal."""
    backend: str
    where: str | None
    """``file:line`` in the user's code."""
    source: str | None
    """The text of that line."""
    module: str | None
    """Qualified name of its ``nn.Module``; empty for the model itself."""
    takes: tuple[str, ...]
    """Types of its tensor arguments, ``float32[2x3]``, and values of the others."""
    gives: tuple[str, ...]
    agreeing: int
    """Number of earlier values that agree with eager's."""
    remarks: tuple[str, ...] = ()
    script: Path | None = None
    """Python script that runs the node alone, and exits with 1 if it differs."""

    def __str__(self) -> str:
        engine = engine_of(self.backend)
        when = "once it is decomposed" if engine and engine.runs_programs else f"on {self.backend}"
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
            lines.append(f"  reproducer: python {self.script}")
        return "\n".join(lines)


def describe(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> dict[str, Any]:
    """Return the fields of a `Divergence` that describe ``node``, called with these arguments."""
    described = unsupported_node(node, "")
    generated = described.where is not None and described.where.startswith("<")  # by torch, without a file
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    named = [f"{name}={_type_or_value(argument)}" for name, argument in kwargs.items()]
    return {
        "node": node.name,
        "operator": str(node.target),
        "where": None if generated else described.where,
        "source": None if generated else described.source,
        "module": stack[-1][0].removeprefix("L['self']").lstrip(".") if stack else None,
        "takes": (*map(_type_or_value, args), *named),
        "gives": tuple(map(_type_or_value, pytree.tree_leaves(value))),
    }


def _type_or_value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{'x'.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_type_or_value, value))}]"
    return "a graph" if isinstance(value, fx.GraphModule) else repr(value)
