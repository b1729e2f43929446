"""What the Python code of a module may read besides its arguments and weights: attributes, globals, closures, classes.

A module is copied only while this state is what it was before the traced call, and only if that call did not change it.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import logging
import random
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor

from fx_importer.frontend.repeated_modules.module_signature import CONSTANTS, NotComparable
from fx_importer.frontend.repeated_modules.opaque_objects import check_has_no_state

_MAX_OBJECTS = 20_000
_TRUSTED = frozenset(("torch", "fx_importer", "numpy", "builtins")) | sys.stdlib_module_names
"""Packages whose functions are not followed: they do not count calls of a layer."""
_CHANGING = frozenset(("random", "secrets", "time", "uuid", "datetime", "gc"))
"""Modules whose functions return something else in each call."""
_INSTALLED = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
_OF_NEW_OBJECTS = ("__init__", "__new__", "__post_init__", "__del__", "__init_subclass__")
_OF_GRADIENTS = ("requires_grad", "requires_grad_", "is_leaf", "grad_fn", "grad")
_READING_GRADIENTS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
_LEFT_OUT = frozenset(("forward", *vars(nn.Module()))) - {"training", "_parameters", "_buffers"}
_OF_IDENTITY = frozenset(
    ("id", "hash", "__hash__", "_getframe", "currentframe", "f_locals", "environ", "getenv", "extract_stack")
)
"""Names whose value differs between modules that are otherwise equal, or between calls."""
_MISSING = object()

Read = Callable[[], list[Any]]
"""Returns the values of now of a container."""


class PythonState:
    """The values that code of ``module`` may read, as they are now.

    Functions are followed by the names that their code mentions, installed packages only within the files of the
    module's classes.

    Args:
        module: the module.
        equal: the ids of the modules that are equal to it, itself included, and of their submodules.

    Raises:
        NotComparable: if the code reads what differs in each call, such as an iterator or the time, or may observe
            which of ``equal`` the module is, as by a dictionary of modules.
    """

    def __init__(self, module: nn.Module, equal: Collection[int] = frozenset()):
        self._own = {id(part) for part in module.modules()}
        self._equal = equal
        self._reads: list[tuple[str, Read, list[Any]]] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []
        """What was visited, so that its id stays its own."""
        self._names: set[str] = {"forward"}
        self.read_with_types: set[str] = set()
        """Names in functions that call `type`, which a `WatchedNumber` does not see."""
        self._classes: dict[type, bool] = {}
        """The users' classes, and whether the code may make objects of them."""
        self._files = {
            file
            for part in module.modules()
            for kind in type(part).__mro__
            if (file := getattr(sys.modules.get(kind.__module__), "__file__", None)) is not None
        }
        self._waiting: list[tuple[str, Any]] = []
        self._visit_module(module, is_own=True)
        while self._waiting:
            while self._waiting:
                name, value = self._waiting.pop()
                try:
                    self._visit(name, value)
                except NotComparable:
                    raise
                except Exception as error:
                    raise NotComparable(f"its code reads {name}, which raises {type(error).__name__}") from error
            self._visit_methods()
        if (names := self._names & _OF_IDENTITY) != set():
            raise NotComparable(f"its code mentions {', '.join(sorted(names))}")
        self.reads_gradients = not self._names.isdisjoint(_OF_GRADIENTS) or any(
            isinstance(part, _READING_GRADIENTS) for part in module.modules()
        )
        """Whether the code may depend on which tensors require a gradient."""

    def changed(self) -> str | None:
        """Return the name of something that is not what it was; None if all is."""
        for name, read, before in self._reads:
            try:
                now = read()
            except Exception:
                return name
            if len(now) != len(before) or not all(map(_is_same, now, before)):
                return name
        return None

    def _record(self, name: str, read: Read) -> None:
        values = read()
        self._reads.append((name, read, values))
        self._waiting += [(name, value) for value in values]

    def _visit(self, name: str, value: Any) -> None:
        if id(value) in self._equal or isinstance(value, weakref.ProxyTypes):
            raise NotComparable(f"its code refers to modules by {name}, and may tell equal ones apart")
        if type(value) in CONSTANTS or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._kept.append(value)
        if len(self._seen) > _MAX_OBJECTS:
            raise NotComparable("its code refers to too many objects")
        if isinstance(value, types.FunctionType):
            self._visit_function(value)
        elif isinstance(value, types.MethodType):
            self._waiting += [(name, value.__func__), (name, value.__self__)]
        elif isinstance(value, functools.partial):
            self._waiting += [(name, part) for part in (value.func, value.args, value.keywords)]
        elif isinstance(value, type):
            self._visit_class(value, called=True)
        elif isinstance(value, Tensor):
            if not value.is_inference():
                self._reads.append((name, lambda: [value._version], [value._version]))
            if not isinstance(value, FakeTensor):
                self._record(name, lambda: _items(vars(value)))
        elif isinstance(value, types.ModuleType | logging.Logger | torch.fx.Graph):
            pass
        elif isinstance(value, nn.Module):
            self._visit_module(value)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            self._visit_builtin(name, value)
        else:
            self._visit_object(name, value)

    def _visit_builtin(self, name: str, value: Any) -> None:
        of = value.__self__
        module = of.__name__ if isinstance(of, types.ModuleType) else getattr(value, "__module__", None) or ""
        if module.partition(".")[0] in _CHANGING:
            raise NotComparable(f"its code calls {name}, which is something else each time")
        if not isinstance(of, types.ModuleType):
            self._waiting.append((name, of))

    def _visit_object(self, name: str, value: Any) -> None:
        if isinstance(value, weakref.ref):
            self._record(name, lambda: [value()])
        elif isinstance(value, Mapping):
            self._record(name, lambda: _items(value))
        elif isinstance(value, list | tuple | set | frozenset | collections.deque):
            self._record(name, lambda: [*value])
        elif isinstance(value, contextvars.ContextVar):
            self._record(name, lambda: [value.get(None)])
        elif isinstance(value, random.Random) or hasattr(type(value), "__next__"):
            raise NotComparable(f"its code reads {name}, which is something else each time")
        else:
            check_has_no_state(name, value)
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self._record(name, lambda: _items(own))
        slots = [slot for kind in type(value).__mro__ for slot in _slots(kind)]
        if slots and not _is_trusted(type(value).__module__):
            self._record(name, lambda: [getattr(value, slot, _MISSING) for slot in slots])
        self._visit_class(type(value))

    def _visit_module(self, module: nn.Module, is_own: bool = False) -> None:
        own = vars(module)
        self._seen.add(id(module))
        self._kept.append(module)
        name = type(module).__name__
        # Weights are fakes during an export. `signature` reads the other dictionaries of modules, those of hooks.
        self._record(name, lambda: [part for item in own.items() if item[0] not in _LEFT_OUT for part in item])
        self._reads.append((name, lambda: _items(own["_modules"]), _items(own["_modules"])))
        for child in own["_modules"].values():
            if child is None or id(child) in self._seen:
                continue
            if id(child) in self._equal and not (is_own and id(child) in self._own):
                raise NotComparable(f"its code refers to {name}, which has modules that are equal to it")
            self._visit_module(child, is_own)
        self._visit_class(type(module))

    def _visit_class(self, kind: type, called: bool = False) -> None:
        for base in kind.__mro__:
            if _is_trusted(base.__module__):
                continue
            if base not in self._classes:
                own = vars(base)
                self._reads.append((base.__name__, lambda own=own: _items(own), _items(own)))
            self._classes[base] = self._classes.get(base, False) or called

    def _visit_methods(self) -> None:
        """Visit attributes of classes that the code so far mentions, and all that Python itself calls."""
        for kind, called in self._classes.items():
            for name, value in vars(kind).items():
                special = name.startswith("__") and isinstance(value, types.FunctionType)
                if name in self._names or (special and (called or name not in _OF_NEW_OBJECTS)):
                    for function in _functions(value):
                        if id(function) not in self._seen and type(function) not in CONSTANTS:
                            self._waiting.append((f"{kind.__name__}.{name}", function))

    def _visit_function(self, function: types.FunctionType) -> None:
        name = function.__qualname__
        cells = function.__closure__ or ()
        if cells:
            self._record(name, lambda: [_content(cell) for cell in cells])
        if vars(function):
            self._waiting += [(name, var) for var in vars(function).values()]
            own = vars(function)
            self._reads.append((name, lambda: [*own.values()], [*own.values()]))
        if not self._is_followed(function):
            return
        self._waiting += [(name, default) for default in (function.__defaults__, function.__kwdefaults__)]
        names = set(_names(function.__code__))
        self._names |= names
        if "type" in names:
            self.read_with_types |= names
        scope = function.__globals__
        read = sorted(global_name for global_name in names if global_name in scope)
        if read:
            values = [scope[global_name] for global_name in read]
            self._reads.append((name, lambda: [scope.get(global_name, _MISSING) for global_name in read], values))
        for default in read:
            value = scope[default]
            if isinstance(value, types.ModuleType):
                self._visit_names_of(value, names)
            else:
                self._waiting.append((default, value))

    def _visit_names_of(self, module: types.ModuleType, names: set[str]) -> None:
        top = module.__name__.partition(".")[0]
        if top in _CHANGING or (top == "numpy" and ("random" in names or "random" in module.__name__)):
            raise NotComparable(f"its code calls the module {top}")
        if top in _TRUSTED:
            return
        own = vars(module)
        read = sorted(attribute for attribute in names if attribute in own)
        self._record(module.__name__, lambda: [own.get(attribute, _MISSING) for attribute in read])

    def _is_followed(self, function: types.FunctionType) -> bool:
        file = function.__code__.co_filename
        module = function.__module__ or ""
        if module.partition(".")[0] in _CHANGING:
            raise NotComparable(f"its code calls {function.__qualname__} of {module}")
        if _is_trusted(module):
            return False
        return file in self._files or not file.startswith(_INSTALLED)


def _is_same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    return type(now) is type(before) and isinstance(now, CONSTANTS) and repr(now) == repr(before)


def _is_trusted(module: str) -> bool:
    return module.partition(".")[0] in _TRUSTED


def _items(mapping: Mapping[Any, Any]) -> list[Any]:
    return [part for item in mapping.items() for part in item]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return _MISSING


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _functions(value: Any) -> Iterator[Any]:
    """Yield the functions of an attribute of a class."""
    if isinstance(value, property):
        yield from (method for method in (value.fget, value.fset) if method is not None)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, functools.cached_property):
        yield value.func
    elif not isinstance(value, type | types.GetSetDescriptorType | types.MemberDescriptorType):
        yield value


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names that ``code`` and the functions in it mention, of variables and attributes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
