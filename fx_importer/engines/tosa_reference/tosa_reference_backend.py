"""Backend that validates TOSA and runs it on Arm's reference model. Both are in the package ``tosa-tools``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fx_importer.calls.backend import EVALUATION, Loaded, Value
from fx_importer.calls.call_signature import CallingConvention, Signature, TensorKind, read_signature
from fx_importer.calls.memref import dense
from fx_importer.calls.specialization import Specialized, is_dynamic
from fx_importer.engines.engine_pipeline import INLINE, run_engine_pipeline
from fx_importer.engines.function_extraction import check_dialects, extract_function
from fx_importer.engines.tosa_reference.engine import TOSA_REFERENCE_ENGINE
from fx_importer.engines.tosa_reference.tosa_empty_tensors import drop_empty_results
from fx_importer.engines.tosa_reference.tosa_flatbuffer import write_flatbuffer
from fx_importer.engines.tosa_reference.tosa_reference_backend_child import run_model
from fx_importer.engines.tosa_reference.tosa_specialization import specialize_tosa
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.mlir.functions import functions_of
from fx_importer.options import Limits
from fx_importer.pipelines import Pipeline
from fx_importer.process.one_shot import run_isolated
from fx_importer.process.scratch import Scratch

_EXTENSIONS = "int16,int64,bf16,fp8e4m3,fp8e5m2,fft,controlflow"
TARGET = f"profiles=pro_fp,pro_int extensions={_EXTENSIONS} specification_version=1.1.draft level=8k"
"""The validation target. 64-bit integers are an extension of the reference model: they are passed unchanged."""
_ELEMENTS = ("f32", "f16", "bf16", "f8E4M3FN", "f8E5M2", "i1", "i8", "i16", "i32", "i64")
_AS_BITS = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.int8, torch.float8_e5m2: torch.int8}
"""Dtypes that numpy lacks, and integers of as many bits."""

TOSA = CallingConvention("TOSA's reference model", "tosa", {element: DTYPES[element] for element in _ELEMENTS})


@dataclass(frozen=True)
class TosaReferenceBackend:
    """Arm's reference model of TOSA."""

    name: str = "tosa_reference"
    limits: Limits = EVALUATION
    """Limits of a call."""

    def load(self, module: ir.Module, func_name: str = "main") -> Loaded:
        """Validate the function ``func_name`` of ``module``, which does not change, and serialize it.

        With dynamic sizes there is a static specialization for each set of sizes, validated at the first call with it.
        Each call starts a process, and raises `CrashedError` where the model aborts, exceeds `limits`, or finds
        unpredictable behavior according to the specification.

        Raises:
            NotInstalledError: without ``tosa-tools``.
            UsageError: if no function has that name, or it takes or returns anything but tensors, or has operations of
                other dialects, or is invalid for `TARGET`, with all errors of the validator.
        """
        TOSA_REFERENCE_ENGINE.check_installed()
        copy, function = extract_function(module, func_name)
        run_engine_pipeline(Pipeline(self.name, (INLINE,)), copy)
        signature = read_signature(function, TOSA)
        check_dialects(copy, ("builtin", "func", "tosa"), TOSA)
        load = partial(_load, limits=self.limits)
        return Specialized(signature, copy, load, specialize_tosa) if is_dynamic(signature) else load(copy, signature)


def _load(module: ir.Module, signature: Signature, limits: Limits) -> _Function:
    scratch = Scratch()
    drop_empty_results(functions_of(module)["main"])
    with scratch.writing():
        write_flatbuffer(module, scratch.path / "module.tosa", TARGET)
    return _Function(signature, scratch, limits)


@dataclass(frozen=True)
class _Function:
    """A serialized model in a file with the lifetime of this object."""

    signature: Signature
    scratch: Scratch
    limits: Limits

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        self.signature.check(arguments)
        kinds = [kind for kind in self.signature.results if isinstance(kind, TensorKind)]
        files = [f"result_{i}.npy" for i in range(sum(0 not in kind.shape for kind in kinds))]
        if not files:  # the model does not run a graph without results
            return ()
        tensors = [dense(argument) for argument in arguments if isinstance(argument, torch.Tensor)]
        with Scratch() as folder:
            for number, tensor in enumerate(tensors):
                np.save(folder / f"{number}.npy", tensor.view(_AS_BITS.get(tensor.dtype, tensor.dtype)).numpy())
            run_isolated(TOSA.runner, run_model, self.scratch.path / "module.tosa", folder, limits=self.limits)
            names = iter(files)
            return tuple(_empty(kind) if 0 in kind.shape else _read(folder / next(names), kind) for kind in kinds)


def _empty(kind: TensorKind) -> torch.Tensor:
    """Return a result without elements, which the model does not return."""
    return torch.empty([size or 0 for size in kind.shape], dtype=kind.dtypes[0])


def _read(path: Path, kind: TensorKind) -> torch.Tensor:
    (dtype, *_) = kind.dtypes
    array = np.load(path)
    if dtype in _AS_BITS:  # an array of untyped bytes
        array = array.view(f"i{dtype.itemsize}")
    return torch.from_numpy(array).view(dtype)
