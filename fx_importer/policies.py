"""Policies: options with a fixed set of values, which users pass by name."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from fx_importer.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self


class Policy(Enum):
    """A set of values with names."""

    @classmethod
    def get(cls, spec: str | Self) -> Self:
        """Parse ``spec``. Raises `UsageError` with the accepted spellings."""
        try:
            return cls(spec)
        except ValueError:
            accepted = ", ".join(f"'{member.value}'" for member in cls)
            raise UsageError(f"unknown {cls.__name__.lower()} policy {spec!r}: accepted are {accepted}") from None


class Mutation(Policy):
    """Representation of the buffers and inputs that a program mutates."""

    ERROR = "error"
    """Raise an error that names the mutated buffers and inputs."""
    FUNCTIONAL = "functional"
    """Functional state: mutated buffers become arguments, and their new values are the first results."""
    MUTABLE = "mutable"
    """Mutated inputs are ``!torch.tensor`` arguments that are overwritten in place."""


class Weights(Policy):
    """Location of parameters and buffers: those in the state dict, and others that have no memory."""

    INLINE = "inline"
    """In the module, which shares their memory."""
    EXTERNAL = "external"
    """Outside the module, which refers to them by name. The manifest describes them, and `link` adds them."""
    ARGS = "args"
    """Outside the module: each is an argument of the functions, before the inputs."""


class Contract(Policy):
    """Handling of operations that the output type does not allow."""

    ERROR = "error"
    """Raise an error that names every such operation."""
    WARN = "warn"
    """Emit a `ContractWarning` for each kind of operation."""


class Unsupported(Policy):
    """Handling of operators that the output type does not support."""

    ERROR = "error"
    """Raise an error that names every such operator."""
    OUTLINE = "outline"
    """Replace the operator by a call of a stub: a function that the module declares and PyTorch runs."""


class Quantized(Policy):
    """Arithmetic of operators between dequantize and quantize operators."""

    AUTO = "auto"
    """In integers for programs of `fx_importer.quantize`, and for every quantized program in TOSA; else in floats."""
    FLOAT = "float"
    INTEGER = "integer"


class Capture(Policy):
    """How a model is captured."""

    EXPORT = "export"
    """By torch.export alone."""
    ASSUME = "assume"
    """By torch.export; where Python code asks for the value of a tensor, the example's answer is assumed."""
    AUTO = "auto"
    """By torch.export with either value of ``strict``, then as ``"assume"``, with an `AssumptionWarning`."""
