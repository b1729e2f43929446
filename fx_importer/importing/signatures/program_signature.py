"""Signatures of exported programs and of bare graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from fx_importer import manifest
from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import MutatedStateError, UnsupportedProgramError
from fx_importer.fx_graph.assumptions import FROZEN, assumptions_of, nested_assumptions
from fx_importer.importing.names import with_names
from fx_importer.importing.pytrees import symbol_ranges, tree_of, value_type
from fx_importer.importing.signatures.program_inputs import ProgramInputs, SignaturePolicy
from fx_importer.importing.signatures.program_results import (
    RESULT_KINDS,
    described_input,
    is_known,
    mutated_inputs,
    results_of,
)
from fx_importer.importing.signatures.signature import ImportedArgument, ImportedSignature, example_of, passed_as
from fx_importer.options import Mutation
from fx_importer.symbolic.guards import guard_texts


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
    function = replace(function, assumptions=tuple(each.text for each in assumptions), frozen=frozen)
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
    inputs = tree_of(program.call_spec.in_spec, "args", "kwargs")
    outputs = tree_of(program.call_spec.out_spec, "output")
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    given = [s.arg.value if isinstance(s.arg, ConstantArgument) else nodes[s.arg.name] for s in specs]
    returned: Any = program.graph.output_node().args[0]
    kinds = zip(program.graph_signature.output_specs, returned, strict=True)
    user = [value for spec, value in kinds if RESULT_KINDS.get(spec.kind) == "output"]
    inputs, outputs = (
        replace(tree, leaves=(*map(_leaf, tree.leaves, values), *tree.leaves[len(values) :]))
        for tree, values in ((inputs, given), (outputs, user))
    )
    records = tuple(map(_argument_record, arguments))
    guards = guard_texts(program)
    lines = {guard: line for guard, line in guards.items() if line}
    return manifest.Function(
        inputs, outputs, records, tuple(results), symbol_ranges(program), tuple(guards), guard_lines=lines
    )


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
