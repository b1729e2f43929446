"""Results of exported programs in eager PyTorch, with the state of the calls before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.calls.caller import Caller
from fx_importer.manifest import NARROW_FLOATS, Function
from fx_importer.verification.eager_reference import Observer, Reference, copied
from fx_importer.verification.model_reference import input_leaves, written_by
from fx_importer.verification.subject import Inputs, Named, Subject


def expected_results(
    subject: Subject, calls: Sequence[Inputs], programs: Mapping[str, ExportedProgram] | None = None
) -> list[Named]:
    """Return the results of ``programs``, by default those that the module computes, in eager PyTorch for each call."""
    return list(results_in_turn(subject, calls, subject.computed if programs is None else programs))


def results_in_turn(
    subject: Subject, calls: Sequence[Inputs], programs: Mapping[str, ExportedProgram], observe: Observer | None = None
) -> Iterator[Named]:
    """Yield the results of ``programs`` in eager PyTorch for each call, with the state after the calls before it.

    ``observe`` is called after each node, as by `Reference`.
    """
    functions = subject.manifest.functions
    loaded = {name: Reference(programs[name], function, observe) for name, function in functions.items()}
    caller = Caller(subject.manifest, loaded, subject.initial_state())
    for call in calls:
        original = subject.originals.get(call.function or "")
        with original.cast() if original is not None else nullcontext():
            results = call_named(caller, call)
        yield results


def call_named(caller: Caller, inputs: Inputs) -> Named:
    """Call a function with copies of ``inputs``, and return its outputs, and updated state and inputs."""
    name = inputs.function or ""
    function = caller.manifest.functions[name]
    # Copied together to keep their aliasing.
    args, kwargs = copied((tuple(inputs.args), dict(inputs.kwargs)))
    returned = pytree.tree_leaves(caller[name](*args, **kwargs))
    results: Named = [(leaf.path, value) for leaf, value in zip(function.outputs.leaves, returned, strict=True)]
    leaves = input_leaves(function, args, kwargs)
    for result in written_by(function):
        if result.kind == "state":
            results.append((f"state '{result.name}'", caller.state[result.name].clone()))
        elif result.kind == "gradient":
            results.append((f"gradient '{result.name}'", caller.gradients[result.name]))
        elif result.kind == "input" and result.leaf is not None:
            results.append((f"input '{result.name}'", leaves[result.leaf]))
    return results


def narrowing(function: Function) -> Callable[[Any], Any]:
    """Return the conversion of results before they are compared: to float32 where the function computes in that."""
    widths = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    narrow = any(NARROW_FLOATS.get(result.type.dtype, "") == result.passed_as for result in function.results)
    return lambda value: value.to(widths[value.dtype]) if narrow and getattr(value, "dtype", 0) in widths else value
