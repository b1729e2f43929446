"""Import of ``getitem``, which selects a result of an operation or an element of a list."""

from __future__ import annotations

from torch import fx

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.value_map import Results


def import_getitem(node: fx.Node, build: NodeBuilder) -> Results:
    """Return a result of a multi-result operation, by index or by name, or an element of a ``!torch.list``."""
    source, index = node.args
    if isinstance(source, fx.Node) and isinstance(index, str):
        index = list(build.example(source)).index(index)
    if not isinstance(source, fx.Node) or not isinstance(index, int):
        raise UnsupportedNodeError(
            f"getitem of {source!r} at {index!r}: only a constant index into a node's results is known"
        )
    binding = build.environment.binding(source)
    if isinstance(binding, tuple):
        return binding[index]
    assert binding is not None
    return build.op("torch.aten.__getitem__.t", [build.type_of(node)], [binding, build.constant(index)]).result
