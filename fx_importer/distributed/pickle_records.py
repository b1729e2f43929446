"""A reader of pickles that makes no object and calls nothing: what a pickle would call is a record of its name."""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any

_MARK = object()
_ATOMS = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS = ("BINPUT", "LONG_BINPUT")
_GETS = ("BINGET", "LONG_BINGET")


@dataclass
class Name:
    """A class or function that a pickle names; it is not looked up."""

    module: str
    name: str


@dataclass
class Record:
    """An object that a pickle makes: by a call of ``of`` with arguments, with a state that it sets then."""

    of: Any
    arguments: Any
    state: Any = None


@dataclass
class Pairs:
    """A dictionary, whose keys may be records."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


def read_pickle(data: bytes) -> Any:
    """Return the value of a pickle: numbers, text, lists, tuples, `Pairs`, `Name` and `Record`.

    Raises:
        ValueError: if it is damaged, or has an opcode that plain containers and objects do not need.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                (value,) = machine.stack
                return value
            machine.step(opcode.name, argument)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from None
    raise ValueError("it ends too early")


class _Machine:
    """The stack and memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in ("PROTO", "FRAME"):
            return
        if name in _ATOMS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in _PUTS:
            self._memo[argument] = stack[-1]
        elif name in _GETS:
            stack.append(self._memo[argument])
        elif name == "GLOBAL":
            stack.append(Name(*argument.split(" ", 1)))
        elif not self._made(name) and not self._filled(name):
            raise ValueError(f"its opcode {name} is not read")

    def _made(self, name: str) -> bool:
        """Push a container or a record, if the opcode ``name`` makes one."""
        stack = self.stack
        if name == "MARK":
            stack.append(_MARK)
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "EMPTY_DICT":
            stack.append(Pairs())
        elif name == "EMPTY_TUPLE":
            stack.append(())
        elif name == "TUPLE":
            parts = self._to_mark()
            stack.append(tuple(parts))
        elif name in _TUPLES:
            parts = [stack.pop() for _ in range(_TUPLES[name])]
            stack.append(tuple(reversed(parts)))
        elif name in ("STACK_GLOBAL", "REDUCE", "NEWOBJ"):
            second, first = stack.pop(), stack.pop()
            stack.append(Name(first, second) if name == "STACK_GLOBAL" else Record(first, second))
        else:
            return False
        return True

    def _filled(self, name: str) -> bool:
        """Fill the container or record on the stack, if the opcode ``name`` does."""
        stack = self.stack
        if name == "APPEND":
            part = stack.pop()
            _of(list, stack[-1]).append(part)
        elif name == "APPENDS":
            parts = self._to_mark()
            _of(list, stack[-1]).extend(parts)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _of(Pairs, stack[-1]).items.append((key, value))
        elif name == "SETITEMS":
            parts = self._to_mark()
            _of(Pairs, stack[-1]).items.extend(zip(parts[::2], parts[1::2], strict=True))
        elif name == "BUILD":
            state = stack.pop()
            _of(Record, stack[-1]).state = state
        else:
            return False
        return True

    def _to_mark(self) -> list[Any]:
        parts = []
        while (part := self.stack.pop()) is not _MARK:
            parts.append(part)
        return parts[::-1]


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it fills {type(value).__name__} as {kind.__name__}")
    return value
