"""Verification of a function with graph breaks: its graphs on a backend, the Python between them as it is."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from fx_importer.calls.backend import Backend
from fx_importer.calls.caller import Caller
from fx_importer.dynamo.graph_module import HeldInput, NamedGraph, PassedInput
from fx_importer.dynamo.tracing import as_new, own_settings
from fx_importer.engines import engine_named
from fx_importer.errors import FxImporterError, NotInstalledError, UsageError
from fx_importer.fx_graph.tree_paths import leaves_with_path
from fx_importer.results.lowered import Lowered
from fx_importer.results.run import default_backend
from fx_importer.verification import Tolerance, Verdict
from fx_importer.verification.comparison import compare
from fx_importer.verification.eager_reference import copied
from fx_importer.verification.verdict import Check, OutputCheck, Status

CallInputs = tuple[Sequence[Any], Mapping[str, Any]]


def verify_function(
    lowered: Lowered,
    fn: Callable[..., Any],
    inputs: CallInputs,
    graphs: Mapping[str, NamedGraph],
    dynamic: bool | None,
    backends: Sequence[str | Backend] | None,
    tolerance: Tolerance,
) -> Verdict:
    """Call ``fn`` in eager PyTorch, and on each backend with ``graphs`` as the functions of ``lowered``; compare both.

    Raises:
        UsageError: for an unknown backend, or if ``fn`` cannot be copied.
    """
    if isinstance(backends, str):
        backends = [backends]
    for backend in backends or ():
        if isinstance(backend, str):
            engine_named(backend)
    expected = _results_of(_copy_of(fn), inputs)
    checks: list[Check] = []
    for backend in [default_backend(lowered.manifest)] if backends is None else backends:
        name = backend if isinstance(backend, str) else backend.name
        try:
            functions = _Functions(lowered.caller(backend=backend), graphs, tolerance)
            with as_new(fn), own_settings():
                actual = _results_of(_copy_of(fn), inputs, functions.backend, dynamic)
        except Exception as error:  # any failure of a backend is a result here
            kind = "" if isinstance(error, FxImporterError) else f"{type(error).__name__}: "
            status = Status.NOT_INSTALLED if isinstance(error, NotInstalledError) else Status.FAILED
            checks.append(Check(_name_of(fn), 0, name, status, reason=f"{kind}{error}"))
            continue
        checks += [_check(function, number, name, outputs) for function, number, outputs in functions.calls]
        if functions.unknown:
            reason = f"the call takes another path than the import: {functions.unknown} of its graphs are not lowered"
            checks.append(Check(_name_of(fn), 0, name, Status.UNSUPPORTED, reason=reason))
        else:
            checks.append(_check(_name_of(fn), 0, name, tuple(_compared(actual, expected, tolerance))))
    return Verdict(lowered.options.output_type, tuple(checks))


def _check(function: str, number: int, backend: str, outputs: tuple[OutputCheck, ...]) -> Check:
    passed = all(output.comparison.passed for output in outputs)
    return Check(function, number, backend, Status.PASSED if passed else Status.MISMATCH, outputs)


def _name_of(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def copy_before(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a module before it is called, which has the same parameters; else, or if that fails, ``fn``."""
    module = getattr(fn, "__self__", fn)
    shared = list(torch.nn.Module.parameters(module)) if isinstance(module, torch.nn.Module) else []
    try:
        return copy.deepcopy(fn, {id(parameter): parameter for parameter in shared})
    except Exception:  # of the user's own objects
        return fn


def _copy_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return copy.deepcopy(fn)
    except Exception as error:
        raise UsageError(f"the function cannot be copied, to call it again: {type(error).__name__}: {error}") from error


def _results_of(
    fn: Callable[..., Any], inputs: CallInputs, backend: Callable[..., Any] | None = None, dynamic: bool | None = None
) -> dict[str, Any]:
    """Call ``fn`` with copies of ``inputs``; return its results, the inputs and the state after the call, by path."""
    args, kwargs = copied((tuple(inputs[0]), dict(inputs[1])))
    run = fn if backend is None else torch.compile(fn, backend=backend, dynamic=dynamic)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        output = run(*args, **kwargs)
    module = getattr(fn, "__self__", fn)
    results: dict[str, Any] = {}
    for name, tree in (("output", output), ("input ", {"args": args, **kwargs})):
        for path, leaf in leaves_with_path(tree):
            results[f"{name}{pytree.keystr(path)}"] = leaf.detach() if isinstance(leaf, Tensor) else leaf
    if isinstance(module, torch.nn.Module):
        results |= {f"state '{path}'": tensor for path, tensor in module.named_buffers()}
    return results


def _compared(actual: Mapping[str, Any], expected: Mapping[str, Any], tolerance: Tolerance) -> Iterator[OutputCheck]:
    for path in dict.fromkeys((*expected, *actual)):
        value, wanted = actual.get(path), expected.get(path)
        if isinstance(wanted, Tensor | bool | int | float | str | None):
            yield OutputCheck(path, compare(value, wanted, tolerance))


class _Functions:
    """A backend of TorchDynamo that runs the graphs of a module's functions with their numbers."""

    def __init__(self, caller: Caller, graphs: Mapping[str, NamedGraph], tolerance: Tolerance):
        self._caller, self._graphs, self._tolerance = caller, graphs, tolerance
        self.calls: list[tuple[str, int, tuple[OutputCheck, ...]]] = []
        """The comparisons of each call of a function with its graph, with the number of calls before it."""
        self._used: set[str | None] = set()
        self.unknown = 0
        """How many graphs are not in the module."""

    def backend(self, module: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        same = [name for name, graph in self._graphs.items() if _same(graph.code, module.code)]
        name = next((name for name in same if name not in self._used), same[0] if same else None)
        self._used.add(name)
        if name is None:
            self.unknown += 1
            return module.forward
        return lambda *values: self._run(name, module, values)

    def _run(self, name: str, module: fx.GraphModule, values: Sequence[Any]) -> Any:
        """Run a graph in eager PyTorch for its aliases and autograd, and write the function's numbers into it."""
        graph = self._graphs[name]
        tensors = {origin.name: values[i] for i, origin in enumerate(graph.inputs) if isinstance(origin, HeldInput)}
        passed = [i for i, origin in enumerate(graph.inputs) if isinstance(origin, PassedInput)]
        arguments = copied([values[i] for i in passed])
        state = self._caller.state
        for path in state.keys() & tensors.keys():
            state[path].copy_(tensors[path])
        results = list(module.forward(*values))
        returned = list(self._caller[name](*arguments))
        pairs = [(f"output[{i}]", results[i], returned[i]) for i in range(len(results))]
        new = returned[len(results) :]
        pairs += [(f"input[{i}]", values[i], value) for i, value in zip(graph.written, new, strict=True)]
        pairs += [
            (f"input[{i}]", values[i], value)
            for i, value in zip(passed, arguments, strict=True)
            if i not in graph.written
        ]
        pairs += [(f"state '{path}'", tensors[path], state[path]) for path in state.keys() & tensors.keys()]
        number = sum(function == name for function, _, _ in self.calls)
        self.calls.append(
            (
                name,
                number,
                tuple(OutputCheck(path, compare(ours, theirs, self._tolerance)) for path, theirs, ours in pairs),
            )
        )
        for _, theirs, ours in pairs:
            _write(theirs, ours)
        return tuple(
            ours if isinstance(ours, bool | int | float) else theirs
            for theirs, ours in zip(results, returned, strict=False)
        )


def _same(code: str, other: str) -> bool:
    """Return whether two graphs are the same, up to rounding errors of the numbers that Python has read."""
    numbers, others = _NUMBER.findall(code), _NUMBER.findall(other)
    if _NUMBER.sub("", code) != _NUMBER.sub("", other) or len(numbers) != len(others):
        return False
    return all(math.isclose(float(one), float(two), rel_tol=1e-5) for one, two in zip(numbers, others, strict=True))


_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?:e[+-]?\d+)?")
"""A float in the code of a graph."""


def _write(tensor: Any, numbers: Any) -> None:
    """Write ``numbers`` into a tensor, past autograd; into an expanded one, whose elements share memory, nothing."""
    if isinstance(tensor, Tensor) and isinstance(numbers, Tensor) and tensor.shape == numbers.shape:
        with torch.no_grad():
            if not any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
                tensor.data.copy_(numbers)
