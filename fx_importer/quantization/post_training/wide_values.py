"""Which values of a quantized program are int16 with mixed activations."""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.families import MOVES
from fx_importer.quantization.families.elementwise import is_elementwise
from fx_importer.quantization.families.norms import NORMS
from fx_importer.quantization.post_training.plan import QuantizationPlan


def wide_values(plan: QuantizationPlan) -> set[fx.Node]:
    """Return the representatives of values that mixed activations have in int16.

    These are sums, norms and their operands. In an MLP whose result is added, the result of the first linear layer and
    the elementwise functions after it are int16 too: there, activations of single channels are a hundred times larger
    than others (Sun et al., Massive Activations in Large Language Models). Constants stay as they are, including
    embeddings, which would take twice the memory in int16.
    """
    found: set[fx.Node] = set()
    products: list[fx.Node] = []
    for node in plan.groups:
        if node.target in (aten.add.Tensor, aten.sub.Tensor, *NORMS):
            found.add(plan.groups[node])
            roots = (plan.groups.get(operand) for operand in node.all_input_nodes)
            sources = [root for root in roots if root is not None and root.target not in MOVES]
            found.update(sources)
            products += [source for source in sources if source.target is aten.linear.default]
    for product in products:
        found |= _functions_before(product.all_input_nodes[0], plan, found)
    return found


def _functions_before(value: fx.Node, plan: QuantizationPlan, known: Collection[fx.Node]) -> set[fx.Node]:
    """Return the representatives of the functions of elements that ``value`` is, and of the products before these."""
    found: set[fx.Node] = set()
    stack = [value] if is_elementwise(value.target) else []
    while stack:
        node = stack.pop()
        root = plan.groups.get(node)
        if root in known or root in found or not (is_elementwise(node.target) or node.target is aten.linear.default):
            continue
        if root is not None:
            found.add(root)
        if node.target is not aten.linear.default:
            stack += node.all_input_nodes
    return found
