"""A program on one device of XLA, which takes and returns tensors of PyTorch by DLPack, without copies by the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch

from fx_importer.calls.argument_values import DenseArguments
from fx_importer.calls.backend import Value
from fx_importer.calls.call_signature import HOST, Signature, TensorKind
from fx_importer.calls.state import OnDevice
from fx_importer.diagnostics.trace import Trace
from fx_importer.engines.xla.torch_arrays import TorchReader, to_torch, torch_device, wait_for_torch
from fx_importer.engines.xla.xla_program import XlaArray, donated_positions, put

_TORCH: Any = torch


class XlaFunction:
    """Compiled code for one device, and its weights.

    Tensors on the device are read in place, and results are in memory that XLA has allocated. On a GPU, XLA's streams
    and the current stream of PyTorch wait for each other, and the host waits for neither.

    Args:
        signature: the arguments and results.
        jax: the module.
        device: jax's.
        program: jax's ``Compiled``.
        weights: the last arguments.
    """

    def __init__(self, signature: Signature, jax: Any, device: Any, program: Any, weights: Sequence[Any]):
        self._device, self._torch_device = device, torch_device(_TORCH, device)
        self.signature = replace(signature, device=self._torch_device, host=self._torch_device == HOST)
        self._program, self._weights = program, list(weights)
        self._execute = program.runtime_executable().execute_sharded  # without the checks of jax's own call
        self._readers = [TorchReader(_TORCH, device) for _ in signature.arguments]
        self._upload = partial(put, jax, device)
        self._copy = partial(jax.numpy.array, copy=True)
        self._enable_x64 = jax.enable_x64
        self._donated = donated_positions(signature)
        self._arguments = DenseArguments(self.signature)
        self._types = [kind.dtypes[0] for kind in signature.results if isinstance(kind, TensorKind)]
        self._takes = [kind.dtypes[0] for kind in signature.arguments if isinstance(kind, TensorKind)]

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        return tuple([to_torch(_TORCH, value, self._device) for value in self._run(arguments)])

    def keep_state(self, *arguments: Value | OnDevice) -> tuple[Any, ...]:
        """Call the function. New values of state stay on the device, in the memory of the old ones."""
        aliases = self.signature.aliases
        if not aliases:
            return self(*cast("tuple[Value, ...]", arguments))
        return tuple(
            XlaState(value, dtype, self._device) if at in aliases else to_torch(_TORCH, value, self._device)
            for at, (value, dtype) in enumerate(zip(self._run(arguments), self._types, strict=True))
        )

    def compiled_text(self) -> str:
        """Return the program that XLA has compiled, as it prints it."""
        return self._program.as_text()

    def _run(self, arguments: Sequence[Any]) -> Sequence[Any]:
        dense = self._arguments(arguments)
        is_busy = ordered = wait_for_torch(_TORCH, self._device)
        arrays = list[Any]()
        for at, value in enumerate(dense):
            if isinstance(value, XlaState):
                arrays.append(value.array)
            elif value.device != self._torch_device:  # of rank 0
                arrays.append(self._upload(value))
            elif at in self._donated:
                arrays.append(self._copied(at, self._viewed(at, value), is_busy))  # by a program of its own
            else:
                arrays.append(self._readers[at](self._viewed(at, value), ordered))
                ordered = False  # one array that waits is enough
        try:
            shards = self._execute([*arrays, *self._weights]).disassemble_into_single_device_arrays()
            results = [array for (array,) in shards]
            for result in results[:1] if self._waits(results) else ():
                result.block_until_ready()
        except Exception:
            with Trace().stage("xla"):  # which says what failed
                raise
        return results

    def _waits(self, results: Sequence[Any]) -> bool:
        """Whether this process waits, since nothing else does before arguments that are read in place change."""
        return self._torch_device == HOST or len(results) == len(self.signature.aliases)

    def _viewed(self, at: int, tensor: torch.Tensor) -> torch.Tensor:
        """Return ``tensor`` as one of the dtype that the program takes, of the same bits."""
        return tensor if tensor.dtype is self._takes[at] else tensor.view(self._takes[at])

    def _copied(self, at: int, tensor: torch.Tensor, ordered: bool) -> Any:
        """Return a copy on the device, whose memory results may take."""
        if self._torch_device == HOST:
            return self._upload(tensor)
        with self._enable_x64(True):
            return self._copy(self._readers[at](tensor, ordered)).block_until_ready()


@dataclass(frozen=True)
class XlaState(XlaArray):
    """New state on the device."""

    device: Any
    """jax's."""

    def tensor(self) -> torch.Tensor:
        return to_torch(_TORCH, self.array, self.device).clone()
