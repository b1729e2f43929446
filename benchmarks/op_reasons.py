"""Why operators of OpInfo do not pass: by name, for docs/op-coverage.md."""

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
    r"(linalg\.)?matrix_exp (bfloat16|float16)": "eager's is NaN; here it is that of float32, rounded",
    r"chalf (bool|int32|int64|bfloat16|float16|complex64)": "StableHLO has no complex numbers of half precision",
}
"""The same for a name and a dtype behind a space, before the others."""


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
