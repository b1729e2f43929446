"""Backend that runs StableHLO on its reference interpreter, which torch-mlir has, in a new process for each call.

The interpreter aborts on an operation that it does not support, and misreads a ``dense_resource``: weights become
arguments. It is slow and follows the specification.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fx_importer.calls.backend import EVALUATION, Loaded, Value
from fx_importer.calls.call_signature import (
    IN_STABLEHLO,
    CallingConvention,
    Signature,
    TensorKind,
    read_signature,
)
from fx_importer.calls.memref import dense
from fx_importer.calls.specialization import Specialized, is_dynamic
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.function_extraction import check_dialects, extract_function
from fx_importer.engines.stablehlo_interpreter.stablehlo_backend_child import interpret
from fx_importer.mlir.bindings import func_d, ir, write_bytecode
from fx_importer.mlir.constant_arguments import take_resources
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.mlir.emit.emitter import Emitter, replace, terminator, update_function_type
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.walk import operations
from fx_importer.options import Limits
from fx_importer.process.one_shot import run_isolated
from fx_importer.process.scratch import Scratch

STABLEHLO = CallingConvention("StableHLO's interpreter", "stablehlo", IN_STABLEHLO)


@dataclass(frozen=True)
class StablehloBackend:
    """StableHLO's reference interpreter."""

    name: str = "stablehlo"
    limits: Limits = EVALUATION
    """Limits of a call."""

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Prepare the function ``func_name`` of ``module``, which does not change.

        Each call starts a process, and raises `CrashedError` where the interpreter aborts or exceeds `limits`. With
        dynamic sizes there is a static specialization for each set of sizes.

        Raises:
            UsageError: if no function has that name, or it takes or returns anything but tensors, or has operations of
                other dialects.
        """
        copy, function = extract_function(module, func_name)
        signature = read_signature(function, STABLEHLO)
        check_dialects(copy, ("builtin", "func", "stablehlo"), STABLEHLO)
        with Trace().stage("constants"):
            weights = take_resources(function, "stablehlo.constant", STABLEHLO.dtypes)
        scratch = Scratch()
        with scratch.writing():
            kept = [_write(weight, scratch.path / f"weight_{i}") for i, weight in enumerate(weights)]
        if is_dynamic(signature):
            return Specialized(
                signature, copy, lambda module, static: _load(module, static, kept, scratch, self.limits)
            )
        return _load(copy, signature, kept, scratch, self.limits)


def _load(
    module: ir.Module, signature: Signature, weights: Sequence[_File], scratch: Scratch, limits: Limits
) -> _Function:
    _fold_empty_products(functions_of(module)["main"])
    _return_readable_types(functions_of(module)["main"])
    code = Scratch()
    with code.writing():
        write_bytecode(module.operation, code.path / "module.mlirbc")
    return _Function(signature, weights, code, scratch, limits)


def _fold_empty_products(function: func_d.FuncOp) -> None:
    """Replace products that sum over no elements by zeros: the interpreter aborts on them."""
    for op in operations(function.operation):
        if op.name == "stablehlo.dot_general":
            sizes, result = (ir.RankedTensorType(value.type).shape for value in (op.operands[0], op.results[0]))
            if 0 in sizes and 0 not in result:
                replace(op, StablehloOps.before(op).zeros(op.results[0].type))


_File = tuple[str, str, Sequence[int]]
"""Path of the bytes, dtype for numpy to read them, and shape."""


@dataclass(frozen=True)
class _Function:
    """A module and its weights in files with the lifetime of this object."""

    signature: Signature
    weights: Sequence[_File]
    code: Scratch
    held: Scratch
    """The directory of the weights."""
    limits: Limits

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        self.signature.check(arguments)
        tensors = [dense(argument) for argument in arguments if isinstance(argument, torch.Tensor)]
        with Scratch() as folder:
            files = [_write(tensor, folder / f"input_{i}") for i, tensor in enumerate(tensors)]
            request = folder / "request.json"
            request.write_text(json.dumps([*files, *self.weights]))
            run_isolated(
                STABLEHLO.runner, interpret, self.code.path / "module.mlirbc", request, folder, limits=self.limits
            )
            bits = iter([np.load(file) for file in sorted(folder.glob("*.npy"), key=lambda path: int(path.stem))])
        return tuple(_as_tensor(bits, kind) for kind in self.signature.results if isinstance(kind, TensorKind))


def _write(tensor: torch.Tensor, path: Path) -> _File:
    # As bytes, since numpy has no bfloat16; the child reads elements of the same size, which give the attribute.
    path.write_bytes(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    size = tensor.dtype.itemsize
    return str(path), f"u{size}" if size <= 8 else "c16", list(tensor.shape)


# Element types of attributes that Python cannot read, and types of as many bits that it can.
_COMPLEX_PARTS = {"complex<f32>": "f32", "complex<f64>": "f64"}
_BITS = {"bf16": "i16", "f16": "i16", **dict.fromkeys((dtype for dtype in DTYPES if dtype.startswith("f8")), "i8")}


def _return_readable_types(function: func_d.FuncOp) -> None:
    """Return complex results as real and imaginary parts, and floats of at most 16 bits as integers of as many bits."""
    ending = terminator(function.entry_block)
    emit = Emitter(ir.InsertionPoint(ending), function.location)
    returned: list[ir.Value] = []
    for value in ending.operands:
        element = emit.element(value)
        if element in _COMPLEX_PARTS:
            returned += [_convert(emit, part, value, _COMPLEX_PARTS[element]) for part in ("real", "imag")]
        elif element in _BITS:
            returned.append(_convert(emit, "bitcast_convert", value, _BITS[element]))
        else:
            returned.append(value)
    emit.op("func.return", [], returned)
    ending.erase()
    update_function_type(function)
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]


def _convert(emit: Emitter, operation: str, value: ir.Value, element: str) -> ir.Value:
    return emit.value(f"stablehlo.{operation}", emit.tensor(emit.shape(value), element), value)


def _as_tensor(bits: Any, kind: TensorKind) -> torch.Tensor:
    """Return the next tensor of ``bits`` in the dtype of ``kind``."""
    (dtype, *_) = kind.dtypes
    if dtype.is_complex:
        return torch.complex(torch.from_numpy(next(bits)), torch.from_numpy(next(bits)))
    return torch.from_numpy(next(bits)).view(dtype)
