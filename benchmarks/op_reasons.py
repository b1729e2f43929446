"""Why operators of OpInfo and gradients do not pass: op_coverage.md and gradients.md in docs/measurements."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

REASONS: Mapping[str, str] = {
    r"masked_select|nonzero|argwhere|unique(_consecutive)?|bincount": (
        "data-dependent size: TOSA has none, and no StableHLO consumer runs them"
    ),
    r"tensor_split": "the split points are a tensor: TOSA and StableHLO have no data-dependent sizes",
    r"double|to|float_power|.*with_dtype": "TOSA has no float64",
    r"cdouble|chalf": "TOSA has no float64, and StableHLO no complex32",
    r"hash_tensor": "its result is uint64, which no lowering supports",
    r"sparse\..*|to_sparse": "no backend here runs linalg's sparse tensors; TOSA and StableHLO have dense ones only",
    r"nn\.functional\.max_unpool.*": "duplicate indices are undefined in TOSA, and its reference model stops",
    r"histogramdd": "its bin edges are a list of tensors, which only the torch dialect has",
}
"""Reasons by a pattern for the whole name; the first match counts."""

OF_DTYPES: Mapping[str, str] = {
    r"grid_sampler_2d (bfloat16|float16)": (
        "eager rounds coordinates first: its error is 0.16 (float16: 0.019), ours 0.004 (0.0005)"
    ),
    r"(view_as_)?complex float16": "StableHLO has no complex32",
    r"(linalg\.)?matrix_exp (bfloat16|float16)": "eager's is NaN; ours is computed in float32 and rounded",
    r"chalf (bool|int32|int64|bfloat16|float16|complex64)": "StableHLO has no complex32",
}
"""The same for a name and a dtype, separated by a space; tried before the others."""


OF_GRADIENTS: Mapping[str, str] = {
    r"index_put": "with a mask, the number of rows with a gradient is data-dependent, which only linalg supports",
    r"index_fill": "it sums over distinct indices, whose number is data-dependent, as for masked_select",
    r"renorm": "torch's rule computes in float64, which TOSA lacks",
    r"logcumsumexp": ("torch's rule subtracts large exponentials: eager's error is 0.0017, ours 0.0019"),
}
"""The same for the gradient of a name; tried before the others."""


OF_SIZES: Mapping[str, str] = {
    r"linalg\.(cond|eig|eigh|eigvals|eigvalsh|lu|qr|svdvals|tensor(inv|solve))|norm\.nuc|pinverse|qr": (
        "the algorithm branches on the matrix's sizes, which must be static"
    ),
    r"linalg\.(pinv|matrix_rank).*": "its SVD branches on the matrix's sizes, which must be static",
    r"nn\.functional\.conv.*": ("in StableHLO, and of transposed volumes in TOSA, the weight's sizes must be static"),
    r"__getitem__": "the C++ lowering gathers slices of static size",
    r"max_pool2d_with_indices_backward": "in TOSA it needs static sizes",
    r"lu_unpack": "the smaller of two dynamic sizes is the size of a result",
    r"(arg|m)?sort": "in TOSA it was not lowered and run in 120 s, on a machine that others used",
    r"nn\.functional\.(adaptive_avg_pool[13]d|pad\.circular|unfold)": (
        "the sample has no elements, and TOSA has no tensor without"
    ),
    r"fft\.hfft": "in TOSA a view of a dynamic size beside one that is cut to a length",
    r"slice_scatter": "in TOSA a write of a static part along a dynamic axis is not lowered",
}
"""The same for a name with dynamic sizes; tried before the others."""


def reason_of_sizes(name: str) -> str:
    """Return why the operator ``name`` does not pass with dynamic sizes.

    Raises:
        KeyError: if no reason has been written down.
    """
    found = [text for pattern, text in OF_SIZES.items() if re.fullmatch(pattern, name)]
    return found[0] if found else reason(name)


def reason(name: str, dtypes: Collection[str] = ()) -> str:
    """Return why the operator ``name`` does not pass, in ``dtypes`` if given.

    Raises:
        KeyError: if no reason has been written down.
    """
    for pattern, text in OF_DTYPES.items():
        if dtypes and all(re.fullmatch(pattern, f"{name} {dtype}") for dtype in dtypes):
            return text
    for pattern, text in REASONS.items():
        if re.fullmatch(pattern, name):
            return text
    raise KeyError(f"no reason is given for {name} {' '.join(dtypes)}")


def reason_of_gradient(name: str) -> str:
    """Return why the gradient of the operator ``name`` does not pass.

    Raises:
        KeyError: if no reason has been written down.
    """
    found = [text for pattern, text in OF_GRADIENTS.items() if re.fullmatch(pattern, name)]
    return found[0] if found else reason(name)
