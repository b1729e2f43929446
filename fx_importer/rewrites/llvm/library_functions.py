"""Library calls in place of matmuls and convolutions, as data: passes choose them, an engine binds them to kernels."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fx_importer.mlir.bindings import ir
from fx_importer.rewrites.llvm.entry_point import read_fact, write_fact

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Product:
    """A product of matrices, or of batches of them. Axes are named ``b``, ``m``, ``n`` and ``k``."""

    left: str
    right: str
    result: str
    accumulate: bool
    by_onednn: bool = False
    """Whether it is a product of float32 matrices that is worth a call of oneDNN (`smallest_onednn_work`)."""
    static: bool = False
    """Whether the number of rows is known."""
    by_rows: bool = False
    """Whether `define_row_product` is faster than any library."""


@dataclass(frozen=True)
class Convolution:
    """A convolution. Axes are named ``n``, ``g``, ``c``, ``f`` and, if spatial, ``s``; ``1`` is one of size 1."""

    input: str
    weight: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]
    accumulate: bool
    output_padding: tuple[int, ...] | None = None
    """Of a transposed convolution, of one group; None of others."""
    bias: bool = False
    """Whether a bias is added before the result is rounded."""


Kernel = Product | Convolution
"""What one call computes, into the last of its tensors."""


@dataclass(frozen=True)
class LibraryFunction:
    """A kernel and its arguments: tensors of these element types and ranks, then indices, which it does not read."""

    kernel: Kernel
    elements: Sequence[str]
    ranks: Sequence[int]
    indices: int


_FACT = "library_functions"


def write_library_functions(module: ir.Operation, functions: Mapping[str, LibraryFunction]) -> None:
    """Write ``functions``, by name, to an attribute of ``module``."""
    write_fact(
        module,
        _FACT,
        {name: {type(function.kernel).__name__: asdict(function)} for name, function in functions.items()},
    )


def library_functions_of(module: ir.Module | ir.Operation) -> dict[str, LibraryFunction]:
    """Return the functions of `write_library_functions` by name; none if no pass wrote them."""
    functions: dict[str, LibraryFunction] = {}
    for name, entry in (read_fact(module, _FACT) or {}).items():
        ((kind, fields),) = entry.items()
        kernel = {"Product": Product, "Convolution": Convolution}[kind](**fields.pop("kernel"))
        functions[name] = LibraryFunction(kernel, **fields)
    return functions


FEWEST_ROWS = 8
"""Rows of the left matrix from which on oneDNN is faster than BLAS; a dynamic number is taken to be larger."""


@functools.cache
def packed_dtypes() -> tuple[torch.dtype, ...]:
    """Return the dtypes of convolutions that oneDNN computes on this machine with packed weights."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return ()
    supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return (torch.float32, *(dtype for dtype, is_supported in supported.items() if is_supported()))


def packed_elements() -> list[str]:
    """Return the element types of convolutions that are faster with channels last."""
    from fx_importer.mlir.dtypes import DTYPES

    return ["f64", "f32", *(name for name in ("bf16", "f16") if DTYPES[name][0] in packed_dtypes())]


@functools.cache
def smallest_onednn_work() -> int | None:
    """Return the multiplications from which oneDNN is faster than MKL with float32 matrices; None if it is not.

    MKL has no AVX-512 on AMD's CPUs: from Zen 5 on, that halves its throughput compared with oneDNN. Zen 4 (family 25)
    computes such vectors by halves: there oneDNN is 5 % faster with large products, and its calls cost more.
    """
    import torch

    with contextlib.suppress(OSError):
        processor = Path("/proc/cpuinfo").read_text()
        has_vectors = torch.backends.mkldnn.is_available() and "AVX512" in torch.backends.cpu.get_cpu_capability()
        if "AuthenticAMD" in processor and has_vectors:
            return 1 << (24 if re.search(r"^cpu family\s*: 25$", processor, re.MULTILINE) else 20)
    return None
