"""Effect tokens of AOTAutograd's graphs, which keep calls of operators with effects in order."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx


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
