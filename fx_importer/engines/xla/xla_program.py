"""Programs of StableHLO as functions that jax compiles, so that jax's path of calls, in C++, takes the arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fx_importer.calls.call_signature import (
    IN_STABLEHLO,
    CallingConvention,
    Kind,
    Signature,
    TensorKind,
    read_signature,
)
from fx_importer.calls.memref import dense
from fx_importer.calls.state import OnDevice
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.engines.xla.stablehlo_loader import artifact_call
from fx_importer.mlir.bindings import ir, portable_artifact
from fx_importer.mlir.functions import functions_of

XLA = CallingConvention("XLA", "stablehlo", IN_STABLEHLO)


def compile_program(
    module: ir.Module, arguments: Sequence[Any], results: Sequence[Any], donated: Collection[int] = ()
) -> Any:
    """Compile the function ``main`` of ``module``. It takes arrays of jax or numpy, and returns jax's.

    Args:
        module: which has weights as arguments.
        arguments: the place of each, jax's ``Sharding``.
        results: likewise; None where XLA chooses.
        donated: positions of arguments that have to be arrays of jax: results may be in their memory.

    Returns:
        jax's ``Compiled``, to be called in ``enable_x64``.
    """
    jax = XLA_ENGINE.imported("jax")
    signature = read_signature(functions_of(module)["main"], XLA)
    shapes = [jax.ShapeDtypeStruct(*shape) for shape in _shapes(signature.arguments)]
    call = artifact_function(module)
    with Trace().stage("xla-compile"), jax.enable_x64(True):
        function = jax.jit(
            call,
            keep_unused=True,
            donate_argnums=tuple(donated),
            in_shardings=tuple(arguments),
            out_shardings=list(results),
        )
        return function.lower(*shapes).compile()


def donated_positions(signature: Signature) -> frozenset[int]:
    """Return the positions of state arguments whose memory can hold the new values."""
    if signature.keeps_state:
        return frozenset()
    kinds = signature.arguments, signature.results
    return frozenset(at for new, at in signature.aliases.items() if kinds[0][at] == kinds[1][new])


def artifact_function(module: ir.Module) -> Callable[..., Sequence[Any]]:
    """Return the function ``main`` of ``module`` as one that jax traces."""
    results = _shapes(read_signature(functions_of(module)["main"], XLA).results)
    with Trace().stage("artifact"):
        artifact = portable_artifact(module)
    return artifact_call(artifact, results)


def _shapes(kinds: Sequence[Kind]) -> list[tuple[Any, Any]]:
    """Return shapes, and dtypes of numpy."""
    return [(kind.shape, _numpy_type(kind.dtypes[0])) for kind in kinds if isinstance(kind, TensorKind)]


# --- arrays ---------------------------------------------------------------------------------------------------------

_BITS = {1: torch.int8, 2: torch.int16}
_IN_NUMPY = {dtypes[0] for name, dtypes in IN_STABLEHLO.items() if not name.startswith(("bf", "f8"))}


@functools.cache
def _numpy_type(dtype: torch.dtype) -> Any:
    """Return the dtype in numpy. ``ml_dtypes`` has those that numpy lacks, under torch's names."""
    if dtype in _IN_NUMPY:
        return torch.empty(0, dtype=dtype).numpy().dtype
    return np.dtype(getattr(XLA_ENGINE.imported("ml_dtypes"), str(dtype).removeprefix("torch.")))


def as_array(tensor: torch.Tensor) -> Any:
    """Return the dense ``tensor`` as an array of numpy, which shares its memory."""
    plain = tensor.detach() if tensor.requires_grad else tensor
    if tensor.dtype in _IN_NUMPY:
        return plain.numpy()
    return plain.view(_BITS[tensor.dtype.itemsize]).numpy().view(_numpy_type(tensor.dtype))


def put(jax: Any, sharding: Any, tensor: torch.Tensor) -> Any:
    """Return a copy of ``tensor`` as an array of jax on a device, or on the devices of a ``Sharding``."""
    with jax.enable_x64(True):  # without it, 64 bits become 32
        return jax.device_put(as_array(dense(tensor)).copy(), sharding)


def as_tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return a copy of an array of jax."""
    copy = np.array(array)
    return (
        torch.from_numpy(copy) if dtype in _IN_NUMPY else torch.from_numpy(copy.view(f"i{dtype.itemsize}")).view(dtype)
    )


@dataclass(frozen=True)
class XlaArray(OnDevice):
    """An array of jax on a device."""

    array: Any
    type: torch.dtype

    @property
    def dtype(self) -> torch.dtype:
        return self.type

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)
