"""Running the program of each device of a mesh on the JIT, a thread for each rank, without XLA.

A collective of StableHLO becomes a call of Python, in which the ranks wait for each other and exchange tensors.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from fx_importer.calls.backend import Loaded, Value
from fx_importer.calls.call_signature import IN_STABLEHLO
from fx_importer.distributed.communication import groups_of
from fx_importer.distributed.mesh import Groups
from fx_importer.distributed.module_attributes import mesh_of, remove_mesh
from fx_importer.engines.jit.jit_backend import JitBackend
from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import ValueType
from fx_importer.fx_graph.operator_stub import OperatorStub, Passed, Returned
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import OperatorStubs
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.emit.stablehlo import StablehloOps
from fx_importer.mlir.module_contents import copy_module
from fx_importer.mlir.walk import operations

TIMEOUT = 600.0
"""Seconds that ranks wait for each other in a collective."""

_COLLECTIVE, _RANK = "fx_importer.collective", "fx_importer.rank"
"""The operators of the stubs that stand for collectives and for the number of the device."""
_REDUCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "stablehlo.add": torch.add,
    "stablehlo.multiply": torch.mul,
    "stablehlo.maximum": torch.maximum,
    "stablehlo.minimum": torch.minimum,
    "stablehlo.and": torch.bitwise_and,
    "stablehlo.or": torch.bitwise_or,
    "stablehlo.xor": torch.bitwise_xor,
}

_Exchange = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
"""Takes the tensor of each rank, and returns the result of each."""


def load_in_process(module: ir.Module, func_name: str = "main") -> FunctionOfRanks:
    """Compile the function ``func_name`` of ``module``, in StableHLO, for each rank of its mesh.

    Raises:
        UsageError: if the module has no mesh, or a collective of another form than the importer's; and as `JitBackend`.
        StageFailed: if the module cannot be compiled.
    """
    mesh = mesh_of(module)
    if mesh is None:
        raise UsageError("the module runs on one device: lower the program with mesh= to run it on several")
    exchanges = [_exchange(op, mesh.size) for op in operations(module.operation, _COLLECTIVES)]
    meeting = _Meeting(exchanges, mesh.size)
    copy = copy_module(module.operation)
    remove_mesh(copy)
    _call_stubs(copy)
    backend = JitBackend(stubs={_COLLECTIVE: meeting.exchange, _RANK: meeting.rank}, cache=False)
    return FunctionOfRanks(backend.load_several(copy, func_name, mesh.size), meeting)


class FunctionOfRanks:
    """The compiled code of each rank. It takes the arguments of all ranks, and returns their results."""

    def __init__(self, loaded: Sequence[Loaded], meeting: _Meeting):
        self.ranks = [*range(len(loaded))]
        self._loaded, self._meeting = loaded, meeting

    def __call__(self, ranks: Sequence[Sequence[Value]]) -> list[tuple[Any, ...]]:
        """Call the function on all ranks.

        Raises:
            UsageError: as the function on a rank does; or if a rank does not come to a collective within `TIMEOUT`.
        """
        self._meeting.begin()

        def run(rank: int) -> tuple[Any, ...]:
            try:
                with self._meeting.as_rank(rank):
                    return self._loaded[rank](*ranks[rank])
            except BaseException:
                self._meeting.abort()
                raise

        with ThreadPoolExecutor(len(ranks)) as threads:
            calls = [threads.submit(run, rank) for rank in self.ranks]
        errors = [error for call in calls if (error := call.exception()) is not None]
        for error in sorted(errors, key=_has_waited):
            raise self._meeting.late or error
        return [call.result() for call in calls]


def _has_waited(error: BaseException) -> bool:
    """Return whether an error comes from a rank that waited for another in vain."""
    return any(isinstance(cause, threading.BrokenBarrierError) for cause in (error, error.__cause__))


class _Meeting:
    """Where the ranks exchange tensors: all come to the same collective, or it is an error."""

    def __init__(self, exchanges: Sequence[_Exchange], size: int):
        self._exchanges, self._size, self._thread = exchanges, size, threading.local()
        self.begin()

    def begin(self) -> None:
        """Expect all ranks."""
        self._at: dict[int, tuple[int, torch.Tensor | None]] = {}
        self._results: Sequence[Any] = ()
        self.late: UsageError | None = None
        """Says which ranks did not come in time."""
        self._has_failed = False
        self._barrier = threading.Barrier(self._size, action=self._run)

    def abort(self) -> None:
        """Let no rank wait any longer: one has failed."""
        self._has_failed = True
        self._barrier.abort()

    @contextmanager
    def as_rank(self, rank: int) -> Iterator[None]:
        """Be ``rank`` in this thread, and end together with the others."""
        self._thread.rank = rank
        yield
        self._wait(-1, None)

    def rank(self) -> torch.Tensor:
        """Return the rank of this thread."""
        return torch.tensor(self._thread.rank, dtype=torch.uint32)

    def exchange(self, x: torch.Tensor, number: int) -> torch.Tensor:
        """Return the result of this rank in the collective ``number``, when all ranks have come to it."""
        return self._wait(number, x)

    def _wait(self, number: int, x: torch.Tensor | None) -> Any:
        rank = self._thread.rank
        self._at[rank] = number, x
        try:
            self._barrier.wait(TIMEOUT)
        except threading.BrokenBarrierError:
            missing = [rank for rank in range(self._size) if rank not in self._at]
            if missing and not self._has_failed and self.late is None:
                self.late = UsageError(f"the ranks {missing} did not come to a collective in {TIMEOUT:g} s")
            raise
        return self._results[rank]

    def _run(self) -> None:
        waiting, self._at, self._has_failed = self._at, {}, True  # until it has not
        numbers = {number for number, _ in waiting.values()}
        if len(numbers) > 1:
            raise UsageError("the ranks came to different collectives: their programs took different branches")
        (number,) = numbers
        values: list[Any] = [waiting[rank][1] for rank in range(self._size)]
        self._results = values if number < 0 else self._exchanges[number](values)
        self._has_failed = False


# --- collectives ----------------------------------------------------------------------------------------------------


def _call_stubs(module: ir.Module) -> None:
    """Replace the collectives of ``module``, and the number of the device, by calls of stubs."""
    stubs = OperatorStubs(module.operation)
    for number, op in enumerate(operations(module.operation, _COLLECTIVES)):
        takes, returns = (_value_type(value) for value in (op.operands[0], op.results[0]))
        _call(op, stubs, OperatorStub(_COLLECTIVE, (Passed(0), number), (takes,), (Returned(returns),)))
    for op in operations(module.operation, ("stablehlo.partition_id",)):
        _call(op, stubs, OperatorStub(_RANK, (), (), (Returned(_value_type(op.results[0])),)))


def _call(op: ir.Operation, stubs: OperatorStubs, stub: OperatorStub) -> None:
    names = (f"of_ranks_{at}" for at in itertools.count())
    with op.context, op.location, ir.InsertionPoint(op):
        replace(op, stubs.call(stub, list(op.operands), [op.results[0].type], names).result)


def _value_type(value: ir.Value) -> ValueType:
    element = StablehloOps.element(value)
    shape = ["?" if size is None else size for size in StablehloOps.shape(value)]
    return ValueType(str(IN_STABLEHLO[element][0]).removeprefix("torch."), tuple(shape))


def _exchange(op: ir.Operation, size: int) -> _Exchange:
    """Return what the collective ``op`` does, for all ranks."""
    name, groups = op.name, groups_of(op)
    if name == "stablehlo.collective_permute":
        return lambda values: _permuted(values, groups)
    in_group = _IN_GROUP[name](op)

    def exchange(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results: list[Any] = [None] * size
        for group in groups:
            for rank, result in zip(group, in_group([values[rank] for rank in group]), strict=True):
                results[rank] = result
        return results

    return exchange


def _permuted(values: Sequence[torch.Tensor], pairs: Groups) -> list[torch.Tensor]:
    results = [torch.zeros_like(value) for value in values]
    for source, target in pairs:
        results[target] = values[source]
    return results


def _all_reduce(op: ir.Operation) -> _Exchange:
    (name,) = {operation.name for operation in op.regions[0].blocks[0].operations} - {"stablehlo.return"}
    if name not in _REDUCTIONS:
        raise UsageError(f"a reduction of ranks by {name} is not one of {', '.join(_REDUCTIONS)}")
    return lambda values: [functools.reduce(_REDUCTIONS[name], values)] * len(values)


def _reduce_scatter(op: ir.Operation) -> _Exchange:
    reduce, dim = _all_reduce(op), _integer(op, "scatter_dimension")
    return lambda values: reduce(values)[0].chunk(len(values), dim)


def _all_gather(op: ir.Operation) -> _Exchange:
    dim = _integer(op, "all_gather_dim")
    return lambda values: [torch.cat([*values], dim)] * len(values)


def _all_to_all(op: ir.Operation) -> _Exchange:
    split, concatenate = _integer(op, "split_dimension"), _integer(op, "concat_dimension")

    def exchange(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        parts = [value.chunk(len(values), split) for value in values]
        return [torch.cat([part[at] for part in parts], concatenate) for at in range(len(values))]

    return exchange


def _broadcast(op: ir.Operation) -> _Exchange:
    del op
    return lambda values: [values[0]] * len(values)


def _integer(op: ir.Operation, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


_IN_GROUP: dict[str, Callable[[ir.Operation], _Exchange]] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_broadcast": _broadcast,
}
"""What makes the exchange of a group of ranks, by collective."""

_COLLECTIVES = (*_IN_GROUP, "stablehlo.collective_permute")
