"""Remarks of a compilation that mean more than their text."""

from __future__ import annotations


class Deviation(str):
    """A remark that results may differ from eager's. The result of such a compilation is not cached."""

    __slots__ = ()
