"""The reference of comparisons: the model that the user passed, called in eager PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fx_importer.frontend.undo_writes import WritesUndone
from fx_importer.fx_graph.programs import storage_key
from fx_importer.manifest import Argument, Function, Result
from fx_importer.verification.comparison import Tolerance, compare
from fx_importer.verification.eager_reference import copied
from fx_importer.verification.original_model import ModelCopy, OriginalModel
from fx_importer.verification.subject import Inputs, Named
from fx_importer.verification.verdict import OutputCheck


@dataclass
class ModelResults:
    """Results of several calls of a model."""

    results: list[Named | Exception] = field(default_factory=list[Any])
    """The results of each call, named as those of the lowered function; or what the model raised."""
    unknown_writes: list[list[OutputCheck]] = field(default_factory=list[Any])
    """For each call, the tensors that the model mutates and the exported program does not, as they should be."""
    attributes: list[str] = field(default_factory=list[str])
    """The Python attributes that the calls changed, with their values before and after."""


def call_model(
    original: OriginalModel,
    function: Function,
    calls: Sequence[Inputs],
    tensors: Mapping[str, torch.Tensor],
    state: Mapping[str, torch.Tensor],
    tolerance: Tolerance,
    mode: AbstractContextManager[Any] | None = None,
) -> ModelResults:
    """Call a copy of ``original`` with copies of the inputs of each call, in order.

    Its weights are not copied. Tensors of the user's model that the copy mutates are restored at the end.

    Args:
        original: the model.
        function: its lowered function.
        calls: the inputs.
        held: the tensors that the exported program holds, by name.
        state: copies of those that it mutates.
        tolerance: of tensors that only the model mutates.
        mode: around the last call.

    Raises:
        Exception: that an object of the user raises when it is copied.
    """
    model, outcome, writes = original.copied(tensors, state), ModelResults(), WritesUndone()
    writes.allow(model.own_state)
    before = model.attributes()
    try:
        with torch.random.fork_rng(devices=()), model.restored():
            for number, call in enumerate(calls, 1):
                with mode if mode is not None and number == len(calls) else nullcontext():
                    results, unknown = _results(model, function, call, writes)
                outcome.results.append(results)
                outcome.unknown_writes.append([OutputCheck(name, compare(*pair, tolerance)) for name, pair in unknown])
            after = model.attributes()
    finally:
        with torch.no_grad():
            writes.undo()
    changed = {name: value for name, value in after.items() if before.get(name, _UNSET) != value}
    outcome.attributes = [f"{name} ({before.get(name, _UNSET)} → {value})" for name, value in changed.items()]
    return outcome


_UNSET = "unset"


def _results(
    model: ModelCopy, function: Function, call: Inputs, writes: WritesUndone
) -> tuple[Named | Exception, list[tuple[str, tuple[torch.Tensor, torch.Tensor]]]]:
    """Call ``model``. Return its results, or what it raises, and tensors that the lowered function does not mutate.

    The latter have a name, the elements before the call and the elements after it.
    """
    args, kwargs = _copied_inputs(call)
    passed, leaves = input_leaves(function, call.args, call.kwargs), input_leaves(function, args, kwargs)
    versions = {i: leaf._version for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    writes.allow([leaves[i] for i in versions])
    try:
        wanted = _differentiated(model, function, leaves)
        with model.called(writes):
            returned = pytree.tree_leaves(model.function(*args, **kwargs))
        if len(returned) != (count := len(function.outputs.leaves)):
            raise ValueError(f"the model returns {len(returned)} values, and the exported program {count}")
        gradients = torch.autograd.grad(returned[0], [*wanted.values()], allow_unused=True) if wanted else ()
    except Exception as error:  # of the user's code
        return error, []
    state = model.current_state(writes)
    results = [(leaf.path, _copy(value)) for leaf, value in zip(function.outputs.leaves, returned, strict=True)]
    written, computed = written_by(function), iter(gradients)
    for result in written:
        if result.kind == "state":
            results.append((f"state '{result.name}'", _copy(state[result.name])))
        elif result.kind == "gradient":
            results.append((f"gradient '{result.name}'", next(computed)))
        elif result.kind == "input" and result.leaf is not None:
            results.append((f"input '{result.name}'", _copy(leaves[result.leaf])))
    known = {record.leaf for record in written if record.kind == "input"}
    paths = [leaf.path for leaf in function.inputs.leaves]
    unknown = [
        (f"input '{paths[i]}'", (passed[i].detach(), leaves[i].detach()))
        for i, version in versions.items()
        if i not in known and leaves[i]._version != version
    ]
    state_memory = {storage_key(tensor) for tensor in state.values()}
    unknown += [
        (f"state '{model.names.get(id(tensor), 'of the model')}'", (then, now))
        for tensor, then, now in writes.mutated()
        if storage_key(tensor) not in state_memory
    ]
    return results, unknown


def _differentiated(model: ModelCopy, function: Function, leaves: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Return the parameters and inputs whose gradients ``function`` returns, by name; they require gradients."""
    names = [result.name for result in function.results if result.kind == "gradient"]
    inputs = {argument.name: leaves[argument.leaf] for argument in function.arguments if argument.leaf is not None}
    module = model.function
    parameters = module.named_parameters(remove_duplicate=False) if isinstance(module, torch.nn.Module) else ()
    tensors = {**inputs, **dict(parameters)}
    return {name: tensors[name].requires_grad_() for name in names}


def input_leaves(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the leaves of the inputs in the order of ``function``."""
    assert function.inputs.spec is not None
    names = function.inputs.spec.child(1).context
    return pytree.tree_leaves((tuple(args), {name: kwargs[name] for name in names if name in kwargs}))


def written_by(function: Function) -> list[Argument | Result]:
    """Return the state, gradients and inputs that ``function`` writes: those that it returns, then overwritten ones."""
    return [*function.results, *(argument for argument in function.arguments if argument.overwritten)]


def _copied_inputs(call: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return copies of the inputs, which alias like the originals and require gradients like them."""
    inputs = (tuple(call.args), dict(call.kwargs))
    copies = copied(inputs)
    for leaf, made in zip(*map(pytree.tree_leaves, (inputs, copies)), strict=True):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            made.requires_grad_()
    return copies


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
