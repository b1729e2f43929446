"""``flex_attention`` does not reach the importer: it is written out before a program is decomposed."""

from __future__ import annotations

from torch import fx

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError


def import_flex_attention(node: fx.Node, build: NodeBuilder) -> None:
    """Say which way leads on.

    Raises:
        UnsupportedNodeError: always.
    """
    raise UnsupportedNodeError(
        "flex_attention is written out before the import, which fx_importer.lower does by itself: "
        "import fx_importer.decompositions.engine.decompose(program, {}) instead of the program"
    )
