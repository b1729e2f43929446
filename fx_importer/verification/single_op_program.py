"""Single-op programs: a node of a graph as a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from fx_importer.calls.caller import Caller
from fx_importer.options import DecompositionOptions
from fx_importer.verification.comparison import Comparison, Tolerance, compare
from fx_importer.verification.eager_reference import copied, writes
from fx_importer.verification.program_results import call_named
from fx_importer.verification.subject import Inputs, Subject
from fx_importer.verification.verifier import Chosen

Relower = Callable[[Any, Sequence[Any], DecompositionOptions | None], Subject]
"""Lowers a module with inputs, or an exported program, with the options of the verified program, or with other
decompositions."""


@dataclass(frozen=True)
class Slot:
    """Placeholder of an input among fixed arguments."""

    position: int


class Call(torch.nn.Module):
    """Module that calls an operator with its inputs in place of the slots; mutated arguments are copied."""

    def __init__(self, target: Callable[..., Any], leaves: Sequence[Any], spec: pytree.TreeSpec, writes: bool):
        super().__init__()
        self.target, self.leaves, self.spec, self.writes = target, leaves, spec, writes

    def forward(self, *tensors: torch.Tensor) -> Any:
        if self.writes:
            tensors = tuple(tensor.clone() for tensor in tensors)
        leaves = [tensors[leaf.position] if isinstance(leaf, Slot) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.target(*args, **kwargs)


@dataclass(frozen=True)
class NodeCall:
    """The call of a node. Tensor arguments are inputs; other arguments are fixed."""

    module: Call
    inputs: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NodeCall:
        """Return the call of ``node`` with the values of its arguments."""
        assert callable(node.target)
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)}
        slots = {key: Slot(position) for position, key in enumerate(tensors)}
        fixed = [slots[id(leaf)] if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return cls(Call(node.target, fixed, spec, writes(node)), tuple(tensor.detach() for tensor in tensors.values()))

    @property
    def key(self) -> Any:
        """Key that is equal for calls with the same lowered program."""
        module = self.module
        metadata = tuple((argument.shape, argument.dtype) for argument in self.inputs)
        return module.target, str(module.spec), metadata, tuple(map(repr, module.leaves))


class SingleOpProgram:
    """Runs single-op programs on one backend, and caches them."""

    def __init__(self, relower: Relower, load: Callable[[Subject], Chosen], tolerance: Tolerance):
        self._relower, self._load, self._tolerance = relower, load, tolerance
        self._callers: dict[Any, Caller] = {}

    def compare(self, call: NodeCall, value: Any) -> Comparison:
        """Compare ``call`` on the backend with eager's ``value``; return the first wrong output, or the first.

        Raises:
            Exception: if it cannot be lowered or run.
        """
        if call.key not in self._callers:
            subject = self._relower(call.module, call.inputs, None)
            (name,) = subject.manifest.functions
            loaded = self._load(subject).load(subject.linked, name)
            self._callers[call.key] = Caller(subject.manifest, {name: loaded}, subject.initial_state())
        caller = self._callers[call.key]
        (name,) = caller.manifest.functions
        results = [result for _, result in call_named(caller, Inputs(copied(call.inputs), {}, name))]
        comparisons = [
            compare(result, wanted, self._tolerance)
            for result, wanted in zip(results, pytree.tree_leaves(value), strict=True)
        ]
        return next((comparison for comparison in comparisons if not comparison.passed), comparisons[0])
