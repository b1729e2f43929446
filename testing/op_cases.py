"""Export one operator of PyTorch's OpInfo database, lower it to one output type, run it, and compare it with eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer import FxImporterError, StageFailed, UnsupportedProgramError, lower
from fx_importer.engines import backend_named
from fx_importer.process.optional_packages import is_installed
from fx_importer.verification import compare

OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")

PREFERRED = (torch.float32, torch.int64, torch.bool, torch.complex64)
"""An operator is tried with the first of these that it takes, unless a dtype is given."""

UP_TO_SIGN = ("linalg.eigh", "linalg.svd", "svd")
"""Operators whose vectors may have the other sign: OpInfo says which part of the results is unique."""

IN_ANY_ORDER = ("linalg.eig", "linalg.eigvals")
"""Operators that return unordered eigenvalues, and vectors with arbitrary phase."""

UNDOUBLED = ("nn.functional.embedding_bag", "linalg.ldl_solve", "linalg.cholesky_ex")
"""Operators for which doubled inputs are invalid: offsets increase, pivots are indices, matrices positive definite."""

UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""Operators that return uninitialized memory."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: that of the first sample that did not pass."""

    status: str
    reason: str = ""
    sample: int = 0


def operators() -> dict[str, Any]:
    """Return every OpInfo by its name, with the variant's behind a dot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    return {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}


def dtype_for(op: Any) -> torch.dtype | None:
    """Return the dtype that ``op`` is tried with."""
    return next((dtype for dtype in PREFERRED if dtype in op.dtypes), None)


Unique = Callable[[Any, tuple[Tensor, ...]], Any]
"""Takes results, and the tensors that they are of."""


class Call(nn.Module):
    """An operator with its arguments: the tensors among them are the inputs, the rest is fixed."""

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        unique: Unique | None = None,
    ):
        super().__init__()
        self.function = function
        self._unique = unique
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the inputs that the arguments were made of."""
        return tuple(leaf.detach().clone() for leaf in self.leaves if isinstance(leaf, Tensor))

    def unique(self, results: Any, tensors: tuple[Tensor, ...]) -> Any:
        """Return the part of ``results`` that ``tensors`` determine uniquely."""
        return self._unique(results, tensors) if self._unique else results

    def forward(self, *tensors: Tensor) -> Any:
        """Call the operator with ``tensors`` for its own."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def calls(op: Any, dtype: torch.dtype, samples: int) -> list[Call]:
    """Return the first sample inputs of ``op``, always the same."""
    torch.manual_seed(0)
    found = islice(op.sample_inputs("cpu", dtype, requires_grad=False), samples)
    return [Call(op.op, (each.input, *each.args), dict(each.kwargs), _unique(op.name, each)) for each in found]


def distinct_calls(op: Any, dtype: torch.dtype, samples: int) -> list[Call]:
    """Return the first of the first hundred sample inputs of ``op`` that differ in more than values and sizes."""
    found: dict[str, Call] = {}
    for call in calls(op, dtype, 100):
        found.setdefault(f"{[_described(leaf) for leaf in call.leaves]} {call.spec}", call)
    return list(found.values())[:samples]


def _described(leaf: Any) -> str:
    """Return a leaf of the arguments; of a tensor, its dtype, rank, layout, and which sizes are zero or one."""
    if not isinstance(leaf, Tensor) or leaf.layout != torch.strided:
        return repr(leaf) if not isinstance(leaf, Tensor) else str(leaf.layout)
    sizes = tuple(min(size, 2) for size in leaf.shape)
    return f"{leaf.dtype} {sizes} {leaf.is_contiguous()} {leaf.is_conj()}"


def _unique(name: str, sample: Any) -> Unique | None:
    """Return the part of the results that is unique: the order of equal elements is not."""
    if name == "topk":
        dim = sample.kwargs.get("dim", sample.args[1] if len(sample.args) > 1 else -1)
        return lambda results, tensors: (results[0], torch.gather(tensors[0], dim, results[1]))
    if name in ("sort", "argsort"):
        return partial(_unsorted, *_order_of(*sample.args, **sample.kwargs))
    if name == "kthvalue":
        return partial(_kth, *_axis_of(*sample.args, **sample.kwargs))
    if name in IN_ANY_ORDER:
        return _in_order
    return (lambda results, _: sample.output_process_fn_grad(results)) if name in UP_TO_SIGN else None


def _order_of(dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[int, bool]:
    return dim, stable


def _axis_of(k: int, dim: int = -1, keepdim: bool = False) -> tuple[int, bool]:
    return dim, keepdim


def _kth(dim: int, keepdim: bool, results: Any, tensors: tuple[Tensor, ...]) -> Any:
    """Return the values of `kthvalue`, and the values at its indices."""
    where = results[1] if keepdim or not tensors[0].dim() else results[1].unsqueeze(dim)
    return results[0], torch.gather(tensors[0], dim, where)


def _unsorted(dim: int, stable: bool, results: Any, tensors: tuple[Tensor, ...]) -> Any:
    """Return the values of a sort rather than its indices, unless it is stable."""
    where = results if isinstance(results, Tensor) else results[1]
    return results if stable else torch.gather(tensors[0], dim, where) if tensors[0].dim() else where


def _in_order(results: Any, _: tuple[Tensor, ...]) -> Any:
    """Return eigenvalues sorted along a line on which conjugates differ, and the sizes of their vectors' elements."""
    values, *vectors = (results,) if isinstance(results, Tensor) else results
    order = torch.argsort(0.6 * values.real + 0.8 * values.imag, -1)
    sizes = [torch.gather(each.abs(), -1, order.unsqueeze(-2).expand(each.shape)) for each in vectors]
    return torch.gather(values, -1, order), *sizes


class NothingToExport(Exception):
    """The sample cannot be measured."""


class Exported:
    """The samples of one operator, exported: kept for all output types."""

    pick = staticmethod(calls)
    """Chooses the samples."""

    def __init__(self, name: str, dtype: torch.dtype, samples: int):
        self.ready: list[tuple[int, Call, ExportedProgram, tuple[Tensor, ...], Any]] = []
        self.name = name
        self.outcome: Outcome | None = None
        """The outcome if there is nothing to lower."""
        not_lowered: Outcome | None = None
        try:
            tried = self.calls(operators()[name], dtype, samples)
        except Exception as error:
            self.outcome = Outcome("skip", f"no sample inputs: {_line(error)}")
            return
        for number, call in enumerate(tried):
            inputs = call.tensors()
            try:
                expected = [call(*(each.clone() for each in inputs)) for _ in range(2)]
            except Exception as error:
                not_lowered = Outcome("skip", f"eager fails: {_line(error)}", number)
                continue
            try:
                program = self.export(call.eval(), inputs)
            except NothingToExport as error:
                not_lowered = Outcome("skip", str(error), number)
                continue
            except Exception as error:
                not_lowered = Outcome("export", _line(error), number)
                continue
            if name.split(".")[0] in UNDEFINED or differences(*expected) or _is_random(program):
                not_lowered = Outcome("skip", "random", number)
                continue
            inputs, wanted = self.run_with(call, program, inputs, expected[0])
            self.ready.append((number, call, program, inputs, wanted))
        if not self.ready:
            self.outcome = not_lowered or Outcome("skip", "no sample inputs")

    def calls(self, op: Any, dtype: torch.dtype, samples: int) -> list[Call]:
        """Return what is exported."""
        return list(self.pick(op, dtype, samples))

    def export(self, call: Call, inputs: tuple[Tensor, ...]) -> ExportedProgram:
        """Export ``call``."""
        return torch.export.export(call, inputs)

    def run_with(self, call: Call, program: ExportedProgram, inputs: tuple[Tensor, ...], expected: Any) -> Any:
        """Return the inputs to run ``program`` with, and what eager says of them."""
        return inputs, expected

    def lowered(self, output_type: str) -> Outcome:
        """Lower and run every sample; return the first outcome that is not ``pass``."""
        for number, call, program, inputs, expected in self.ready:
            outcome = _one(call, program, inputs, expected, output_type)
            if outcome.status != "pass":
                return Outcome(outcome.status, outcome.reason, number)
        return self.outcome or Outcome("pass")


class ExportedDynamic(Exported):
    """The samples of one operator, exported with every size dynamic that may be, and run with sizes twice as large."""

    def export(self, call: Call, inputs: tuple[Tensor, ...]) -> ExportedProgram:
        """Export ``call`` with dynamic sizes."""
        sizes = tuple(dict.fromkeys(range(each.dim()), Dim.AUTO) for each in inputs)
        program = torch.export.export(call, inputs, dynamic_shapes=(sizes,))
        if not program.range_constraints:
            raise NothingToExport("no size is dynamic")
        return program

    def run_with(self, call: Call, program: ExportedProgram, inputs: tuple[Tensor, ...], expected: Any) -> Any:
        """Return inputs with every dynamic size doubled, if the operator and the program take them."""
        if self.name in UNDOUBLED:
            return inputs, expected
        placeholders = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
        values = [each for each in placeholders if isinstance(each, Tensor)][-len(inputs) :]
        larger = tuple(_doubled(each, value) for each, value in zip(inputs, values, strict=True))
        try:
            program.module()(*(each.clone() for each in larger))
            return larger, call(*(each.clone() for each in larger))
        except Exception:
            return inputs, expected


def _other(x: Tensor) -> Tensor:
    """Return values between the minimum and the maximum of ``x``; integers, which may be indices, unchanged."""
    if not x.is_floating_point() or not x.numel():
        return x
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x.dtype) * (x.max() - x.min()) + x.min()


def _doubled(x: Tensor, like: Tensor) -> Tensor:
    for axis, size in enumerate(like.shape):
        if isinstance(size, torch.SymInt):
            x = torch.cat([x, _other(x)], axis)
    return x


def _is_random(program: ExportedProgram) -> bool:
    tags = [tag for node in program.graph.nodes for tag in getattr(node.target, "tags", ())]
    return torch.Tag.nondeterministic_seeded in tags


def _one(call: Call, program: ExportedProgram, inputs: tuple[Tensor, ...], expected: Any, output_type: str) -> Outcome:
    try:
        lowered = lower(program, output_type=output_type, mutation="functional")
    except UnsupportedProgramError as error:
        return Outcome("import", "; ".join(each.reason for each in error.unsupported_nodes))
    except StageFailed as error:
        reasons = [each.message for each in error.diagnostics] or [_line(error)]
        return Outcome("contract" if error.stage == "contract" else "lower", "; ".join(dict.fromkeys(reasons)))
    except Exception as error:
        return Outcome("lower", f"{type(error).__name__}: {_line(error)}")
    try:
        results = _run(lowered, output_type, inputs)
    except FxImporterError as error:
        return Outcome("run", " ".join(str(error).split()))
    except Exception as error:
        return Outcome("run", f"{type(error).__name__}: {_line(error)}")
    found = differences(call.unique(results, inputs), call.unique(expected, inputs))
    return Outcome("mismatch", found) if found else Outcome("pass")


def _run(lowered: Any, output_type: str, inputs: tuple[Tensor, ...]) -> Any:
    """Run on the output type's backend: StableHLO on XLA if installed, and on the interpreter if XLA fails."""
    given = [each.clone() for each in inputs]
    if output_type == "stablehlo" and is_installed("jax"):
        try:
            return lowered.caller(backend=backend_named("xla"))(*given)
        except FxImporterError:
            given = [each.clone() for each in inputs]
    return lowered.run(*given)


def differences(results: Any, expected: Any) -> str:
    """Return how ``results`` differ from ``expected``, for the first leaf that does; empty if none does."""
    got, wanted = pytree.tree_leaves(results), pytree.tree_leaves(expected)
    if len(got) != len(wanted):
        return f"{len(got)} results where {len(wanted)} are expected"
    found = (compare(each, wish) for each, wish in zip(got, wanted, strict=True))
    return next((str(each) for each in found if not each.passed), "")


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
