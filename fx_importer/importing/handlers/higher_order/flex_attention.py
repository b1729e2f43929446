"""Error for ``flex_attention``, which is expanded before decomposition and does not reach the importer."""

from __future__ import annotations

from torch import fx

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError


def import_flex_attention(node: fx.Node, build: NodeBuilder) -> None:
    """Raise an error that names a supported alternative.

    Raises:
        UnsupportedNodeError: always.
    """
    raise UnsupportedNodeError(
        "flex_attention is written out before the import, which fx_importer.lower does by itself: "
        "import fx_importer.decompositions.engine.decompose(program, {}) instead of the program"
    )
