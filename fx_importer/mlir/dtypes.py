"""Dtypes of torch by element type. The module imports torch, which a list of pipelines needs not."""

from __future__ import annotations

import torch

DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "f64": (torch.float64,),
    "f32": (torch.float32,),
    "f16": (torch.float16,),
    "bf16": (torch.bfloat16,),
    "f8E4M3FN": (torch.float8_e4m3fn,),
    "f8E5M2": (torch.float8_e5m2,),
    "f8E4M3FNUZ": (torch.float8_e4m3fnuz,),
    "f8E5M2FNUZ": (torch.float8_e5m2fnuz,),
    "complex<f16>": (torch.complex32,),
    "complex<f32>": (torch.complex64,),
    "complex<f64>": (torch.complex128,),
    "i1": (torch.bool,),
    "i8": (torch.int8, torch.uint8),
    "i16": (torch.int16, torch.uint16),
    "i32": (torch.int32, torch.uint32),
    "i64": (torch.int64, torch.uint64),
}
"""Torch dtypes by element type. Integers are signless, so arguments may be of both; results are of the first."""

UNSIGNED = {f"ui{dtype.itemsize * 8}": (dtype,) for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)}
"""Dtypes of StableHLO's unsigned integers."""
