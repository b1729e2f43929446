"""The interface of native code: entry points, their arguments in C, state and the block of weights, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fx_importer.errors import UsageError
from fx_importer.manifest import Argument, Function, Manifest, Result, Scale
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import functions_of
from fx_importer.rewrites.llvm.entry_point import required_fact
from fx_importer.rewrites.llvm.runtime_checks import MESSAGES
from fx_importer.rewrites.native.destinations import DESTINATIONS
from fx_importer.rewrites.native.memory_plan import ARENA, DIMENSIONS
from fx_importer.symbolic.expressions import SizeExpression

C_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "bool": "bool",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float8_e4m3fn": "uint8_t",
    "float8_e5m2": "uint8_t",
    "float8_e4m3fnuz": "uint8_t",
    "float8_e5m2fnuz": "uint8_t",
    "complex64": "float",
    "complex128": "double",
    "int": "int64_t",
    "float": "double",
}
"""The type of C of an element, or a number, by its name in torch. Complex numbers are pairs; floats without a type of C
are their bits."""
_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await co_return co_yield "
    "compl complex concept const const_cast consteval constexpr constinit continue decltype default delete do double "
    "dynamic_cast else enum errno explicit export extern false float for friend goto if imaginary inline int linux "
    "long main mutable namespace new noexcept noreturn not not_eq nullptr operator or or_eq private protected public "
    "register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct "
    "switch template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unix "
    "unsigned using virtual void volatile while xor xor_eq arena arena_bytes state status weights"
)
"""Names that C or C++ has, in lower case, or that parameters and variables of every function have."""
_NOT_ENTRIES = (
    *("status_text", "check_processor", "create", "reset", "destroy", "map_weights", "unmap_weights"),
    *("state", "weight_data"),
)
_SUFFIXES = ("_arena_bytes", "_arena_code", "_code", "_fits")
"""Names, after the prefix of the library, that are not entry points, and ends of names that entry points add."""


@dataclass(frozen=True)
class Value:
    """A tensor or a number that an entry point takes or writes."""

    kind: str
    """``input``, ``state``, ``weight``, ``output``, ``gradient`` or ``check``."""
    name: str
    """The name in the manifest."""
    c_name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    """None for a number that is passed by value; a text is an expression of `EntryPoint.sizes`."""
    written: bool = False
    in_memory: bool = False
    """Whether the code takes a number in memory, as a tensor of rank 0."""
    scale: Scale | None = None
    """Scale and zero point of integers that stand for numbers."""

    @property
    def c_type(self) -> str:
        """The type of C of an element."""
        return C_TYPES[self.dtype]

    @property
    def sizes(self) -> tuple[int | str, ...]:
        """The sizes in memory: pairs for complex numbers."""
        return (*(self.shape or ()), *((2,) if self.dtype.startswith("complex") else ()))


@dataclass(frozen=True)
class Size:
    """A size that the caller passes."""

    name: str
    c_name: str
    least: int
    greatest: int | None


@dataclass(frozen=True)
class EntryPoint:
    """A function of the library."""

    function: str
    """The name in the manifest."""
    c_name: str
    """The name after the prefix of the library."""
    arguments: tuple[Value, ...]
    """In the order of the code."""
    results: tuple[Value | None, ...]
    """In the order of the code's destinations; None for new state, which replaces the old one."""
    sizes: tuple[Size, ...]
    guards: tuple[str, ...]
    arena: int
    """The bytes of the arena that do not depend on sizes."""
    dimensions: tuple[tuple[int, int], ...]
    """The arguments and axes whose sizes the code of ``arena_bytes`` takes; none if the arena has a constant size."""
    messages: tuple[str, ...]
    """The texts of statuses, from `FIRST_STATUS` on, of this function."""

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The results that have memory of their own."""
        return tuple(result for result in self.results if result is not None)


def identifier(text: str, names: Sequence[str] = ()) -> str:
    """Return ``text`` as a name in C, other than ``names``."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "value"
    name = f"_{name}"[not name[0].isdigit() :]
    if name in _WORDS.split() or name.endswith("_t"):  # types end so
        name += "_"
    return _unique(name, names)


def _unique(name: str, names: Sequence[str]) -> str:
    unique, number = name, 2
    while unique in names:
        unique, number = f"{name}_{number}", number + 1
    return unique


def entry_names(functions: Sequence[str]) -> Mapping[str, str]:
    """Return the names of ``functions`` in C, after the prefix of the library: each a different one."""
    names: dict[str, str] = {}
    for function in sorted(functions, key=lambda name: name != "main"):
        name = "run" if function == "main" else identifier(function)
        name += "_" * name.endswith(_SUFFIXES)
        names[function] = _unique(name, (*_NOT_ENTRIES, *names.values()))
    return names


def entry_of(module: ir.Module, name: str, manifest: Manifest) -> EntryPoint:
    """Return the interface of the function ``name`` of ``module``, in loops over memrefs.

    Raises `UsageError` if a result has a size that does not follow from sizes of inputs.
    """
    function = manifest.functions[name]
    names: list[str] = []
    (code,) = (candidate for candidate in functions_of(module).values() if candidate.name.value == name)
    arguments = tuple(
        _argument(argument, names, isinstance(kind, ir.MemRefType))
        for argument, kind in zip(function.arguments, code.type.inputs, strict=False)
    )
    sizes = _sizes(function, arguments, names)
    positions = required_fact(module, DESTINATIONS)
    results = tuple(
        None if position < len(function.arguments) else _result(result, names)
        for result, position in zip(function.results, _in_manifest_order(positions, function), strict=True)
    )
    known = {size.name for size in sizes}
    for value in results:
        for size in value.shape or () if value else ():
            if isinstance(size, str) and (unknown := SizeExpression(size).symbols - known):
                raise UsageError(
                    f"the result '{value.name if value else ''}' of '{name}' has a size that depends on values: "
                    f"{', '.join(sorted(unknown))}. A C function writes to memory of its caller, who knows sizes of "
                    "inputs only"
                )
    return EntryPoint(
        name,
        entry_names(list(manifest.functions))[name],
        arguments,
        results,
        sizes,
        function.guards,
        required_fact(module, ARENA),
        tuple(map(tuple, required_fact(module, DIMENSIONS))),
        tuple(required_fact(module, MESSAGES)),
    )


def _in_manifest_order(positions: Sequence[int], function: Function) -> Sequence[int]:
    """Return the argument that each result is written to. Code does not return state that it overwrites in place."""
    if len(positions) == len(function.results):
        return positions
    returned = iter(positions)
    names = {argument.name: number for number, argument in enumerate(function.arguments) if argument.kind == "state"}
    missing = len(function.results) - len(positions)
    written: list[int] = []
    for result in function.results:
        if result.kind == "state" and missing:
            missing -= 1
            written.append(names[result.name])
        else:
            written.append(next(returned))
    return written


def _argument(argument: Argument, names: list[str], in_memory: bool) -> Value:
    value = _value(argument.kind, argument, names, argument.overwritten)
    return replace(value, in_memory=in_memory and value.shape is None)


def _result(result: Result, names: list[str]) -> Value:
    value = _value("input" if result.kind == "input" else result.kind, result, names, True)
    return value if value.shape is not None else replace(value, shape=())


def _value(kind: str, described: Argument | Result, names: list[str], written: bool) -> Value:
    dtype, shape = described.passed_as or described.type.dtype, described.type.shape
    if described.passed_as is not None and described.type.dtype.startswith("complex") and shape is not None:
        shape = (*shape, 2)
    if dtype not in C_TYPES:
        raise UsageError(f"'{described.name}' is of {dtype}, for which C has no type")
    prefix = {"gradient": "gradient_of_", "input": "new_" if isinstance(described, Result) else ""}.get(kind, "")
    name = described.name.removeprefix("output.") if kind == "output" else described.name
    c_name = identifier(prefix + name, names)
    names.append(c_name)
    return Value(kind, described.name, c_name, dtype, shape, written, scale=described.scale)


def _sizes(function: Function, arguments: Sequence[Value], names: list[str]) -> tuple[Size, ...]:
    """Return the symbols that sizes of inputs are made of, in order."""
    ranges: Mapping[str, tuple[int, int | None]] = function.symbols
    declared: list[Size] = []
    for value in arguments:
        for size in value.shape or ():
            for symbol in sorted(SizeExpression(size).symbols) if isinstance(size, str) else ():
                if symbol not in [size.name for size in declared]:
                    least, greatest = ranges.get(symbol, (0, None))
                    c_name = identifier(symbol, names)
                    names.append(c_name)
                    declared.append(Size(symbol, c_name, least, greatest))
    return tuple(declared)
