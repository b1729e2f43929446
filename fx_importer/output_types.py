"""Built-in and user-defined output types, and TOSA targets."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, ClassVar

from fx_importer.errors import UsageError

ENTRY_POINTS = "fx_importer.output_types"
"""Entry point group of output types of other packages: the name, and the module that defines it."""


class _Kind(type):
    """Metaclass that makes the class iterable like an enumeration of the built-in output types."""

    def __iter__(cls) -> Iterator[OutputType]:
        return (output_type for output_type in _DEFINED.values() if output_type.base is None)

    def __len__(cls) -> int:
        return len(list(iter(cls)))

    def __contains__(cls, output_type: object) -> bool:
        return any(output_type is own for own in iter(cls))

    @property
    def __members__(cls) -> Mapping[str, OutputType]:
        return MappingProxyType({output_type.name: output_type for output_type in cls})

    def __getitem__(cls, name: str) -> OutputType:
        """Return the built-in output type of exactly that name, ``OutputType["TOSA"]``. Raises KeyError."""
        return cls.__members__[name]

    def __reversed__(cls) -> Iterator[OutputType]:
        return reversed(list(cls))

    def __call__(cls, spec: Any) -> OutputType:
        return OutputType.get(spec)


@dataclass(frozen=True, eq=False, repr=False)
class OutputType(metaclass=_Kind):
    """Form of the lowered module. There is one object per name. Iterating yields the five built-in ones."""

    value: str
    """The canonical name."""
    base: OutputType | None = None
    """The base of a user-defined output type, which provides its decompositions, dtypes and pipeline."""
    pipeline: Any = None
    """A `Pipeline` to run instead of the base's, or a function that takes that one and returns another."""
    allows: frozenset[str] = frozenset()
    """The dialects and single operations that a module may hold; by default those of the base."""
    decompositions: Any = None
    """A table to use instead of the base's, or a function that takes that one and returns another."""
    where: str = ""
    """The source location of the definition."""

    RAW: ClassVar[OutputType]
    """The torch dialect as imported, before any pass."""
    TORCH: ClassVar[OutputType]
    """The torch dialect in backend form: inlined, canonical, with ops decomposed that no backend supports."""
    LINALG_ON_TENSORS: ClassVar[OutputType]
    """``linalg``, ``tensor``, ``arith``, ``math``, ``scf`` on builtin tensors."""
    TOSA: ClassVar[OutputType]
    """The TOSA dialect."""
    STABLEHLO: ClassVar[OutputType]
    """The StableHLO dialect."""

    @property
    def name(self) -> str:
        """The canonical name as an identifier: ``LINALG_ON_TENSORS``."""
        return self.value.upper().replace("-", "_")

    @property
    def root(self) -> OutputType:
        """The built-in output type that it derives from, or itself if it is built-in."""
        return self if self.base is None else self.base.root

    @classmethod
    def get(cls, spec: str | Enum | OutputType) -> OutputType:
        """Return the output type that ``spec`` names.

        ``spec`` is an output type, a member of an enumeration with the same names (torch-mlir's), or any spelling of a
        name: case, ``-``, ``_`` and spaces are ignored, and ``linalg`` is short for ``linalg-on-tensors``. Unknown
        names are looked up in the entry points `ENTRY_POINTS` of installed packages.

        Raises:
            UsageError: (a ``ValueError``) for an unknown name; the message lists the accepted ones.
        """
        if isinstance(spec, OutputType):
            return spec
        name = spec.name if isinstance(spec, Enum) else spec
        if isinstance(name, str):
            if output_type := _find(name):
                return output_type
            for offer in entry_points(group=ENTRY_POINTS):
                if _key(offer.name) == _key(name):
                    return _loaded(offer)
        offered = [offer.name for offer in entry_points(group=ENTRY_POINTS)]
        accepted = ", ".join(f"'{offer}'" for offer in dict.fromkeys([*(e.value for e in _DEFINED.values()), *offered]))
        raise UsageError(f"unknown output type {spec!r}: accepted are {accepted} (in any case, with '-' or '_')")

    @classmethod
    def define(
        cls,
        name: str,
        *,
        base: str | OutputType,
        pipeline: Any = None,
        allows: Iterable[str] = (),
        decompositions: Mapping[Any, Callable[..., Any]] | Callable[..., Mapping[Any, Any]] | None = None,
    ) -> OutputType:
        """Define an output type based on another, register it under its name, and return it.

        Args:
            name: its name: letters, digits, ``-`` and ``_``.
            base: the output type whose decompositions, dtypes and pipeline it starts from.
            pipeline: a function that takes the base's `Pipeline` and returns another, ``lambda pipeline:
                pipeline.before("contract", my_pass)``; or a whole one. A stage ``contract`` is appended if missing.
            allows: the dialects that its modules may hold in addition to ``builtin`` and ``func``, and operations,
                ``{"npu", "tosa", "arith.constant"}``. Operations of a dialect unknown to MLIR are
                unregistered. By default, the contract is the base's.
            decompositions: a function that takes the base's table and returns another, or a whole table.

        Raises:
            UsageError: if the name is taken or invalid, the base is unknown, or an argument is invalid.
        """
        caller = sys._getframe(1)
        where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        if not re.fullmatch(r"[A-Za-z][\w-]*", name):
            raise UsageError(f"{name!r} names no output type: a name is of letters, digits, '-' and '_'")
        if existing := _find(name):
            of = f"defined at {existing.where}" if existing.base else "one of the package's own"
            raise UsageError(
                f"output type '{name}', at {where}: there is '{existing.value}' already, {of}"
                + (f"; OutputType.forget({existing.value!r}) takes it away" if existing.base else "")
            )
        if isinstance(allows, str):
            raise UsageError(f"output type '{name}': allows is a set of dialects: allows={{{allows!r}}}")
        allowed = frozenset(allows)
        if wrong := [name for name in allowed if not re.fullmatch(r"[A-Za-z_][\w$.-]*", name)]:
            raise UsageError(f"output type '{name}': allows has {wrong[0]!r}, which names no dialect and no operation")
        if not (decompositions is None or callable(decompositions) or isinstance(decompositions, Mapping)):
            raise UsageError(
                f"output type '{name}': decompositions={decompositions!r} is neither a table nor a function of one"
            )
        return _put(name, OutputType.get(base), pipeline, allowed, decompositions, where)

    @classmethod
    def forget(cls, name: str) -> None:
        """Unregister an output type of `define`. Raises `UsageError` if there is none of that name."""
        output_type = _find(name)
        if output_type is None or output_type.base is None:
            raise UsageError(f"no output type '{name}' was defined")
        del _DEFINED[_key(name)]

    def __repr__(self) -> str:
        return f"<OutputType.{self.name}>" if self.base is None else f"<OutputType '{self.value}', at {self.where}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.base is None:
            return OutputType.get, (self.value,)
        return _again, (self.value, self.base, self.pipeline, self.allows, self.decompositions, self.where)


_DEFINED: dict[str, OutputType] = {}
_SHORT = {"linalg": "linalgontensors"}


def _put(value: str, *rest: Any) -> OutputType:
    _DEFINED[_key(value)] = made = type.__call__(OutputType, value, *rest)
    return made


def _again(value: str, *rest: Any) -> OutputType:
    """Rebuild a pickled output type: the registered one of that name, if there is one."""
    return _find(value) or _put(value, *rest)


def _find(name: str) -> OutputType | None:
    return _DEFINED.get(_SHORT.get(_key(name), _key(name)))


def _key(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch not in "-_ ")


def _loaded(offer: EntryPoint) -> OutputType:
    """Return the output type that the module of an entry point defines."""
    package = f"the package '{offer.dist.name}'" if offer.dist else "a package"
    try:
        offer.load()
    except Exception as error:  # third-party code may raise anything
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"output type '{offer.name}' is of {package}, whose '{offer.value}' cannot be imported: {problem}"
        ) from error
    if output_type := _find(offer.name):
        return output_type
    raise UsageError(
        f"output type '{offer.name}' is of {package}, whose '{offer.value}' defines none: it has to call "
        f"OutputType.define({offer.name!r}, ...)"
    )


OutputType.RAW = _put("raw")
OutputType.TORCH = _put("torch")
OutputType.LINALG_ON_TENSORS = _put("linalg-on-tensors")
OutputType.TOSA = _put("tosa")
OutputType.STABLEHLO = _put("stablehlo")


_TOSA_ALLOWS = {
    "version": ("1.0", "1.1.draft"),
    "profiles": ("pro_int", "pro_fp"),
    "extensions": (
        *("int4", "int16", "int64", "bf16", "fp8e4m3", "fp8e5m2", "fft", "variable", "controlflow", "dynamic"),
        *("doubleround", "inexactround", "shape", "mxfp"),
    ),
    "level": ("none", "8k"),
}


@dataclass(frozen=True)
class TosaTarget:
    """Version, profiles, extensions and level of TOSA that a module is validated against; `get` parses ``str()``."""

    version: str = "1.1.draft"
    """The version of the specification. 64-bit integers came with the draft of 1.1."""
    profiles: tuple[str, ...] = ("pro_int", "pro_fp")
    extensions: tuple[str, ...] = ("int16", "int64", "bf16", "fp8e4m3", "fp8e5m2", "fft", "controlflow", "shape")
    """``shape`` computes sizes, in modules with dynamic sizes only."""
    level: str = "8k"

    @classmethod
    def get(cls, spec: str | TosaTarget) -> TosaTarget:
        """Parse ``version=1.0 profiles=pro_int,pro_fp extensions=bf16 level=8k``. Omitted keys have defaults.

        Raises:
            UsageError: for an invalid name or value, listing the accepted ones.
        """
        if isinstance(spec, TosaTarget):
            return spec
        parts: dict[str, Any] = {}
        for part in spec.split():
            key, _, text = part.partition("=")
            if key not in _TOSA_ALLOWS:
                raise UsageError(f"TOSA target {spec!r}: no {key!r}; accepted are {', '.join(_TOSA_ALLOWS)}")
            values = tuple(filter(None, text.split(",")))
            several = key in ("profiles", "extensions")
            if set(values) - set(_TOSA_ALLOWS[key]) or (not several and len(values) != 1):
                accepted = ", ".join(_TOSA_ALLOWS[key])
                raise UsageError(f"TOSA target {spec!r}: {key} is {text!r}; accepted are {accepted}")
            parts[key] = values if several else text
        return cls(**parts)

    def as_python(self, _expression: Callable[[Any], str]) -> str:
        """Return the Python expression that `lower` takes for it."""
        return repr(str(self))

    def __str__(self) -> str:
        profiles, extensions = ",".join(self.profiles), ",".join(self.extensions)
        return f"version={self.version} profiles={profiles} extensions={extensions} level={self.level}"


NARROW_TOSA = TosaTarget("1.0", extensions=("int16", "bf16", "fp8e4m3", "fp8e5m2", "fft", "controlflow"))
"""The target that a module without 64-bit integers is validated against."""
