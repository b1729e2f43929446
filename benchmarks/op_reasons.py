"""Why operators of OpInfo, and their gradients, do not pass: by name, for docs/op-coverage.md and docs/training.md."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

REASONS: Mapping[str, str] = {
    r"masked_select|nonzero|argwhere|unique(_consecutive)?|bincount": (
        "values decide how large the result is: TOSA has no such tensors, and no StableHLO consumer runs them"
    ),
    r"tensor_split": "a tensor says where to split: TOSA and StableHLO have no sizes that values decide",
    r"item": "the result is a Python number that is computed, and TOSA and StableHLO have tensors only",
    r"double|to|float_power|.*with_dtype": "TOSA has no float64",
    r"cdouble|chalf": "TOSA has no float64, and StableHLO no complex numbers of half precision",
    r"hash_tensor": "its result is of uint64, and no lowering has unsigned numbers of 64 bits",
    r"sparse\..*|to_sparse": "linalg's sparse tensors run on no backend here; TOSA and StableHLO have dense ones only",
    r"nn\.functional\.max_unpool.*": "indices may repeat, and TOSA leaves open which write wins: its model stops there",
    r"histogramdd": "its edges are a list of tensors, which only the torch dialect holds",
}
"""What matches a whole name, and why; the first match says it."""

OF_DTYPES: Mapping[str, str] = {
    r"grid_sampler_2d (bfloat16|float16)": (
        "eager rounds places first, and is 0.16 (float16: 0.019) from the exact result; here it is 0.004 (0.0005)"
    ),
    r"(view_as_)?complex float16": "StableHLO has no complex numbers of half precision",
    r"(linalg\.)?matrix_exp (bfloat16|float16)": "eager's is NaN; here it is that of float32, rounded",
    r"chalf (bool|int32|int64|bfloat16|float16|complex64)": "StableHLO has no complex numbers of half precision",
}
"""The same for a name and a dtype behind a space, before the others."""


OF_GRADIENTS: Mapping[str, str] = {
    r"index_put": "by a mask, values decide how many rows have a gradient: only linalg has tensors of such sizes",
    r"index_fill": "it is summed over each index once, and values decide how many there are: as of masked_select",
    r"renorm": "torch's rule computes it in float64, which TOSA does not have",
    r"logcumsumexp": (
        "torch's rule subtracts large exponentials: eager is 0.0017 from the result in float64, and here it is 0.0019"
    ),
}
"""The same for the gradient of a name, before the others."""


OF_SIZES: Mapping[str, str] = {
    r"linalg\.(cond|eig|eigh|eigvals|eigvalsh|lu|qr|svdvals|tensor(inv|solve))|norm\.nuc|pinverse|qr": (
        "the algorithm asks how the sizes of the matrix compare, or whether one is even: they have to be known"
    ),
    r"linalg\.(pinv|matrix_rank).*": "its singular values ask how the sizes of the matrix compare",
    r"nn\.functional\.conv.*": "the sizes of the weight, in StableHLO, have to be known; those of the input need not",
    r"_upsample_bilinear2d_aa": "its matrix of weights is written for sizes that are known",
    r"__getitem__": "the C++ lowering gathers slices of sizes that are known",
    r"max_pool2d_with_indices_backward": "in StableHLO it is written for sizes that are known",
    r"nn\.functional\.bilinear": "the C++ lowering leaves an assertion that sizes agree, which StableHLO does not have",
    r"nn\.functional\.group_norm": "of a number of channels that is not known, a product stops at run time",
}
"""The same for a name whose sizes are not known, before the others."""


def reason_of_sizes(name: str) -> str:
    """Return why the operator ``name`` does not pass where its sizes are not known.

    Raises:
        KeyError: if nobody has said so yet.
    """
    found = [text for pattern, text in OF_SIZES.items() if re.fullmatch(pattern, name)]
    return found[0] if found else reason(name)


def reason(name: str, dtypes: Collection[str] = ()) -> str:
    """Return why the operator ``name`` does not pass, in ``dtypes`` if given.

    Raises:
        KeyError: if nobody has said so yet.
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
        KeyError: if nobody has said so yet.
    """
    found = [text for pattern, text in OF_GRADIENTS.items() if re.fullmatch(pattern, name)]
    return found[0] if found else reason(name)
