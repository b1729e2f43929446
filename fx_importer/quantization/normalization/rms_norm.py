"""RMS norms that are written as powers, means and reciprocal roots, as one operator."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, fx

from fx_importer.fx_graph.operators import aten

_MULTIPLIES = (aten.mul.Tensor,)


def find_rms_norm(root: fx.Node, constant: Callable[[fx.Node], Tensor | None]) -> None:
    """Replace ``x * rsqrt(mean(x ** 2, -1) + eps)``, and a factor along the last axis, by ``rms_norm``.

    ``root`` is an operator ``rsqrt``. Zhang and Sennrich 2019, as models of transformers write it.
    """
    if root.target is not aten.rsqrt.default or (found := _mean_of_squares(root.args[0])) is None:
        return
    x, eps = found
    size = x.meta["val"].shape[-1]
    for product in [user for user in root.users if user.target in _MULTIPLIES and set(user.args) == {x, root}]:
        last, weight = product, None
        users = list(product.users)
        if len(users) == 1 and users[0].target in _MULTIPLIES:
            for factor in users[0].args:
                held = constant(factor) if isinstance(factor, fx.Node) else None
                if held is not None and list(held.shape) == [size]:
                    last, weight = users[0], factor
        with last.graph.inserting_before(last):
            made = last.graph.call_function(aten.rms_norm.default, (x, [size], weight, eps))
        made.meta |= last.meta
        last.replace_all_uses_with(made)


def _mean_of_squares(node: object) -> tuple[fx.Node, float] | None:
    """Return ``x`` and ``eps`` of ``mean(x ** 2, -1, keepdim=True) + eps``."""
    if not isinstance(node, fx.Node) or node.target not in (aten.add.Tensor, aten.add.Scalar) or node.kwargs:
        return None
    mean, eps = node.args[:2]
    if not isinstance(eps, int | float) or not isinstance(mean, fx.Node) or mean.target is not aten.mean.dim:
        return None
    square, axes, *keepdim = mean.args
    if not isinstance(square, fx.Node) or square.target not in (aten.pow.Tensor_Scalar, *_MULTIPLIES):
        return None
    x = square.args[0]
    if not isinstance(x, fx.Node) or mean.kwargs or keepdim != [True] or axes not in ([-1], [x.meta["val"].dim() - 1]):
        return None
    squares = (square.target is aten.pow.Tensor_Scalar and square.args[1] == 2) or (
        square.target in _MULTIPLIES and square.args == (x, x)
    )
    return (x, float(eps)) if squares else None
