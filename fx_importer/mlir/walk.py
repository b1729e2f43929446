"""Rewrites in Python as passes, and the walk that finds the operations which a rewrite visits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter

ModuleRewrite = Callable[[ir.Operation], None]
E = TypeVar("E", bound=Emitter)


@dataclass(frozen=True)
class RewriteStep:
    """A rewrite in Python as a pass. It can stand at the top level of a pipeline only: ``builtin.module(cse,NAME)``."""

    name: str
    run: ModuleRewrite
    """Changes the module in place. What it cannot do it reports as an error at the location of an operation."""

    def __call__(self, module: ir.Operation) -> None:
        self.run(module)

    def __str__(self) -> str:
        return self.name


@overload
def rewrite(name: str) -> Callable[[ModuleRewrite], RewriteStep]: ...
@overload
def rewrite(name: str, ops: Container[str]) -> Callable[[Callable[[ir.Operation], None]], RewriteStep]: ...
@overload
def rewrite(
    name: str, ops: Container[str], emitter: type[E]
) -> Callable[[Callable[[ir.Operation, E], None]], RewriteStep]: ...
def rewrite(
    name: str, ops: Container[str] | None = None, emitter: type[Emitter] | None = None
) -> Callable[[Callable[..., None]], RewriteStep]:
    """Return a decorator that makes a function the pass ``name``.

    Without ``ops``, the function takes the module. With it, the function takes each operation that has one of these
    names, innermost first; they are collected before any of them is visited, so it may erase the one that it takes, and
    emit others of the same name. With ``emitter``, it also takes an emitter that inserts before the operation.
    """

    def decorate(function: Callable[..., None]) -> RewriteStep:
        if ops is None:
            return RewriteStep(name, function)
        names = ops

        @functools.wraps(function)
        def run(module: ir.Operation) -> None:
            for op in operations(module, names):
                arguments: tuple[Any, ...] = (op,) if emitter is None else (op, emitter.before(op))
                function(*arguments)

        return RewriteStep(name, run)

    return decorate


def operations(root: ir.Operation, names: Container[str] | None = None) -> list[ir.Operation]:
    """Return the operations in ``root``, itself included, those in regions before the one around them.

    With ``names``, only those that have one of these names.
    """
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if names is None or op.name in names:
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return found
