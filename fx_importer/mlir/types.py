"""Types of the torch dialect, read and written as text: the bindings have no classes for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fx_importer.mlir.bindings import ir

if TYPE_CHECKING:
    from typing_extensions import Self

_TENSOR = re.compile(
    r"!torch\.(?P<kind>v?tensor)<\[(?P<sizes>[\d?,]*)\],(?P<element>(?!unk\b)\w+|complex<\w+>)(?:,(?P<encoding>.+))?>"
)
_TENSOR_IN_TEXT = re.compile(r"(?:!torch\.)?v?tensor<(\[[^\]]*\]),([^<>]+(?:<[^<>]*>)?)>")
_INCOMPLETE = re.compile(r"!torch\.(any|v?tensor)(?!<\[)|!torch\.v?tensor<.*\bunk>")


@dataclass(frozen=True)
class TorchTensor:
    """A tensor type of the torch dialect that has a rank and a dtype: ``!torch.vtensor<[2,?],f32>``."""

    shape: tuple[int | None, ...]
    """The sizes; None is a dynamic one."""
    element: str
    """The element type: ``"f32"``, ``"si64"``, ``"i1"``, ``"complex<f32>"``."""
    mutable: bool = False
    """Whether it is a ``!torch.tensor``, which is overwritten in place."""
    encoding: str = ""
    """The encoding of a sparse tensor, as text."""

    @classmethod
    def read(cls, type_: ir.Type) -> Self | None:
        """Return the tensor type ``type_``; None for any other type, also without a rank or a dtype."""
        match = _TENSOR.fullmatch(str(type_))
        if match is None:
            return None
        sizes = (None if size == "?" else int(size) for size in match["sizes"].split(",") if size)
        return cls(tuple(sizes), match["element"], match["kind"] == "tensor", match["encoding"] or "")

    @classmethod
    def of(cls, value: ir.Value) -> Self:
        """Return the type of ``value``. Raises `TypeError` if that is not a tensor with a rank and a dtype."""
        tensor = cls.read(value.type)
        if tensor is None:
            raise TypeError(f"a value of type {value.type} is not a torch tensor with a rank and a dtype")
        return tensor

    def __str__(self) -> str:
        sizes = ",".join("?" if size is None else str(size) for size in self.shape)
        kind = "tensor" if self.mutable else "vtensor"
        return f"!torch.{kind}<[{sizes}],{self.element}{f',{self.encoding}' if self.encoding else ''}>"

    def mlir(self, context: ir.Context) -> ir.Type:
        """Return the MLIR type."""
        return ir.Type.parse(str(self), context)

    def with_shape(self, shape: Sequence[int | None]) -> Self:
        """Return the type with another shape."""
        return replace(self, shape=tuple(shape))

    def with_element(self, element: str) -> Self:
        """Return the type with another element type."""
        return replace(self, element=element)

    @property
    def is_unsigned(self) -> bool:
        """Whether the elements are unsigned integers."""
        return self.element.startswith("ui")

    @property
    def signless_element(self) -> str:
        """The element type that builtin tensors have after the conversion from torch: ``si64`` is ``i64``."""
        return self.element[1:] if self.element.startswith(("si", "ui")) else self.element


def is_torch_tensor(type_: ir.Type) -> bool:
    """Whether ``type_`` is a tensor of the torch dialect, with or without a rank and a dtype."""
    return str(type_).startswith(("!torch.vtensor", "!torch.tensor"))


def is_incomplete(type_: ir.Type) -> bool:
    """Whether ``type_`` is ``!torch.any``, a torch tensor without a rank or a dtype, or a list of these."""
    return bool(_INCOMPLETE.search(str(type_)))


def short_text(type_: ir.Type) -> str:
    """Return ``f32[4,?]`` for ``!torch.vtensor<[4,?],f32>``; the tensors of lists are shortened too."""
    return _TENSOR_IN_TEXT.sub(r"\2\1", str(type_)).removeprefix("!torch.")
