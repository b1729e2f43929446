"""Objects that Python cannot look into: which of them have no state that calls could change."""

from __future__ import annotations

import functools
import operator
import re
import types
import typing
from typing import Any

import numpy as np

from fx_importer.frontend.repeated_modules.module_signature import CONSTANTS, NotComparable

_IMMUTABLE = (
    *CONSTANTS,
    *(range, re.Pattern, types.GenericAlias, types.UnionType, types.EllipsisType, types.NotImplementedType),
    *(types.CodeType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, property, staticmethod, classmethod),
    *(operator.attrgetter, operator.itemgetter, operator.methodcaller, np.dtype, np.generic, np.ufunc),
    *(typing.TypeVar, typing.ParamSpec),
)
_OF_TORCH = ("torch", "pybind11_builtins")


def check_has_no_state(name: str, value: Any) -> None:
    """Raise `NotComparable` if ``value`` may hold what neither its ``__dict__`` nor its slots have.

    ``value`` is none of Python's containers.
    """
    kind = type(value)
    if isinstance(value, functools._lru_cache_wrapper):
        if value.cache_info().currsize:
            raise NotComparable(f"its code calls {name}, which keeps results")
    elif isinstance(value, _IMMUTABLE) or kind.__module__.partition(".")[0] in _OF_TORCH:
        return
    elif _is_written_in_c(kind):
        raise NotComparable(f"its code reads {name}, of the class {kind.__name__}, which may change")


def _is_written_in_c(kind: type) -> bool:
    """Return whether instances have memory that neither Python's attributes nor its slots are."""
    written = [base for base in kind.__mro__ if base is not object and not base.__flags__ & _HEAP_TYPE]
    return any(not issubclass(base, (BaseException, type)) for base in written)


_HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the class was made by a class statement, or as if by one."""
