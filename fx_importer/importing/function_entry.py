"""Function arguments, and literals of the constants that a program holds."""

from __future__ import annotations

from collections.abc import Sequence

from torch.export import ExportedProgram

from fx_importer.fx_graph.programs import LIFTED_TENSOR_PREFIX, as_node_dtype
from fx_importer.importing.graph_walker import Walker
from fx_importer.importing.hooks import InputInfo
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.signatures.signature import ImportedArgument, ImportedConstant
from fx_importer.mlir.bindings import ir


def add_arguments(
    arguments: Sequence[ImportedArgument], build: NodeBuilder, walker: Walker
) -> list[tuple[ImportedArgument, ir.Value]]:
    """Add the function's arguments and bind their nodes. Return the mutable ones with their ``!torch.tensor``."""
    mutable: list[tuple[ImportedArgument, ir.Value]] = []
    for argument in arguments:
        node = argument.node
        try:
            if argument.constant is not None:
                type_ = build.types.of(argument.constant.value)
            else:
                type_ = build.type_of(node, mutable=argument.overwritten_by is not None)
        except UnsupportedNodeError as reason:
            walker.mark_unsupported(node, str(reason))
            continue
        value = build.block.add_argument(type_, build.fx_importer.locations.named(argument.name))
        if argument.overwritten_by is not None:
            mutable.append((argument, value))
            value = build.op("torch.copy.to_vtensor", [build.type_of(node)], [value]).result
        for each in (node, *argument.also):
            walker.bind(each, value)
    return mutable


def bind_constant(constant: ImportedConstant, build: NodeBuilder, walker: Walker, program: ExportedProgram) -> None:
    """Bind the node of a parameter, buffer or tensor constant to its literal."""
    target = constant.spec.target
    assert target is not None
    build.location = build.fx_importer.locations.named(target)
    try:
        info = info_of(program, constant, build)
        tensor = as_node_dtype(constant.node, constant.tensor)
        name = None if target.startswith(LIFTED_TENSOR_PREFIX) and not constant.external else target
        walker.bind(constant.node, build.literal(tensor, name, info, external=constant.external))
    except UnsupportedNodeError as reason:
        walker.mark_unsupported(constant.node, f"'{target}': {reason}")


def info_of(program: ExportedProgram, constant: ImportedConstant, build: NodeBuilder) -> InputInfo:
    stored = constant.stored.name if constant.stored is not None else None
    return InputInfo(program, constant.spec, constant.node, build.type_of(constant.node), store_producer_node=stored)
