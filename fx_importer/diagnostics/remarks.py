"""Remarks of a compilation that mean more than their text."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Deviation(str):
    """A remark that results may differ from eager's. The result of such a compilation is not cached."""

    __slots__ = ()


class WeightsRead(str):
    """A remark that names the weights whose elements the module depends on, since constants were computed from them."""

    names: tuple[str, ...]

    def __new__(cls, names: Collection[str]) -> Self:
        made = super().__new__(cls, f"constants were computed from {len(names)} weights")
        made.names = tuple(sorted(names))
        return made

    def __reduce__(self) -> tuple[type[WeightsRead], tuple[Collection[str]]]:
        return WeightsRead, (self.names,)
