"""A reader of pickles that calls nothing of what they name: classes, functions and objects become records."""

from __future__ import annotations

import io
import pickle
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
    """An object that a pickle makes, by a call of what it names with arguments; its subclass stands for the name."""

    module: ClassVar[str]
    name: ClassVar[str]
    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any) -> Record:
        record = super().__new__(cls)
        record.arguments, record.state = arguments, None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle._Unpickler):
    dispatch: ClassVar[Any] = {code[0]: pickle._Unpickler.dispatch[code[0]] for code in _OPCODES}

    def __init__(self, data: bytes):
        super().__init__(io.BytesIO(data))
        self._named: dict[tuple[str, str], type[Record]] = {}

    def find_class(self, module: str, name: str) -> type[Record]:
        if len(self._named) == _MAX_NAMES:
            raise ValueError(f"it names more than {_MAX_NAMES} classes")
        return self._named.setdefault((module, name), type("_Named", (Record,), {"module": module, "name": name}))


def read_pickle(data: bytes) -> Any:
    """Return the value of a pickle: numbers, text, lists, tuples, dictionaries, `Record`, and subclasses of it.

    Raises:
        ValueError: if it is damaged, or has an opcode that plain containers and objects do not need.
    """
    try:
        return _Reader(data).load()
    except Exception as error:  # damaged files raise about ten types
        raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from None
