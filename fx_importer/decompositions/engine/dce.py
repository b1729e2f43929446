"""Dead-code elimination for graphs that are not functional."""

from __future__ import annotations

from torch import fx

from fx_importer.fx_graph.aliasing import alias_sets, mutated_arguments
from fx_importer.fx_graph.operators import aten

_CHECKS = frozenset((aten._assert_tensor_metadata.default,))  # always true for inputs that the program was exported for


def eliminate_dead_code(graph: fx.Graph) -> None:
    """Erase the nodes of ``graph`` that affect neither its results nor its side effects.

    Unlike ``fx.Graph.eliminate_dead_code``, this erases mutations of tensors that are allocated in the graph and not
    read afterwards. The calls without results that open and close ``torch.vmap`` are kept with the nodes between them.
    """
    groups = alias_sets(graph)
    writers = {node: written for node in graph.nodes if (written := mutated_arguments(node))}
    batches = [node for node in graph.nodes if "_functorch" in getattr(node.target, "__module__", "")]
    needed: set[fx.Node] = set()
    pending = [node for node in graph.nodes if _has_effect(node) and node not in writers]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(node.all_input_nodes)
            pending.extend(batches if node in batches else ())
            pending.extend(w for w in writers if any(groups[node] is groups[written] for written in writers[w]))
    for node in reversed(graph.nodes):
        if node not in needed and not node.users:
            graph.erase_node(node)


def _has_effect(node: fx.Node) -> bool:
    return node.op in ("placeholder", "output") or (node.is_impure() and node.target not in _CHECKS)
