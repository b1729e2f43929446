"""Python statements that define rules, passes and operators of users, for scripts and for other processes."""

from __future__ import annotations

import functools
import io
import linecache
import pickle
import sys
import sysconfig
import textwrap
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket, _OpNamespace

from fx_importer.fx_graph.operator_libraries import CustomOperator, definer_of
from fx_importer.output_types import OutputType
from fx_importer.verification.function_source import NotPythonError, described, source_of

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class Definitions:
    """Collects the statements that the expressions of objects need.

    An object that a module holds is imported from there. The source of another function or class is copied, with all
    that it reads. `text` runs without the process that defined the objects.
    """

    def __init__(self) -> None:
        self.imports: list[str] = []
        self.lines: list[str] = []
        self._names: dict[int, tuple[Any, str]] = {}  # the object too, which keeps its id
        self._open: set[int] = set()

    def __getstate__(self) -> tuple[list[str], list[str]]:
        return self.imports, self.lines

    def __setstate__(self, state: tuple[list[str], list[str]]) -> None:
        self.__init__()
        self.imports, self.lines = state

    @property
    def text(self) -> str:
        return "\n".join(["import sys", *self.imports, "import torch", "import fx_importer", *self.lines])

    def expression(self, value: Any) -> str:
        """Return a Python expression for ``value``, and collect what it needs.

        Raises:
            NotPythonError: with a sentence that says which object has no definition outside of this process.
        """
        if (known := self._names.get(id(value))) is not None:
            return known[1]
        if (text := self._value(value)) is not None:
            return text
        if path := _path_of(value):
            self._import(path[0])
            return ".".join(path)
        if id(value) in self._open:
            raise NotPythonError(f"{described(value)} calls itself through other functions: move it to a module")
        self._open.add(id(value))
        try:
            text = self._copied(value)
        finally:
            self._open.discard(id(value))
        self._names[id(value)] = value, text
        return text

    def remember(self, value: Any, expression: str) -> None:
        """Use ``expression`` for ``value``, which it made."""
        self._names[id(value)] = value, expression

    def operator(self, operator: Any) -> None:
        """Collect what registers ``operator``, if it is a custom one.

        Raises:
            NotPythonError: if this cannot be imported by another process.
        """
        definer = definer_of(operator)
        if definer is None:
            return
        if definer.module is not None:
            self._import(definer.module)
        elif definer.library is not None:
            self._add(f"torch.ops.load_library({definer.library!r})")
        elif (module := _module_of_file(definer.file)) is not None:
            self._import(module)
        elif definer.custom is not None:
            self._registered(definer.custom)
        elif (module := _module_with(f"{operator}".partition(".")[0])) is not None:
            self._import(module)
        else:
            at = f"in {definer.file}, the program that runs" if definer.file else "at an unknown place"
            raise NotPythonError(f"torch.ops.{operator} is registered {at}: move this to a module, and import it")

    def _value(self, value: Any) -> str | None:
        """Return the expression of a value that has a literal or is made of parts; None for other objects."""
        match value:
            case float() if value != value or value in (float("inf"), float("-inf")):
                return f"float('{value}')"
            case Enum() if isinstance(value.value, str) and type(value).__module__.startswith("fx_importer."):
                return repr(value.value)
            case _ if type(value) in _PLAIN:
                return repr(value)
            case torch.dtype() | torch.memory_format() | torch.layout():
                return str(value)
            case torch.device():
                return f"torch.{value!r}"
            case HigherOrderOperator():
                return f"torch.ops.higher_order.{value}"
            case OpOverload() | OpOverloadPacket():
                self.operator(value)
                return f"torch.ops.{value}"
            case _OpNamespace():
                return f"torch.ops.{value.name}"
            case torch.Tensor() if type(value) is torch.Tensor and value.device.type == "cpu" and value.numel() <= 64:
                return f"torch.tensor({self.expression(value.tolist())}, dtype={value.dtype})"
            case OutputType():
                return repr(value.value) if value.base is None else self._output_type(value)
            case tuple() if type(value) is tuple:
                return f"({', '.join(map(self.expression, value))}{',' * (len(value) == 1)})"
            case list() if type(value) is list:
                return f"[{', '.join(map(self.expression, value))}]"
            case set() | frozenset() if value:
                text = f"{{{', '.join(sorted(map(self.expression, value)))}}}"
                return f"frozenset({text})" if isinstance(value, frozenset) else text
            case dict() if type(value) is dict:
                items = (f"{self.expression(key)}: {self.expression(item)}" for key, item in value.items())
                return f"{{{', '.join(items)}}}"
            case MethodType():
                return f"{self.expression(value.__self__)}.{value.__name__}"
            case functools.partial():
                bound = [self.expression(argument) for argument in (value.func, *value.args)]
                bound += [f"{name}={self.expression(keyword)}" for name, keyword in value.keywords.items()]
                self._add_import("import functools")
                return f"functools.partial({', '.join(bound)})"
        return None

    def _copied(self, value: Any) -> str:
        """Return the name of a copy of ``value``, from its source or its parts."""
        if isinstance(value, FunctionType | type) or hasattr(value, "__wrapped__"):
            source = source_of(value)
            bound = {name: self.expression(item) for name, item in source.reads.items()}
            return self._variable(self._function(source.name, source.text, bound))
        if (as_python := getattr(value, "as_python", None)) is not None:
            return as_python(self.expression)
        raise NotPythonError(
            f"{described(value)} is of the class '{type(value).__qualname__}', and no module holds it: assign it to a "
            "name at the top of a module, and import it"
        )

    def _function(self, name: str, text: str, bound: Mapping[str, str]) -> str:
        """Add a function that binds names and makes an object; return its call."""
        maker = f"_make_{len(self.lines)}"
        body = textwrap.indent(f"{text}\nreturn {name}", "    ")
        self._add(f"\n\ndef {maker}({', '.join(bound)}):\n{body}\n\n")
        return f"{maker}({', '.join(bound.values())})"

    def _variable(self, expression: str) -> str:
        name = f"made_{len(self.lines)}"
        self._add(f"{name} = {expression}")
        return name

    def _registered(self, custom: CustomOperator) -> None:
        """Add calls that register a custom operator of the program that runs."""
        made = f"registered_{custom.name.replace('::', '_')}"
        if any(line.startswith(f"{made} = ") for line in self.lines):
            return
        function = self.expression(custom.function)
        settings = f"mutates_args={custom.mutates!r}, schema={custom.schema!r}"
        self._add(f"{made} = torch.library.custom_op({custom.name!r}, {function}, {settings})")
        if custom.fake is not None:
            self._add(f"{made}.register_fake({self.expression(custom.fake)})")
        if custom.backward is not None:
            setup = f", setup_context={self.expression(custom.setup_context)}" if custom.setup_context else ""
            self._add(f"{made}.register_autograd({self.expression(custom.backward)}{setup})")

    def _output_type(self, output_type: OutputType) -> str:
        if (module := _module_of_file(output_type.where.rpartition(":")[0])) is not None:
            self._import(module)
            return repr(output_type.value)
        fields = {
            name: self.expression(item)
            for name in ("base", "pipeline", "allows", "decompositions")
            if (item := getattr(output_type, name))
        }
        arguments = ", ".join([repr(output_type.value), *(f"{name}={text}" for name, text in fields.items())])
        self._add(f"fx_importer.OutputType.define({arguments})")
        self._names[id(output_type)] = output_type, repr(output_type.value)
        return repr(output_type.value)

    def _import(self, module: str) -> None:
        if root := _root(module):
            self._add_import(f"sys.path.insert(0, {root!r})")
        if module not in ("sys", "torch", "fx_importer", "builtins"):
            self._add_import(f"import {module}")

    def _add_import(self, line: str) -> None:
        if line not in self.imports:
            self.imports.append(line)

    def _add(self, line: str) -> None:
        if line not in self.lines:
            self.lines.append(line)


def pickled(value: Any, definitions: Definitions) -> bytes:
    """Return ``value`` as bytes that another process reads with `unpickled`, once it has run ``definitions``.

    Raises:
        NotPythonError: for a function that has no definition outside of this process.
        pickle.PicklingError, TypeError, AttributeError: for another object that cannot be pickled.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.definitions = definitions
    pickler.dump(value)
    return file.getvalue()


def unpickled(data: bytes, definitions: Definitions) -> Any:
    """Run ``definitions`` and return the value that `pickled` wrote. The process that wrote it is trusted."""
    names: dict[str, Any] = {}
    exec(compile(definitions.text, "<definitions>", "exec"), names)
    unpickler = _Unpickler(io.BytesIO(data))
    unpickler.definitions, unpickler.names = definitions, names
    return unpickler.load()


class _Pickler(pickle.Pickler):
    """Writes functions, operators, and rules that a module holds, as expressions."""

    definitions: Definitions

    def persistent_id(self, obj: Any) -> str | None:
        named = isinstance(obj, FunctionType | OpOverload | OpOverloadPacket | HigherOrderOperator) or (
            hasattr(obj, "as_python") and _path_of(obj) is not None
        )
        return self.definitions.expression(obj) if named else None


class _Unpickler(pickle.Unpickler):
    definitions: Definitions
    names: dict[str, Any]

    def persistent_load(self, pid: str) -> Any:
        value = eval(pid, self.names)
        self.definitions.remember(value, pid)
        return value


def _path_of(value: Any) -> tuple[str, ...] | None:
    """Return the module that holds ``value``, and the attributes that lead to it; None if there is none."""
    if isinstance(value, ModuleType) and _is_importable(value.__name__):
        return (value.__name__,)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and _is_importable(module):
        holder: Any = sys.modules[module]
        for part in name.split("."):
            holder = getattr(holder, part, None)
        if holder is value:
            return module, name
        for attribute, item in vars(holder).items() if hasattr(holder, "__dict__") else ():
            if item is value:  # a decorator put the function into another object
                return module, name, attribute
    return _held_by_module(value)


def _held_by_module(value: Any) -> tuple[str, str] | None:
    """Return a module and the name of a global of it that is ``value``; the shortest if there are several."""
    paths = [
        (module, name)
        for module, holder in list(sys.modules.items())
        if _is_importable(module)
        for name, item in list(vars(holder).items())
        if item is value and name.isidentifier()
    ]
    return min(paths, key=lambda path: (len(path[0]), path), default=None)


def _is_importable(module: str) -> bool:
    """Whether another process can import ``module`` by its name."""
    loaded = sys.modules.get(module)
    return module not in ("__main__", "__mp_main__") and getattr(loaded, "__spec__", None) is not None


def _module_of_file(file: str | None) -> str | None:
    """Return the name of the importable module that ``file`` defines."""
    for name, module in list(sys.modules.items()):
        if file and getattr(module, "__file__", None) == file and _is_importable(name):
            return name
    return None


def _module_with(namespace: str) -> str | None:
    """Return the importable module of the user whose source registers operators of ``namespace``."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and _is_importable(name) and not file.startswith(_INSTALLED):
            text = "".join(linecache.getlines(file))
            if f"{namespace}::" in text and "torch.library" in text:
                return name
    return None


def _root(module: str) -> str | None:
    """Return the directory that a process needs in ``sys.path`` to import ``module``, unless it is installed."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or file.startswith(_INSTALLED) or module.partition(".")[0] == "fx_importer":
        return None
    path = Path(file)
    levels = module.count(".") + (path.name == "__init__.py")
    return str(path.parents[levels])
