"""Signature of a function: arguments, constants and results."""

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
"""Kinds of tensors that a program holds, and their names in the manifest."""


@dataclass(frozen=True)
class ImportedArgument:
    """An argument of the function."""

    node: fx.Node
    name: str
    constant: ConstantArgument | None = None
    """Set if the program was exported for one value of this (Python) argument."""
    kind: Literal["input", "state", "weight"] = "input"
    """Unless it is an input, it is a buffer or a parameter, and ``name`` is its name in the state dict."""
    also: tuple[fx.Node, ...] = ()
    """The nodes of the other names of a weight."""
    leaf: int | None = None
    """The index of a user input among the leaves of the inputs."""
    overwritten_by: fx.Node | None = None
    """The node whose value is written into this argument, which is then a ``!torch.tensor``."""


@dataclass(frozen=True)
class ImportedConstant:
    """A parameter, buffer or tensor constant, and its value."""

    node: fx.Node
    spec: InputSpec
    tensor: torch.Tensor
    stored: fx.Node | None = None
    """The node whose value the hooks store as the new value of this buffer."""
    external: bool = False
    """Whether the module holds only its name, without values."""


@dataclass(frozen=True)
class ImportedSignature:
    """Arguments, constants and results of a program."""

    arguments: tuple[ImportedArgument, ...]
    constants: tuple[ImportedConstant, ...]
    results: tuple[fx.Node | int | float | bool, ...]
    """New state first, in the order of the graph signature, then the user's results. None, strings and the tokens that
    keep effects in order have no value at run time and are left out."""
    function: manifest.Function | None = None
    """None for a bare graph, whose inputs and outputs are those of the function."""
    asserts_assumptions: bool = True
    """Whether assumptions are assertions of the function, and not results."""


def example_of(node: fx.Node) -> Any:
    """Return the model's example value. The program's may have another dtype with the same bits."""
    return node.meta.get("model_val", node.meta.get("val"))


def passed_as(node: fx.Node) -> str | None:
    """Return the real dtype of a tensor that is complex in the model and real in the program, else None."""
    real, was = node.meta.get("val"), example_of(node)
    if isinstance(was, torch.Tensor) and isinstance(real, torch.Tensor) and was.is_complex() and not real.is_complex():
        return str(real.dtype).removeprefix("torch.")
    return None
