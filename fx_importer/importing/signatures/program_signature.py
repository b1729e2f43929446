"""Signatures of exported programs and of bare graphs; results of programs, and the state that they mutate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
)

from fx_importer import manifest
from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import MutatedStateError, UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.assumptions import FROZEN, assumptions_of, nested_assumptions
from fx_importer.fx_graph.programs import call_structure, is_empty
from fx_importer.fx_graph.result_sizes import ResultSize, result_sizes
from fx_importer.importing.names import with_names
from fx_importer.importing.pytrees import symbol_ranges, tree_of, value_type
from fx_importer.importing.signatures.program_inputs import ProgramInputs, SignaturePolicy
from fx_importer.importing.signatures.signature import HELD, ImportedArgument, ImportedSignature, example_of, passed_as
from fx_importer.options import Mutation
from fx_importer.symbolic.guards import guard_texts

RESULT_KINDS = {
    OutputKind.USER_OUTPUT: "output",
    OutputKind.LOSS_OUTPUT: "output",
    OutputKind.BUFFER_MUTATION: "state",
    OutputKind.PARAMETER_MUTATION: "state",
    OutputKind.USER_INPUT_MUTATION: "input",
    OutputKind.GRADIENT_TO_PARAMETER: "gradient",
    OutputKind.GRADIENT_TO_USER_INPUT: "gradient",
}
"""Output kinds and their names in the manifest."""

_NUMBERS: dict[type, bool | int | float] = {SymBoolArgument: True, SymIntArgument: 1, SymFloatArgument: 1.0}
"""Examples of the numbers that a program returns, by the kind of output in its signature."""

Result = tuple[fx.Node | int | float | bool, manifest.Result]
"""A returned value and its record."""


def results_of(program: ExportedProgram, unsupported: list[UnsupportedNode]) -> Iterator[Result]:
    """Yield the results that have a value at run time. Outputs of other kinds are added to ``unsupported``."""
    outputs = tree_of(call_structure(program)[1], "output").leaves
    inputs = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    returned: Any = program.graph.output_node().args[0]
    sizes = result_sizes(program)
    kinds = [RESULT_KINDS.get(spec.kind) for spec in program.graph_signature.output_specs]
    first_size = kinds.count("output") - len(sizes)
    leaf = -1
    for spec, value in zip(program.graph_signature.output_specs, returned, strict=True):
        if spec.kind is OutputKind.TOKEN:
            continue
        kind: Any = RESULT_KINDS.get(spec.kind)
        if kind is None:
            reason = f"an output of kind {spec.kind.name} cannot be imported yet"
            unsupported.append(UnsupportedNode(spec.arg.name, reason))
            continue
        name, position = spec.target or spec.arg.name, None
        if kind == "output":
            leaf += 1
            if leaf >= first_size:
                yield value, manifest.Result("size", sizes[leaf - first_size].name, value_type(example_of(value)))
                continue
            # A joint graph may have fewer outputs than the model. It records the loss, but not its position.
            name, position = outputs[leaf].path if leaf < len(outputs) else spec.arg.name, leaf
        elif kind == "input":
            position = inputs.index(name)
        if isinstance(value, fx.Node):
            number = _NUMBERS.get(type(spec.arg))  # a tensor of rank 0 in output types that have tensors only
            example = example_of(value) if number is None else number
            record = manifest.Result(kind, name, value_type(example), position, passed_as(value))
            yield value, record
        elif isinstance(value, (bool, int, float)):
            yield value, manifest.Result(kind, name, value_type(value), position)


def is_known(value: fx.Node | int | float | bool) -> bool:
    """Return whether the manifest holds the value of a result: a fixed number or an empty tensor."""
    return not isinstance(value, fx.Node) or is_empty(example_of(value))


def mutated_inputs(program: ExportedProgram) -> dict[str, fx.Node]:
    """Return the nodes of the new values of everything that the program mutates, by placeholder."""
    placeholder_of = {spec.target: spec.arg.name for spec in program.graph_signature.input_specs if spec.target}
    results: Any = program.graph.output_node().args[0]
    mutated: dict[str, fx.Node] = {}
    for spec, node in zip(program.graph_signature.output_specs, results, strict=True):
        if spec.target is not None and RESULT_KINDS.get(spec.kind) == "state":
            mutated[placeholder_of[spec.target]] = node
        elif spec.kind is OutputKind.USER_INPUT_MUTATION and spec.target is not None:
            mutated[spec.target] = node
    return mutated


def described_input(program: ExportedProgram, name: str) -> tuple[str, str]:
    """Return the user's name and the kind of the placeholder ``name``, for an error."""
    spec = next(spec for spec in program.graph_signature.input_specs if spec.arg.name == name)
    if spec.kind in HELD:
        return spec.target or name, f"the {HELD[spec.kind]} '{spec.target}'"
    return name, "an input"


def read_signature(program: ExportedProgram, policy: SignaturePolicy) -> ImportedSignature:
    """Return the signature of ``program``: arguments, constants and results.

    Raises:
        UnsupportedProgramError: listing everything mutated, under `Mutation.ERROR`; or all inputs and outputs of kinds
            that cannot be imported.
        UsageError: for names of inputs or outputs that do not fit.
    """
    mutated = mutated_inputs(program)
    if mutated and policy.mutation is Mutation.ERROR:
        raise MutatedStateError(
            "the program mutates state, and a frozen import would lose that. Pass mutation='functional' to take the "
            "state as arguments and return the new state first, or mutation='mutable' "
            "(experimental_support_mutation=True) to overwrite it in place. Mutated:",
            [unsupported_node_at(node, *described_input(program, name)) for name, node in mutated.items()],
        )
    inputs = ProgramInputs(program, policy, mutated)
    in_place = ("state", "input") if policy.mutation is Mutation.MUTABLE else ()
    results = [
        (value, record)
        for value, record in results_of(program, inputs.unsupported)
        if record.kind not in in_place and not (policy.tensors_only and is_known(value))
    ]
    assumptions = assumptions_of(program)
    if not policy.assertions:
        inputs.unsupported += [
            unsupported_node_at(nested.node, nested.node.name, _NESTED) for nested in nested_assumptions(program)
        ]
        results += [
            (
                cast(fx.Node, assumption.node.args[0]),
                manifest.Result("check", assumption.text, manifest.ValueType("bool", ())),
            )
            for assumption in assumptions
        ]
    if inputs.unsupported:
        raise UnsupportedProgramError("the program's signature cannot be imported:", inputs.unsupported)
    function = _function_record(program, inputs.arguments, [record for _, record in results])
    frozen = program.graph_module.meta.get(FROZEN, ())
    function = replace(function, assumptions=tuple(assumption.text for assumption in assumptions), frozen=frozen)
    function = with_names(function, policy.input_names, policy.output_names)
    return ImportedSignature(
        tuple(inputs.arguments),
        tuple(inputs.constants),
        tuple(value for value, _ in results),
        function,
        policy.assertions,
    )


_NESTED = (
    "the capture assumes a value inside of control flow, which a function without assertions cannot return: "
    "linalg-on-tensors, torch and raw have assertions"
)


def plain_signature(graph: fx.Graph) -> ImportedSignature:
    """Return the signature of a graph whose placeholders are all arguments."""
    arguments = tuple(ImportedArgument(node, node.name) for node in graph.nodes if node.op == "placeholder")
    returned: Any = graph.output_node().args[0]
    flat = returned if isinstance(returned, (list, tuple)) else [returned]
    return ImportedSignature(
        arguments, (), tuple(value for value in flat if isinstance(value, (fx.Node, bool, int, float)))
    )


def _function_record(
    program: ExportedProgram, arguments: list[ImportedArgument], results: list[manifest.Result]
) -> manifest.Function:
    """Return the manifest's record of the function, with the nested inputs and outputs of the model."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    in_spec, out_spec = call_structure(program)
    inputs, outputs = tree_of(in_spec, "args", "kwargs"), tree_of(out_spec, "output")
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    passed = [s.arg.value if isinstance(s.arg, ConstantArgument) else nodes[s.arg.name] for s in specs]
    returned: Any = program.graph.output_node().args[0]
    kinds = zip(program.graph_signature.output_specs, returned, strict=True)
    sizes = result_sizes(program)
    user = [value for spec, value in kinds if RESULT_KINDS.get(spec.kind) == "output"]
    inputs, outputs = (
        replace(tree, leaves=(*map(_leaf, tree.leaves, values), *tree.leaves[len(values) :]))
        for tree, values in ((inputs, passed), (outputs, user[: len(user) - len(sizes)]))
    )
    outputs = replace(outputs, leaves=_with_sizes(outputs.leaves, sizes))
    records = tuple(map(_argument_record, arguments))
    guards = guard_texts(program)
    lines = {guard: line for guard, line in guards.items() if line}
    return manifest.Function(
        inputs, outputs, records, tuple(results), symbol_ranges(program), tuple(guards), guard_lines=lines
    )


def _with_sizes(leaves: tuple[manifest.Leaf, ...], sizes: Iterable[ResultSize]) -> tuple[manifest.Leaf, ...]:
    """Return ``leaves`` with their data-dependent sizes; the function returns padded tensors."""
    changed = list(leaves)
    for size in sizes:
        for position, axis in size.axes:
            leaf = changed[position]
            if leaf.type is not None and leaf.type.shape is not None:
                shape = (*leaf.type.shape[:axis], size.name, *leaf.type.shape[axis + 1 :])
                changed[position] = replace(leaf, type=replace(leaf.type, shape=shape))
    return tuple(changed)


def _leaf(leaf: manifest.Leaf, value: Any) -> manifest.Leaf:
    """Return the record of a leaf that is computed by a node or fixed to ``value``."""
    if isinstance(value, fx.Node):
        return replace(leaf, type=value_type(example_of(value)))
    type_ = value_type(value) if isinstance(value, (bool, int, float)) else None
    return replace(leaf, type=type_, fixed=True, value=value)


def _argument_record(argument: ImportedArgument) -> manifest.Argument:
    example = argument.constant.value if argument.constant else example_of(argument.node)
    mutated = argument.overwritten_by is not None
    return manifest.Argument(
        argument.kind, argument.name, value_type(example), argument.leaf, mutated, passed_as(argument.node)
    )
