"""Rewrites in Python as passes, and the walk that finds the operations which a rewrite visits."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container, Sequence
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

    def __copy__(self) -> RewriteStep:
        return self

    def __deepcopy__(self, _memo: object) -> RewriteStep:
        return self

    def __str__(self) -> str:
        return self.name


Option = bool | int | str | Sequence[str]


@dataclass(frozen=True)
class RewriteFamily:
    """A rewrite in Python with options: a call with keywords returns the pass ``NAME{key=value}``.

    Every option has a default, whose type says how its text is read: a boolean, an integer, a text, or texts.
    """

    name: str
    function: Callable[..., None]
    """Takes the module, and the options as keywords."""

    def __call__(self, **options: Option) -> RewriteStep:
        return _step_with_options(self, tuple(options.items()))

    def parse(self, text: str) -> RewriteStep:
        """Return the pass that has ``text`` between its braces. Raises `ValueError` for an unknown option."""
        options: dict[str, Option] = {}
        parameters = inspect.signature(self.function).parameters
        for part in text.split():
            key, _, value = part.partition("=")
            name = key.replace("-", "_")
            if name not in parameters:
                raise ValueError(f"the pass '{self.name}' has no option '{key}'")
            default = parameters[name].default
            options[name] = _read_option(value, default)
        return self(**options)


def _read_option(text: str, default: Option) -> Option:
    """Return the value with the text ``text``, of the type of ``default``."""
    if isinstance(default, bool):
        return text == "true"
    if isinstance(default, (int, str)):
        return type(default)(text)
    return tuple(text.split(",")) if text else ()


@functools.cache
def _step_with_options(family: RewriteFamily, options: tuple[tuple[str, Option], ...]) -> RewriteStep:
    """Return the pass of ``family`` with ``options``: the same object for the same options."""
    text = " ".join(f"{name.replace('_', '-')}={option_text(value)}" for name, value in options)
    return RewriteStep(
        f"{family.name}{{{text}}}" if text else family.name, functools.partial(family.function, **dict(options))
    )


def option_text(value: Option) -> str:
    """Return ``value`` in MLIR's syntax of pass options."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, str)) else ",".join(value)


def rewrite_with_options(name: str) -> Callable[[Callable[..., None]], RewriteFamily]:
    """Return a decorator that makes a function of the module and of keywords the passes ``name``."""
    return functools.partial(RewriteFamily, name)


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
    collected: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if names is None or op.name in names:
            collected.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return collected
