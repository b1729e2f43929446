"""Constant folding: operators that depend on no input are computed by eager PyTorch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node
from fx_importer.diagnostics.remarks import WeightsRead
from fx_importer.fx_graph.programs import with_graph, with_rewritten_graphs
from fx_importer.fx_passes.constant_values import DRAWN, Constants, FoldingRules, foldable_state, folds, rules_of
from fx_importer.fx_passes.folded_scales import fold_scales, has_scalable
from fx_importer.fx_passes.fx_pass import FxContext, FxPass


def fold_constants(
    program: ExportedProgram, state: Collection[str] = (), rules: FoldingRules | None = None
) -> tuple[ExportedProgram, Collection[str]]:
    """Return ``program`` with operators that depend on no input replaced by constants, and the weights read for that.

    Tensors named in ``state`` count as inputs. Weights that only change their shape or the order of their axes stay:
    their consumers read the memory of the model. So do results that are larger than 64 KiB and than their weights.
    """
    return _with_constants(program, Constants(program, state, rules), in_place=False)


def _with_constants(
    program: ExportedProgram, constants: Constants, *, in_place: bool
) -> tuple[ExportedProgram, Collection[str]]:
    """Return ``program`` with the ``constants`` of its graph folded, and the weights read for that."""
    roots = constants.roots()
    if not roots:
        return program, ()
    program = with_rewritten_graphs(program, lambda graph, owner: None, in_place=in_place)
    copied = {node.name: node for node in program.graph.nodes}
    specs = list(program.graph_signature.input_specs)
    first = next((i for i, spec in enumerate(specs) if spec.kind is InputKind.USER_INPUT), len(specs))
    # In a program without inputs, the constants come after the other placeholders.
    placeholders = program.graph.find_nodes(op="placeholder")
    before = placeholders[first] if first < len(placeholders) else (placeholders or [program.graph._root])[-1].next
    constants_ = dict(program.constants)
    read = set[str]()
    names = [f"{constants.first_held(node) or node.name}_folded" for node in roots]
    placed: dict[int, fx.Node] = {}
    for (node, value), name in zip(roots.items(), names, strict=True):
        folded = copied[node.name]
        if id(value) in placed:
            folded.replace_all_uses_with(placed[id(value)])
            continue
        number = len(placed)
        read |= {constants.held[source] for source in constants.nodes[node]}
        target = name
        for copy in itertools.count(1):
            if target not in constants_ and target not in program.state_dict:
                break
            target = f"{name}_{copy}"
        constants_[target] = value
        with program.graph.inserting_before(before):
            constant = program.graph.placeholder(re.sub(r"\W", "_", target))
        constant.meta |= {key: node.meta[key] for key in ("val", "model_val") if key in node.meta}
        specs.insert(first + number, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(constant.name), target))
        folded.replace_all_uses_with(constant)
        placed[id(value)] = constant
    program.graph.eliminate_dead_code()
    signature = ExportGraphSignature(specs, program.graph_signature.output_specs)
    return with_graph(program, program.graph, signature, root=program.graph_module, constants=constants_), read


def random_nodes(program: ExportedProgram) -> list[fx.Node]:
    """Return the calls in ``program`` whose random numbers constant folding samples."""
    return [node for node in program.graph.nodes if node.target in DRAWN]


def random_functions(programs: Iterable[ExportedProgram]) -> tuple[str, ...]:
    """Return the functions of torch whose random numbers constant folding samples, with their source lines."""
    functions: dict[str, None] = {}
    for node in (node for program in programs for node in random_nodes(program)):
        called = node.meta.get("torch_fn")  # such as ("dropout_1", "function.dropout")
        function = called[1].partition(".")[2] if called else str(node.target)
        line = unsupported_node(node, "").where
        functions[function + (f" (at {line})" if line else "")] = None
    return tuple(functions)


def _fold(program: ExportedProgram, context: FxContext) -> ExportedProgram:
    if not context.target.random and (nodes := random_nodes(program)):
        line = unsupported_node(nodes[0], "").where
        context.remark(
            f"random numbers are drawn here, and are the same in each call: {len(nodes)} tensors"
            + (f", the first at {line}" if line else "")
        )
    in_place = context.owns(program)
    if scales := folds(context) and has_scalable(program.graph):
        program, in_place = with_rewritten_graphs(program, lambda graph, owner: None, in_place=in_place), True
    constants = Constants(program, foldable_state(program, context), rules_of(context))
    if scales:
        fold_scales(program.graph, constants)
    folded, read = _with_constants(program, constants, in_place=in_place)
    if read:
        context.remark(WeightsRead(read))
    return folded


FOLD_CONSTANTS = FxPass("fold-constants", _fold, lambda context: folds(context) or not context.target.random)
