"""The signature of a function: what is an argument, what is a constant, what is a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec

from fx_importer import manifest

HELD: dict[InputKind, manifest.HeldKind] = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
"""The kinds of tensors that a program holds, and their names in the manifest."""


@dataclass(frozen=True)
class Argument:
    """An argument of the function."""

    node: fx.Node
    name: str
    constant: ConstantArgument | None = None
    """Set where the program was exported for one value of this (Python) argument."""
    kind: Literal["input", "state", "weight"] = "input"
    """Of a buffer or a parameter, which it is unless it is an input, ``name`` is the name in the state dict."""
    also: tuple[fx.Node, ...] = ()
    """Of a weight: the nodes of its other names."""
    leaf: int | None = None
    """Of a user's input: which leaf of the inputs it is."""
    overwritten_by: fx.Node | None = None
    """The node whose value is written into this argument: it is then a ``!torch.tensor``."""


@dataclass(frozen=True)
class Constant:
    """A parameter, buffer or tensor constant, and its value."""

    node: fx.Node
    spec: InputSpec
    tensor: torch.Tensor
    stored: fx.Node | None = None
    """The node whose value the hooks are to store as the new value of this buffer."""
    external: bool = False
    """Whether the module has its name and not its values."""


@dataclass(frozen=True)
class Signature:
    """What a program takes, holds and returns."""

    arguments: tuple[Argument, ...]
    constants: tuple[Constant, ...]
    results: tuple[fx.Node | int | float | bool, ...]
    """New state first, in the order of the graph signature, then the user's results. None, strings and the tokens that
    keep effects in order have no value at run time and are left out."""
    function: manifest.Function | None = None
    """None for a bare graph, which has no inputs and outputs but its own."""


def example_of(node: fx.Node) -> Any:
    """Return the example value that the model had: the program's own may be of another dtype, with the same bits."""
    return node.meta.get("model_val", node.meta.get("val"))


def passed_as(node: fx.Node) -> str | None:
    """Return the dtype of the parts of a tensor that is complex in the model and real in the program; else None."""
    real, was = node.meta.get("val"), example_of(node)
    if isinstance(was, torch.Tensor) and isinstance(real, torch.Tensor) and was.is_complex() and not real.is_complex():
        return str(real.dtype).removeprefix("torch.")
    return None
