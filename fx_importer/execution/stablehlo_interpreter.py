"""Runs StableHLO on the interpreter that the torch-mlir wheel carries, in a process of its own.

The interpreter ends the process on an operation that it does not know, and reads a ``dense_resource`` as something
else: so weights become arguments. It is slow, and exact about what StableHLO means.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fx_importer.diagnostics.trace import Trace
from fx_importer.execution.backend import Loaded, Value
from fx_importer.execution.call_signature import IN_STABLEHLO, CallingConvention, Signature, TensorKind, read_signature
from fx_importer.execution.constant_block import take_resources
from fx_importer.execution.memref import DTYPES, dense
from fx_importer.execution.module_functions import check_dialects, extract_function, functions_of
from fx_importer.execution.specialization import Specialized, is_dynamic
from fx_importer.execution.stablehlo_interpreter_child import interpret
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.process.one_shot import run_isolated
from fx_importer.process.scratch import Scratch

STABLEHLO = CallingConvention("StableHLO's interpreter", "stablehlo", IN_STABLEHLO)


@dataclass(frozen=True)
class StablehloBackend:
    """StableHLO's reference interpreter."""

    name: str = "stablehlo"

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Make the function ``func_name`` of ``module`` ready to run; ``module`` stays as it is.

        Each call starts a process. It raises `CrashedError` where the interpreter ends it. Of dynamic sizes there is a
        static copy for each set that it is called with.

        Raises:
            UsageError: if there is no such function, or it takes or returns anything but tensors, or holds operations
                of other dialects.
        """
        copy, function = extract_function(module, func_name)
        signature = read_signature(function, STABLEHLO)
        check_dialects(copy, ("builtin", "func", "stablehlo"), STABLEHLO)
        with Trace().stage("constants"):
            weights = take_resources(function, "stablehlo.constant", STABLEHLO.dtypes)
        scratch = Scratch()
        kept = [_write(weight, scratch.path / f"weight_{i}") for i, weight in enumerate(weights)]
        if is_dynamic(signature):
            return Specialized(signature, copy, lambda module, static: _load(module, static, kept, scratch))
        return _load(copy, signature, kept, scratch)


def _load(module: ir.Module, signature: Signature, weights: Sequence[_File], scratch: Scratch) -> _Function:
    _return_readable_types(functions_of(module)["main"])
    code = Scratch()
    module.operation.write_bytecode(str(code.path / "module.mlirbc"))
    return _Function(signature, weights, code, scratch)


_File = tuple[str, str, Sequence[int]]
"""Where bytes are, as what numpy is to read them, and the shape."""


@dataclass(frozen=True)
class _Function:
    """A module and its weights in files, for as long as this lives."""

    signature: Signature
    weights: Sequence[_File]
    code: Scratch
    held: Scratch
    """Has the files of the weights."""

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        self.signature.check(arguments)
        tensors = [dense(each) for each in arguments if isinstance(each, torch.Tensor)]
        with tempfile.TemporaryDirectory(prefix="fx-importer-") as folder:
            files = [_write(each, Path(folder, f"input_{i}")) for i, each in enumerate(tensors)]
            request = Path(folder, "request.json")
            request.write_text(json.dumps([*files, *self.weights]))
            run_isolated(STABLEHLO.runner, interpret, self.code.path / "module.mlirbc", request, folder)
            bits = iter([np.load(each) for each in _numbered(folder)])
        return tuple(_as_tensor(bits, kind) for kind in self.signature.results if isinstance(kind, TensorKind))


def _numbered(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*.npy"), key=lambda path: int(path.stem))


def _write(tensor: torch.Tensor, path: Path) -> _File:
    # Bytes, since numpy has no bfloat16; in elements of the same size, which is what makes an attribute's elements.
    path.write_bytes(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    size = tensor.dtype.itemsize
    return str(path), f"u{size}" if size <= 8 else "c16", list(tensor.shape)


# What an attribute cannot be read out of as, in Python: it comes out as other types of as many bits.
_COMPLEX_PARTS = {"complex<f32>": "f32", "complex<f64>": "f64"}
_BITS = {"bf16": "i16", "f16": "i16", **dict.fromkeys((each for each in DTYPES if each.startswith("f8")), "i8")}


def _return_readable_types(function: func_d.FuncOp) -> None:
    """Return each complex result as its two parts, and each float of 16 bits or less as an integer of the same bits."""
    ending = list(function.entry_block.operations)[-1].operation
    returned: list[ir.Value] = []
    with function.context, function.location, ir.InsertionPoint(ending):
        for value in ending.operands:
            element = str(ir.RankedTensorType(value.type).element_type)
            if element in _COMPLEX_PARTS:
                returned += [_convert(each, value, _COMPLEX_PARTS[element]) for each in ("real", "imag")]
            elif element in _BITS:
                returned.append(_convert("bitcast_convert", value, _BITS[element]))
            else:
                returned.append(value)
        ir.Operation.create("func.return", operands=returned)
        ending.erase()
        inputs = [each.type for each in function.entry_block.arguments]
        kind = ir.FunctionType.get(inputs, [each.type for each in returned])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        if "res_attrs" in function.attributes:
            del function.attributes["res_attrs"]


def _convert(operation: str, value: ir.Value, element: str) -> ir.Value:
    result = ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, ir.Type.parse(element))
    return ir.Operation.create(f"stablehlo.{operation}", results=[result], operands=[value]).result


def _as_tensor(bits: Any, kind: TensorKind) -> torch.Tensor:
    """Return the next tensor that ``bits`` holds, as its own dtype."""
    (dtype, *_) = kind.dtypes
    if dtype.is_complex:
        return torch.complex(torch.from_numpy(next(bits)), torch.from_numpy(next(bits)))
    return torch.from_numpy(next(bits)).view(dtype)
