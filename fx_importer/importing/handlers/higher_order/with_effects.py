"""Import of ``with_effects`` as the wrapped operator. Effects keep the order of the program."""

from __future__ import annotations

from torch import fx
from torch._ops import OpOverload

from fx_importer.importing.handlers.schema_operators import call_overload
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.importing.schema_arguments import plan_for
from fx_importer.importing.value_map import Results


def import_with_effects(node: fx.Node, build: NodeBuilder) -> Results:
    """Import ``with_effects(token, operator, *args, **kwargs)``, which returns a new token and the results.

    The token has no value at run time. It represents the preceding effects.

    Raises:
        UnsupportedNodeError: if the wrapped callable is not an operator with a schema.
    """
    _, overload, *args = node.args
    if not isinstance(overload, OpOverload):
        raise UnsupportedNodeError(
            f"the effect of {overload}, which is not an operator with a schema, cannot be imported"
        )
    plan = plan_for(overload)
    types = [build.types.of(example) for example in build.example(node)[1 : plan.results + 1]]
    return [None, *call_overload(plan, args, node.kwargs, types, build)]
