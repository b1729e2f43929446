"""Assertions of a program: ``torch.runtime.assert`` with ``runtime_asserts``, otherwise dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from fx_importer.fx_graph.assumptions import is_assumption
from fx_importer.fx_graph.operators import aten
from fx_importer.importing.handlers.scalar_operators import ScalarOperators
from fx_importer.importing.node_builder import NodeBuilder
from fx_importer.mlir.bindings import ir


def import_assertion(node: fx.Node, build: NodeBuilder) -> Sequence[ir.Value]:
    """Import a call of one of `ASSERTIONS`, which has no results.

    An assumption is an assertion too, or else a result of the function, see `read_signature`.
    """
    if build.asserts_assumptions if is_assumption(node) else build.runtime_asserts:
        ASSERTIONS[node.target](node, build)
    return ()


def _condition(node: fx.Node, build: NodeBuilder) -> None:
    """Import ``_assert_scalar(condition, message)`` or ``_assert_async(tensor, message)``."""
    condition, *message = node.args
    build.runtime_assert(build.as_bool(build.value(condition)), str(message[0]) if message else f"{condition} is false")


def _range(node: fx.Node, build: NodeBuilder) -> None:
    """Import ``sym_constrain_range(number, min, max)``, where a bound may be None."""
    number = node.args[0]
    limits = {**dict(zip(("min", "max"), node.args[1:], strict=False)), **node.kwargs}
    if node.target is aten.sym_constrain_range_for_size.default:
        limits["min"] = max(0, limits.get("min") or 0)  # pyright: ignore[reportArgumentType]
    assert_range(build, build.value(number), str(number), limits.get("min"), limits.get("max"))


def _nothing(node: fx.Node, build: NodeBuilder) -> None:
    """Drop ``_assert_tensor_metadata``: export has already checked dtypes, devices and layouts."""


ASSERTIONS: Mapping[Any, Callable[[fx.Node, NodeBuilder], None]] = {
    aten._assert_scalar.default: _condition,
    aten._assert_async.default: _condition,
    aten._assert_async.msg: _condition,
    aten.sym_constrain_range.default: _range,
    aten.sym_constrain_range_for_size.default: _range,
    aten._assert_tensor_metadata.default: _nothing,
}


def assert_range(build: NodeBuilder, number: ir.Value, name: str, least: Any, most: Any) -> None:
    """Assert that ``least <= number <= most``. None means no bound."""
    scalars = ScalarOperators(build)
    if least is not None:
        build.runtime_assert(scalars.compare("ge", number, build.constant(least)), f"{name} is less than {least}")
    if most is not None:
        build.runtime_assert(scalars.compare("le", number, build.constant(most)), f"{name} is greater than {most}")
