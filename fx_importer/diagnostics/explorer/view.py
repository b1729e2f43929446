"""A program or a module as lines of text, each with the sites that it came from, and its operations as a graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """An operation, an FX node, or an argument of a function, in the picture of the graph."""

    line: int
    """Number of its line in the view, from 0."""
    name: str
    """Name of the operation or of the target; ``argument`` for arguments of functions."""
    inputs: tuple[int, ...]
    """Numbers of the nodes whose results it uses, in its regions too."""


@dataclass(frozen=True)
class ExplorerView:
    """The text of a program or a module after a stage."""

    kind: str
    """``"fx"`` or ``"mlir"``."""
    lines: tuple[str, ...]
    sites: tuple[int, ...]
    """For each line, the number of its set of sites."""
    nodes: tuple[Node, ...]
    """In program order, without constants and weights; those in regions belong to the operation around them."""
