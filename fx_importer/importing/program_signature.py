"""A program's graph signature as a function's: what is an argument, what is a constant, what is a result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind

from fx_importer import manifest
from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.programs import held_value, is_empty, is_weight, storage_view_key
from fx_importer.importing.pytrees import symbol_ranges, tree_of, value_type
from fx_importer.options import Mutation, Weights


@dataclass(frozen=True)
class Argument:
    """An argument of the function."""

    node: fx.Node
    name: str
    constant: ConstantArgument | None = None
    """Set where the program was exported for one value of this (Python) argument."""
    kind: Literal["input", "state", "weight"] = "input"
    """Of a buffer or a parameter, which it is unless it is an input, ``name`` is the name in the state dict."""
    also: tuple[fx.Node, ...] = ()
    """Of a weight: the nodes of its other names."""
    leaf: int | None = None
    """Of a user's input: which leaf of the inputs it is."""
    overwritten_by: fx.Node | None = None
    """The node whose value is written into this argument: it is then a ``!torch.tensor``."""


@dataclass(frozen=True)
class Constant:
    """A parameter, buffer or tensor constant, and its value."""

    node: fx.Node
    spec: InputSpec
    tensor: torch.Tensor
    stored: fx.Node | None = None
    """The node whose value the hooks are to store as the new value of this buffer."""
    external: bool = False
    """Whether it is named in the module, and its values are elsewhere."""


@dataclass(frozen=True)
class Signature:
    """What a program takes, holds and returns."""

    arguments: tuple[Argument, ...]
    constants: tuple[Constant, ...]
    results: tuple[fx.Node | int | float | bool, ...]
    """New state first, in the order of the graph signature, then the user's results. None, strings and the tokens that
    keep effects in order have no value at run time and are left out."""
    function: manifest.Function | None = None
    """None for a bare graph, which has no inputs and outputs but its own."""


def read_signature(
    program: ExportedProgram,
    mutation: Mutation,
    hooks_store: bool,
    state: Collection[str] = (),
    *,
    tensors_only: bool = False,
    weights: Weights = Weights.INLINE,
) -> Signature:
    """Sort the inputs and outputs of ``program`` under a mutation policy.

    ``hooks_store`` says that hooks store mutated buffers (under `Mutation.MUTABLE`); otherwise these are arguments.
    ``state`` names parameters and buffers that are state though this program only reads them. ``tensors_only`` leaves
    fixed numbers out, and tensors without elements. ``weights`` says whether parameters and buffers are arguments.

    Raises:
        UnsupportedProgramError: listing all that is mutated, under `Mutation.ERROR`; or all inputs and outputs of kinds
            that cannot be imported.
    """
    mutated = _mutated(program)
    if mutated and mutation is Mutation.ERROR:
        raise UnsupportedProgramError(
            "the program mutates state, and a frozen import would lose that. Pass mutation='functional' to take the "
            "state as arguments and return the new state first, or mutation='mutable' "
            "(experimental_support_mutation=True) to overwrite it in place. Mutated:",
            [unsupported_node_at(node, *_describe(program, name)) for name, node in mutated.items()],
        )
    writes = mutated if mutation is Mutation.MUTABLE else {}
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    arguments: list[Argument] = []
    constants: list[Constant] = []
    unsupported_nodes: list[UnsupportedNode] = []
    taken: dict[tuple[Any, ...], int] = {}
    leaf = -1
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        node = nodes[name]
        if spec.kind is InputKind.USER_INPUT:
            leaf += 1
            if not isinstance(spec.arg, ConstantArgument):
                if not (tensors_only and is_empty(_example(node)) and all(user.op == "output" for user in node.users)):
                    arguments.append(Argument(node, name, leaf=leaf, overwritten_by=writes.get(name)))
            elif isinstance(spec.arg.value, (bool, int, float)) and not tensors_only:
                arguments.append(Argument(node, name, constant=spec.arg, leaf=leaf))
        elif spec.kind in HELD:
            if (name in mutated or spec.target in state) and not hooks_store:
                arguments.append(Argument(node, spec.target or name, kind="state", overwritten_by=writes.get(name)))
            elif node.users or name in mutated:
                held = held_value(program, spec)
                outside = weights is not Weights.INLINE and is_weight(spec, held)
                if outside and weights is Weights.ARGS and name not in mutated:
                    _add_weight(
                        arguments, taken, Argument(node, spec.target or name, kind="weight"), storage_view_key(held)
                    )
                else:
                    stored = writes.get(name)
                    external = outside and weights is Weights.EXTERNAL and stored is None
                    constants.append(Constant(node, spec, held, stored, external))
        elif spec.kind is not InputKind.TOKEN:
            unsupported_nodes.append(UnsupportedNode(name, f"an input of kind {spec.kind.name} cannot be imported yet"))
    in_place = ("state", "input") if mutation is Mutation.MUTABLE else ()
    results = [
        (value, record)
        for value, record in _results(program, unsupported_nodes)
        if record.kind not in in_place and not (tensors_only and _is_known(value))
    ]
    if unsupported_nodes:
        raise UnsupportedProgramError("the program's signature cannot be imported:", unsupported_nodes)
    function = _function(program, nodes, arguments, [record for _, record in results])
    return Signature(tuple(arguments), tuple(constants), tuple(value for value, _ in results), function)


def _add_weight(arguments: list[Argument], taken: dict[Any, int], new: Argument, place: tuple[Any, ...]) -> None:
    """Add an argument, unless there is one for what is in this ``place``."""
    if (number := taken.setdefault(place, len(arguments))) == len(arguments):
        arguments.append(new)
    else:
        arguments[number] = replace(arguments[number], also=(*arguments[number].also, new.node))


def plain_signature(graph: fx.Graph) -> Signature:
    """Return the signature of a graph whose placeholders are all arguments."""
    arguments = tuple(Argument(node, node.name) for node in graph.nodes if node.op == "placeholder")
    returned: Any = graph.output_node().args[0]
    flat = returned if isinstance(returned, (list, tuple)) else [returned]
    return Signature(arguments, (), tuple(value for value in flat if isinstance(value, (fx.Node, bool, int, float))))


HELD: dict[InputKind, manifest.HeldKind] = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
"""What the program holds, and what the manifest calls it."""

_KINDS = {
    OutputKind.USER_OUTPUT: "output",
    OutputKind.LOSS_OUTPUT: "output",
    OutputKind.BUFFER_MUTATION: "state",
    OutputKind.PARAMETER_MUTATION: "state",
    OutputKind.USER_INPUT_MUTATION: "input",
    OutputKind.GRADIENT_TO_PARAMETER: "gradient",
    OutputKind.GRADIENT_TO_USER_INPUT: "gradient",
}


def _results(
    program: ExportedProgram, unsupported_nodes: list[UnsupportedNode]
) -> Iterator[tuple[fx.Node | int | float | bool, manifest.Result]]:
    """Yield the results that have a value at run time. Unsupported kinds are added to ``unsupported_nodes``."""
    outputs = tree_of(program.call_spec.out_spec, "output").leaves
    inputs = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    returned: Any = program.graph.output_node().args[0]
    leaf = -1
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):
        if spec.kind is OutputKind.TOKEN:
            continue
        kind: Any = _KINDS.get(spec.kind)
        if kind is None:
            unsupported_nodes.append(
                UnsupportedNode(spec.arg.name, f"an output of kind {spec.kind.name} cannot be imported yet")
            )
            continue
        name, position = spec.target or spec.arg.name, None
        if kind == "output":
            leaf += 1
            # A joint graph may have fewer outputs than the model had: it says which is the loss, and not where it was.
            name, position = outputs[leaf].path if leaf < len(outputs) else spec.arg.name, leaf
        elif kind == "input":
            position = inputs.index(name)
        if isinstance(value, (fx.Node, bool, int, float)):
            example, passed_as = (_example(value), _passed_as(value)) if isinstance(value, fx.Node) else (value, None)
            yield value, manifest.Result(kind, name, value_type(example), position, passed_as)


def _function(
    program: ExportedProgram,
    nodes: Mapping[str, fx.Node],
    arguments: list[Argument],
    results: list[manifest.Result],
) -> manifest.Function:
    inputs = tree_of(program.call_spec.in_spec, "args", "kwargs")
    outputs = tree_of(program.call_spec.out_spec, "output")
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    given = [s.arg.value if isinstance(s.arg, ConstantArgument) else nodes[s.arg.name] for s in specs]
    returned: Any = program.graph.output_node().args[0]
    kinds = zip(program.graph_signature.output_specs, returned, strict=True)
    user = [value for spec, value in kinds if _KINDS.get(spec.kind) == "output"]
    inputs, outputs = (
        replace(tree, leaves=(*map(_leaf, tree.leaves, values), *tree.leaves[len(values) :]))
        for tree, values in ((inputs, given), (outputs, user))
    )
    return manifest.Function(
        inputs,
        outputs,
        tuple(
            manifest.Argument(
                each.kind,
                each.name,
                _argument_type(each),
                each.leaf,
                each.overwritten_by is not None,
                _passed_as(each.node),
            )
            for each in arguments
        ),
        tuple(results),
        symbol_ranges(program),
    )


def _leaf(leaf: manifest.Leaf, value: Any) -> manifest.Leaf:
    """Return the record of a leaf that a node computes, or that is fixed to ``value``."""
    if isinstance(value, fx.Node):
        return replace(leaf, type=value_type(_example(value)))
    type_ = value_type(value) if isinstance(value, (bool, int, float)) else None
    return replace(leaf, type=type_, fixed=True, value=value)


def _is_known(value: fx.Node | int | float | bool) -> bool:
    """Whether the manifest knows the value of a result: a fixed number, or a tensor without elements."""
    return not isinstance(value, fx.Node) or is_empty(_example(value))


def _argument_type(argument: Argument) -> manifest.ValueType:
    return value_type(argument.constant.value if argument.constant else _example(argument.node))


def _example(node: fx.Node) -> Any:
    """Return the example value that the model had: the program's own may be of another dtype, with the same bits."""
    return node.meta.get("model_val", node.meta.get("val"))


def _passed_as(node: fx.Node) -> str | None:
    """Return the dtype of the parts of a tensor that was complex in the model, and is real here."""
    real, was = node.meta.get("val"), _example(node)
    if isinstance(was, torch.Tensor) and isinstance(real, torch.Tensor) and was.is_complex() and not real.is_complex():
        return str(real.dtype).removeprefix("torch.")
    return None


def _mutated(program: ExportedProgram) -> dict[str, fx.Node]:
    """Return placeholder name → the node of its new value, for all that the program mutates."""
    placeholder_of = {spec.target: spec.arg.name for spec in program.graph_signature.input_specs if spec.target}
    results = program.graph.output_node().args[0]
    mutated = {}
    for spec, node in zip(program.graph_signature.output_specs, results, strict=True):  # pyright: ignore
        if _KINDS.get(spec.kind) == "state":
            mutated[placeholder_of[spec.target]] = node
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            mutated[spec.target] = node
    return mutated


def mutated_state(program: ExportedProgram) -> set[str]:
    """Return the names, in the state dict, of the parameters and buffers that ``program`` mutates."""
    return {spec.target for spec in program.graph_signature.output_specs if spec.target and _is_state(spec.kind)}


def _is_state(kind: OutputKind) -> bool:
    return _KINDS.get(kind) == "state"


def _describe(program: ExportedProgram, name: str) -> tuple[str, str]:
    """Return what people call the placeholder ``name``, and what it is."""
    spec = next(spec for spec in program.graph_signature.input_specs if spec.arg.name == name)
    if spec.kind in HELD:
        return spec.target or name, f"the {HELD[spec.kind]} '{spec.target}'"
    return name, "an input"
