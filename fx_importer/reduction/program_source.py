"""A small program as readable Python source: a module that calls operators, and its inputs."""

from __future__ import annotations

import dataclasses
import keyword
import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from fx_importer.fx_graph.programs import held_value
from fx_importer.reduction.subprogram import example_leaves
from fx_importer.verification.python_source import NotPythonError, Raw, call_source, literal

LITERAL = 64
"""Maximum number of elements of a tensor that is written as a literal."""


class Fill(Enum):
    """The values of a tensor."""

    SAVED = "saved"
    """Its values in the whole program, in a file beside the script."""
    LITERAL = "literal"
    """The same values, as a literal."""
    RANDOM = "random"
    ONES = "ones"
    ZEROS = "zeros"


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or a weight."""

    name: str
    data: torch.Tensor
    """Its values in the whole program, or the leading slice of them that is left."""
    fill: Fill
    dynamic: tuple[int, ...] = ()
    """Dynamic axes."""
    weight: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.shape)) if self.shape else "()"
        dtype = "" if self.data.dtype is torch.float32 else f", dtype={self.data.dtype}"
        match self.fill:
            case Fill.SAVED:
                return f"saved[{self.name!r}]"
            case Fill.LITERAL:
                return f"torch.tensor({literal(self.data.tolist())}, dtype={self.data.dtype})"
            case Fill.RANDOM:
                return f"torch.randn({sizes}{dtype})"
            case Fill.ONES | Fill.ZEROS:
                return f"torch.{self.fill.value}({sizes}{dtype})"

    def can_be(self, fill: Fill) -> bool:
        """Return whether ``fill`` can produce this tensor."""
        dtype = self.data.dtype
        if fill is Fill.RANDOM:
            return dtype.is_complex or dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
        return fill is not Fill.LITERAL or self.data.numel() <= LITERAL


@dataclasses.dataclass(frozen=True)
class Line:
    """A call whose result is assigned to a name."""

    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        if self.target is operator.getitem:
            value, index = self.args
            return f"{self.name} = {literal(value)}[{literal(index)}]"
        return f"{self.name} = {call_source(function_source(self.target), self.args, self.kwargs)}"


def function_source(target: Callable[..., Any]) -> str:
    """Return the target of a node as Python source.

    Raise `NotPythonError` if it cannot be called with plain arguments.
    """
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    module = {"_operator": "operator", "torch": "torch", "math": "math"}.get(module or "")
    if module is None or not name.isidentifier():
        raise NotPythonError(target)
    return f"{module}.{name}"


@dataclasses.dataclass(frozen=True)
class Listing:
    """The source of a program. Immutable: changes return a new one."""

    tensors: tuple[Tensor, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if not tensor.weight)

    @property
    def saved(self) -> dict[str, torch.Tensor]:
        """The tensors that the script reads from a file."""
        return {tensor.name: tensor.data.clone() for tensor in self.tensors if tensor.fill is Fill.SAVED}

    @property
    def signature(self) -> str:
        """The types of the inputs, for display: ``float32[2x3], int64[?]``."""
        return ", ".join(map(_kind, self.tensors)) or "nothing"

    @property
    def dynamic_shapes(self) -> bool:
        return any(argument.dynamic for argument in self.inputs)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Listing:
        """Return the program with ``change`` applied to its tensors."""
        return dataclasses.replace(self, tensors=tuple(map(change, self.tensors)))

    def __str__(self) -> str:
        """Return Python source that defines ``Model`` and ``inputs``, and ``dynamic_shapes`` if there are any."""
        parameters = "".join(f", {argument.name}" for argument in self.inputs)
        weights = [tensor for tensor in self.tensors if tensor.weight]
        lines = ["torch.manual_seed(0)", "", "", "class Model(torch.nn.Module):"]
        if weights:
            lines += ["    def __init__(self):", "        super().__init__()"]
            lines += [f"        self.register_buffer({tensor.name!r}, {tensor})" for tensor in weights]
            lines.append("")
        lines.append(f"    def forward(self{parameters}):")
        lines += [f"        {weight.name} = self.{weight.name}" for weight in weights]
        lines += [f"        {line}" for line in self.lines]
        returned = self.outputs[0] if len(self.outputs) == 1 else f"({', '.join(self.outputs)})"
        lines += [f"        return {returned}", "", ""]
        lines.append(f"inputs = ({''.join(f'{input_}, ' for input_ in self.inputs)})".replace(", )", ",)"))
        if self.dynamic_shapes:
            lines.append(f"dynamic_shapes = ({''.join(f'{_dynamic(input_)}, ' for input_ in self.inputs)})")
        return "\n".join(lines)

    def built(self) -> tuple[torch.nn.Module, tuple[Any, ...], Any]:
        """Return the model, its inputs and its dynamic shapes, made by running the Python source."""
        names: dict[str, Any] = {"torch": torch, "operator": operator, "saved": self.saved}
        exec(f"import math\n{self}", names)  # the same source as in the script
        return names["Model"](), names["inputs"], names.get("dynamic_shapes")


def _kind(tensor: Tensor) -> str:
    sizes = "x".join("?" if axis in tensor.dynamic else str(size) for axis, size in enumerate(tensor.shape))
    return f"{str(tensor.data.dtype).removeprefix('torch.')}[{sizes}]" + (" (a weight)" if tensor.weight else "")


def _dynamic(tensor: Tensor) -> str:
    axes = (f"{axis}: torch.export.Dim.AUTO" for axis in tensor.dynamic)
    return f"{{{', '.join(axes)}}}"


def listed(program: ExportedProgram, *, numbers: bool) -> Listing:
    """Return ``program`` as Python source.

    Tensors keep their values if the failure depends on ``numbers``; otherwise they get simple ones.

    Raises:
        UnspeakableError: if it calls, takes or returns something without Python source: graphs, objects, new state.
    """
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes}
    examples = example_leaves(program)
    names = _Names()
    tensors: list[Tensor] = []
    for spec in signature.input_specs:
        weight = spec.kind is not InputKind.USER_INPUT
        value = held_value(program, spec) if weight else examples[spec.arg.name]
        node = nodes[spec.arg.name]
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            raise NotPythonError(value)
        sizes = node.meta["val"].shape
        dynamic = () if weight else tuple(axis for axis, size in enumerate(sizes) if not isinstance(size, int))
        tensor = Tensor(names.of(node), value.detach(), Fill.SAVED, dynamic, weight)
        tensors.append(tensor if numbers else dataclasses.replace(tensor, fill=_simplest(tensor)))
    lines: list[Line] = []
    for node in program.graph.nodes:
        if node.op == "call_function":
            args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda item: Raw(names.of(item)))
            lines.append(Line(names.of(node), node.target, args, kwargs))
            str(lines[-1])  # raises if it has no Python source
        elif node.op not in ("placeholder", "output"):
            raise NotPythonError(node.target)
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs):
        raise NotPythonError("new state")
    returned = [nodes[spec.arg.name] for spec in signature.output_specs]
    return Listing(tuple(tensors), tuple(lines), tuple(map(names.of, returned)))


def _simplest(tensor: Tensor) -> Fill:
    return Fill.RANDOM if tensor.can_be(Fill.RANDOM) else Fill.ZEROS


class _Names:
    """Unique Python identifiers for nodes."""

    def __init__(self) -> None:
        self.given: dict[fx.Node, str] = {}

    def of(self, node: fx.Node) -> str:
        if node not in self.given:
            name = "".join(character if character.isalnum() else "_" for character in node.name)
            if keyword.iskeyword(name) or name in ("torch", "self", "operator", "math") or name in self.given.values():
                name = f"{name}_{len(self.given)}"
            self.given[node] = name
        return self.given[node]


def resized(line: Line, change: Callable[[int], int]) -> Line:
    """Return ``line`` with ``change`` applied to the arguments that its operator's schema declares as sizes, positions
    and steps."""
    if not isinstance(line.target, OpOverload):
        return line
    schema = line.target._schema.arguments
    sizes = {argument.name for argument in schema if _is_size(argument.real_type)}

    def changed(name: str, value: Any) -> Any:
        if name in sizes and isinstance(value, list | tuple):
            return [change(item) if type(item) is int else item for item in value]
        return change(value) if name in sizes and type(value) is int else value

    args = tuple(changed(argument.name, value) for argument, value in zip(schema, line.args, strict=False))
    return dataclasses.replace(line, args=args, kwargs={key: changed(key, item) for key, item in line.kwargs.items()})


def _is_size(kind: Any) -> bool:
    while kind.kind() in ("ListType", "OptionalType"):
        kind = kind.getElementType()
    return kind.kind() == "SymIntType"
