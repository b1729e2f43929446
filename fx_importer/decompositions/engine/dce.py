"""Removes what a graph does not need, also where it writes to memory that nothing reads."""

from __future__ import annotations

from torch import fx

from fx_importer.fx_graph.aliasing import alias_sets, mutated_arguments
from fx_importer.fx_graph.operators import aten

_CHECKS = frozenset((aten._assert_tensor_metadata.default,))  # hold for every input that the program was exported for


def eliminate_dead_code(graph: fx.Graph) -> None:
    """Erase the nodes that neither the results of ``graph`` nor its effects need.

    Unlike ``eliminate_dead_code``, this sees through writes to memory of the graph's own, and takes the nested batches
    of ``torch.vmap``, which open and close by calls without results, with the computation inside.
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
