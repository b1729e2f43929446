"""A reader of pickles that calls nothing that they name: classes, functions and objects become records."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

_OPCODES = frozenset(
    (
        *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.MEMOIZE),
        *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET),
        *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BINFLOAT),
        *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.LONG4),
        *(pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8),
        *(pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8),
        *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
        *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
        *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NEWOBJ, pickle.BUILD),
    )
)
"""What plain containers and objects need. Others may allocate what a file says, or look objects up elsewhere."""

_MAX_NAMES = 1000


class Record:
    """An object that a pickle makes, by a call of a name with arguments; its subclass stands for the name."""

    module: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, arguments: tuple[Any, ...]):
        self.arguments = arguments
        self.state: Any = None


class _Reader(pickle._Unpickler):
    """Python's unpickler with fewer opcodes. Time and memory are at most proportional to the size of the pickle."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[Any] = {code[0]: pickle._Unpickler.dispatch[code[0]] for code in _OPCODES}

    def __init__(self, data: bytes):
        super().__init__(io.BytesIO(data))
        self._named: dict[tuple[str, str], type[Record]] = {}

    def find_class(self, module: str, name: str) -> type[Record]:
        if (module, name) not in self._named:
            if len(self._named) == _MAX_NAMES:
                raise ValueError(f"it names more than {_MAX_NAMES} classes")
            self._named[module, name] = type("_Named", (Record,), {"module": module, "name": name})
        return self._named[module, name]

    def _make(self) -> None:
        """Replace a name and arguments by a record, which refers to the arguments: a copy of each call adds up."""
        arguments, named = self.stack.pop(), self.stack.pop()
        if not isinstance(arguments, tuple) or not (isinstance(named, type) and issubclass(named, Record)):
            raise ValueError("it calls a value that is not a class")
        self.stack.append(named(arguments))

    def _set_state(self) -> None:
        state, record = self.stack.pop(), self.stack[-1]
        if not isinstance(record, Record):
            raise ValueError("it sets the state of a value that is not an object")
        record.state = state

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def _set_items(self) -> None:
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        """Add keys and values to a dictionary. The hash of nested tuples may take forever, or end the process."""
        table, keys = self.stack[-1], items[::2]
        if not isinstance(table, dict) or not all(isinstance(key, str | Record) for key in keys):
            raise ValueError("it has a key that is neither text nor an object")
        table.update(zip(keys, items[1::2], strict=True))

    dispatch |= {pickle.REDUCE[0]: _make, pickle.NEWOBJ[0]: _make, pickle.BUILD[0]: _set_state}
    dispatch |= {pickle.SETITEM[0]: _set_item, pickle.SETITEMS[0]: _set_items}


def read_pickle(data: bytes) -> Any:
    """Return the value of a pickle: numbers, text, lists, tuples, dictionaries, `Record`, and subclasses of it.

    Keys of dictionaries are text or records.

    Raises:
        ValueError: if it is damaged, or has an opcode that plain containers and objects do not need.
    """
    try:
        return _Reader(data).load()
    except Exception as error:  # damaged files raise about ten types
        raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from None
