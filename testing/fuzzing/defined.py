"""Which calls have results that PyTorch defines: others are not part of random programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

EXACT = frozenset(
    f"torch.{name}"
    for name in (
        *("abs", "neg", "sign", "sgn", "relu", "logical_not", "isnan", "isinf", "isfinite", "signbit", "floor", "ceil"),
        *("trunc", "round", "bitwise_not", "nan_to_num", "positive", "isposinf", "isneginf", "clone", "zeros_like"),
        *("ones_like", "maximum", "minimum", "fmax", "fmin", "copysign", "logical_and", "logical_or", "logical_xor"),
        *("eq", "ne", "lt", "le", "gt", "ge", "heaviside", "where", "masked_fill", "clamp", "amax", "amin", "any"),
        *("all", "max", "min", "argmax", "argmin", "aminmax", "cummax", "cummin", "topk", "argsort", "sort"),
        *(
            "kthvalue",
            "unsqueeze",
            "flatten",
            "reshape",
            "squeeze",
            "permute",
            "transpose",
            "unflatten",
            "roll",
            "flip",
        ),
        *("select", "narrow", "chunk", "unbind", "split", "cat", "stack", "repeat_interleave", "arange", "full_like"),
        *("full", "tril", "triu", "diagonal", "as_strided", "index_select", "gather", "take", "index_copy"),
        *("index_fill", "scatter", "masked_scatter", "add", "sub", "mul", "rsub", "square", "real", "imag"),
        *("Tensor.expand", "Tensor.repeat", "Tensor.unfold", "Tensor.to", "nn.functional.pad", "Tensor.detach"),
        *("nn.functional.embedding", "nn.functional.one_hot", "Tensor.copy_", "Tensor.masked_fill_", "Tensor.zero_"),
        *("Tensor.fill_", "Tensor.clamp_", "Tensor.relu_", "Tensor.neg_", "Tensor.abs_", "Tensor.item", "Tensor.size"),
        *("Tensor.index_copy_", "Tensor.index_fill_", "Tensor.scatter_", "Tensor.masked_scatter_"),
    )
) | {
    *("operator.getitem", "operator.add", "operator.sub", "operator.mul", "testing.fuzzing.program.assigned"),
    *("torch.t", "torch.movedim", "torch.Tensor.view", "torch.Tensor.expand_as", "torch.masked_select"),
    *("torch.nonzero", "torch.Tensor.clamp_"),
}
"""Targets whose results are exactly determined by their arguments. Others may be rounded."""

Check = Callable[..., bool]


def is_defined(target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether PyTorch defines the result of a call with these values; checked before the call."""
    check = _CHECKS.get(target) or _CHECKS.get(target.replace("torch.Tensor.", "torch.").removesuffix("_"))
    given = [each for each in tree_leaves((args, dict(kwargs))) if isinstance(each, Tensor)]
    if any(each.is_complex() for each in given) and not _finite(*given):
        return False  # products with infinities depend on the kernel
    if (target.endswith("_") or target == _ASSIGNED) and not _writes_once(target, *given):
        return False
    return check is None or check(*args, **kwargs)


_ASSIGNED = "testing.fuzzing.program.assigned"
_FILLS = ("torch.Tensor.zero_", "torch.Tensor.fill_")


def _writes_once(target: str, x: Tensor, *others: Tensor) -> bool:
    """Return whether the order of the elements does not matter when the first tensor is written."""
    own = _positions(x)
    if len(own) < x.numel() and not (target in (*_FILLS, _ASSIGNED) and not others):
        return False
    memory = x.untyped_storage().data_ptr()
    same = (each for each in others if each.untyped_storage().data_ptr() == memory)
    return all(_layout(each) == _layout(x) or not own & _positions(each) for each in same)


def _layout(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.storage_offset()


def _positions(x: Tensor) -> set[int]:
    """Return the places of the elements in memory."""
    places = torch.tensor([int(x.storage_offset())])
    for size, stride in zip(x.shape, x.stride(), strict=True):
        places = (places[:, None] + torch.arange(size) * stride).flatten()
    return set(places.tolist())


def _whole(*values: Any) -> bool:
    """Return whether all are integers or bools."""
    return all(isinstance(e, int) or (isinstance(e, Tensor) and not _inexact(e)) for e in values)


def _inexact(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _has_nan(x: Any) -> bool:
    """Return whether there is a NaN: its sign depends on the kernel that made it."""
    return bool(torch.isnan(torch.as_tensor(x)).any())


def _has_magnitudes(*values: Tensor) -> bool:
    """Return whether all absolute values are within the range of the result's dtype."""
    least = torch.iinfo(torch.result_type(*values)).min
    return not any(bool((each == least).any()) for each in values)


def _division(a: Any, b: Any, **_: Any) -> bool:
    """Integers are not divided by zero, nor the least one by -1, which ends the process."""
    if not _whole(a, b):
        return True
    if not _number_fits(a, b):
        return False
    dtype = torch.result_type(a, b)
    a, b = (torch.as_tensor(each).to(dtype) for each in (a, b))
    if bool((b == 0).any()):
        return False
    return dtype is torch.bool or not bool(((b == -1) & (a == torch.iinfo(dtype).min)).any())


def _cast(x: Tensor, dtype: torch.dtype) -> bool:
    """Floats fit into the integers that they are converted to."""
    if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool or not _inexact(x):
        return True
    ends = torch.iinfo(dtype)
    return bool(((x > ends.min) & (x < ends.max - (2**40 if dtype is torch.int64 else 0))).all())


def _shift(a: Tensor, b: Any) -> bool:
    if a.dtype is torch.bool:
        return False
    return isinstance(b, int) and 0 <= b < 8 * a.dtype.itemsize


def _number_fits(x: Any, number: Any, *others: Any, **_: Any) -> bool:
    """An integer is within the range of the tensor's dtype."""
    for each in (number, *others):
        if isinstance(each, bool) or not isinstance(each, int) or not isinstance(x, Tensor) or _inexact(x):
            continue
        if x.dtype is not torch.bool and not torch.iinfo(x.dtype).min <= each <= torch.iinfo(x.dtype).max:
            return False
    return True


def _power(x: Any, exponent: Any, **_: Any) -> bool:
    """An integer exponent fits; a complex power of zero depends on the kernel."""
    if any(isinstance(each, complex) or (isinstance(each, Tensor) and each.is_complex()) for each in (x, exponent)):
        return bool((torch.as_tensor(x) != 0).all())
    return _number_fits(x, exponent)


def _filled(x: Tensor, *rest: Any, **_: Any) -> bool:
    """A number that is written into integers is an integer in their range."""
    number = rest[-1] if rest else 0
    if isinstance(number, float) and not _inexact(x):
        return False
    return _number_fits(x, number)


def _padded(x: Tensor, pads: list[int], mode: str = "constant", value: Any = 0) -> bool:
    return _filled(x, value)


def _distinct(x: Tensor, count: int, axis: int, *_: Any) -> bool:
    """No two numbers of a row are equal: which of them is chosen is not defined."""
    if not x.numel():
        return True
    rows = x.movedim(axis, -1).reshape(-1, x.shape[axis]) if x.dim() else x.reshape(1, 1)
    return all(len(torch.unique(row)) == len(row) and int(row.isnan().sum()) <= 1 for row in rows)


def _once(x: Tensor, axis: int, where: Tensor, *_: Any, **__: Any) -> bool:
    """No element is written twice."""
    if isinstance(_[0] if _ else None, int | float):
        return True
    rows = where.movedim(axis, -1).reshape(-1, where.shape[axis]) if where.dim() else where.reshape(1, 1)
    return all(len(torch.unique(row)) == len(row) for row in rows)


def _put(x: Tensor, indices: tuple[Tensor, ...], values: Tensor, accumulate: bool = False) -> bool:
    if accumulate or values.dim() == 0 or indices[0].dtype is torch.bool:
        return True
    places = torch.zeros(x.shape, dtype=torch.int64)
    places.index_put_(indices, torch.ones_like(places[indices]), accumulate=True)
    return bool((places <= 1).all())


def _assigned(x: Tensor, where: Any, value: Any) -> bool:
    return _written(x, value)


def _written(x: Tensor, value: Any) -> bool:
    """Values fit into the dtype that they are written to."""
    if not isinstance(value, Tensor):
        return _filled(x, value)
    return _cast(value, x.dtype)


def _scattered(x: Tensor, axis: int, where: Tensor, source: Tensor, reduce: str, **_: Any) -> bool:
    """A mean of integers is not rounded in a defined way if it is not exact."""
    return reduce != "mean" or x.is_floating_point()


def _where(condition: Tensor, a: Any, b: Any) -> bool:
    return all(_number_fits(x, n) for x, n in ((a, b), (b, a)) if not isinstance(n, Tensor))


def _finite(x: Tensor, *others: Any, **_: Any) -> bool:
    """Whether infinity times a zero of a padding or a weight is NaN depends on the kernel."""
    return all(bool(each.isfinite().all()) for each in (x, *others) if isinstance(each, Tensor))


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> bool:
    """A row whose scores are all NaN is zeros in eager's fused kernel, and NaN in its other one."""
    return _finite(query, key, value)


def _off_poles(x: Tensor) -> bool:
    """Where gradients are taken, no element is a pole: eager's trigamma there is 1 / sin(pi x) ** 2, rounded."""
    return not x.requires_grad or not bool(((x <= 0) & (x == x.floor())).any())


def _no_infinity(x: Tensor, **_: Any) -> bool:
    """No element is infinite: eager's gelu is NaN or infinity there, depending on strides."""
    return not bool((x == torch.inf).any())


_CHECKS: Mapping[str, Check] = {
    **{f"torch.{name}": _has_magnitudes for name in ("gcd", "lcm")},
    "torch.pow": _power,
    "torch.signbit": lambda x: not _has_nan(x),
    "torch.copysign": lambda x, y: not _has_nan(y),
    "torch.nn.functional.gelu": _no_infinity,
    **{f"torch.{name}": _off_poles for name in ("digamma", "lgamma")},
    **{f"torch.{name}": _division for name in ("div", "floor_divide", "remainder", "fmod", "true_divide")},
    **{f"torch.{name}": _number_fits for name in ("add", "sub", "mul", "rsub", "eq", "ne", "lt", "le", "gt", "ge")},
    **{f"torch.bitwise_{way}_shift": _shift for way in ("left", "right")},
    **{f"torch.{name}": _filled for name in ("masked_fill", "full_like", "index_fill")},
    **{f"torch.Tensor.{name}": _written for name in ("fill_", "copy_", "add_", "sub_", "mul_")},
    **{f"torch.{name}": _once for name in ("scatter", "index_copy")},
    **{f"torch.nn.functional.conv{kind}{rank}d": _finite for rank in (1, 2, 3) for kind in ("", "_transpose")},
    "torch.nn.functional.interpolate": _finite,
    "torch.nn.functional.scaled_dot_product_attention": _attention,
    "torch.Tensor.masked_fill_": _filled,
    "torch.clamp": lambda x, *bounds, **named: _number_fits(x, None, *bounds, *named.values()),
    "torch.where": _where,
    "torch.Tensor.to": _cast,
    "torch.topk": _distinct,
    "torch.kthvalue": _distinct,
    "torch.index_put": _put,
    "torch.scatter_reduce": _scattered,
    "torch.nn.functional.pad": _padded,
    "testing.fuzzing.program.assigned": _assigned,
}
