"""Exported programs of AOTAutograd's graphs, and the effect tokens that keep their calls in order."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import SymInt, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
    TokenArgument,
)
from torch.utils import _pytree as pytree

from fx_importer.frontend.small_sizes import TRACED_BY_DYNAMO
from fx_importer.fx_graph.programs import fake_mode_of

_READ = frozenset(("val", "stack_trace", "nn_module_stack", "unbacked_bindings"))
"""The metadata of nodes that the compilation reads. That of AOTAutograd would keep programs out of the cache."""


def program_of(module: fx.GraphModule, mutated: Sequence[str] = ()) -> ExportedProgram:
    """Return the graph of ``module`` as an exported program, with all placeholders as user inputs but effect tokens.

    The outputs are the effect tokens, the new values of the inputs named in ``mutated``, and the results.
    """
    for graph_module in (module, *(part for part in module.modules() if isinstance(part, fx.GraphModule))):
        for node in graph_module.graph.nodes:
            node.meta = {key: value for key, value in node.meta.items() if key in _READ}
    tokens = [TokenArgument(node.name) for node in _first(module.graph, tokens_of(module.graph))]
    inputs = [_argument(node) for node in module.graph.find_nodes(op="placeholder")[len(tokens) :]]
    constants = _constants(module)
    returned: Any = module.graph.output_node().args[0]
    effects = [TokenArgument(node.name) for node in returned if isinstance(node, fx.Node) and given_token(node)]
    outputs = [_argument(node) for node in returned[len(effects) :]]
    changed, outputs = outputs[: len(mutated)], outputs[len(mutated) :]
    call = ModuleCallSignature(
        [],
        [],
        pytree.tree_structure((tuple(range(len(inputs))), {})),
        pytree.tree_structure(list(range(len(outputs)))),
    )
    program = ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(
            [
                *(InputSpec(InputKind.TOKEN, token, None) for token in tokens),
                *(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), name) for name in constants),
                *(InputSpec(InputKind.USER_INPUT, input_, None) for input_ in inputs),
            ],
            [
                *(OutputSpec(OutputKind.TOKEN, effect, None) for effect in effects),
                *(
                    OutputSpec(OutputKind.USER_INPUT_MUTATION, value, name)
                    for value, name in zip(changed, mutated, strict=True)
                ),
                *(OutputSpec(OutputKind.USER_OUTPUT, output, None) for output in outputs),
            ],
        ),
        state_dict={},
        range_constraints=_ranges(module.graph),
        module_call_graph=[ModuleCallEntry("", call)],
        constants=constants,
    )
    program.graph_module.meta[TRACED_BY_DYNAMO] = True
    return program


def _first(graph: fx.Graph, nodes: list[fx.Node]) -> list[fx.Node]:
    """Move placeholders to the start of ``graph``, and return them."""
    for node in reversed(nodes):
        next(iter(graph.nodes)).prepend(node)
    return nodes


def _constants(module: fx.GraphModule) -> dict[str, Any]:
    """Turn the tensors that ``module`` holds into leading placeholders; return them by name."""
    constants: dict[str, Any] = {}
    tokens = tokens_of(module.graph)
    first = next(node for node in module.graph.nodes if node not in tokens)
    mode = fake_mode_of(module.graph) or FakeTensorMode()
    for node in module.graph.find_nodes(op="get_attr"):
        tensor = attrgetter(node.target)(module)
        if not isinstance(tensor, torch.Tensor):
            continue
        with module.graph.inserting_before(first):
            constant = module.graph.placeholder(f"constant_{len(constants)}")
        constant.meta.update(node.meta)
        constant.meta["val"] = mode.from_tensor(tensor)
        node.replace_all_uses_with(constant)
        module.graph.erase_node(node)
        constants[constant.name] = tensor
    module.recompile()
    return constants


_ARGUMENTS: dict[type, type[TensorArgument | SymIntArgument | SymFloatArgument | SymBoolArgument]] = {
    torch.Tensor: TensorArgument,
    SymInt: SymIntArgument,
    torch.SymFloat: SymFloatArgument,
    torch.SymBool: SymBoolArgument,
}


def _argument(node: fx.Node) -> ArgumentSpec:
    example = node.meta.get("val")
    for kind, spec in _ARGUMENTS.items():
        if isinstance(example, kind):
            return spec(node.name)
    return ConstantArgument(node.name, example)


def symbolic(graph: fx.Graph) -> Iterator[SymInt]:
    """Yield every symbolic size in the example values."""
    for node in graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            sizes = leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,)
            yield from (size for size in sizes if isinstance(size, SymInt))


def _ranges(graph: fx.Graph) -> dict[Any, Any]:
    """Return the value range of each symbol of ``graph``."""
    return {
        symbol: size.node.shape_env.bound_sympy(symbol)
        for size in symbolic(graph)
        for symbol in size.node.expr.free_symbols
    }


def tokens_of(graph: fx.Graph) -> list[fx.Node]:
    """Return the inputs that are effect tokens, threaded by AOTAutograd through operators with effects."""
    effects = graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects)
    return list(dict.fromkeys(effect.args[0] for effect in effects if effect.args[0].op == "placeholder"))


def given_token(node: fx.Node) -> fx.Node | None:
    """Return the input that begins the chain of effects that ends with ``node``; None if it is not a token."""
    effect: Any = node.args[0] if node.target is operator.getitem and node.args[1] == 0 else None
    if not isinstance(effect, fx.Node) or effect.target is not torch.ops.higher_order.with_effects:
        return None
    before: Any = effect.args[0]
    return before if before.op == "placeholder" else given_token(before)
