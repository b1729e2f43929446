"""Call flat functions of a module like the model: with nested inputs and outputs, and with state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NoReturn, SupportsIndex

import torch

from fx_importer.calls.backend import Loaded
from fx_importer.calls.call_plan import CallPlan, is_plain
from fx_importer.calls.state import State
from fx_importer.errors import UsageError
from fx_importer.manifest import Manifest
from fx_importer.mlir.tensor_elements import missing_values


class Caller:
    """Calls a module's functions with the model's signature, and keeps the state between calls.

    It needs a manifest and one callable per function that takes and returns flat tensors and scalars. The callable may
    come from a `Backend` or any other runtime.

    Args:
        manifest: the module's manifest.
        functions: a callable for each function of the manifest, by name.
        state: the initial state by name, which is copied; and the weights that functions take, which are not. A whole
            state dict may be passed.

    Raises:
        UsageError: if a function or a state entry is missing, or an entry is not a tensor or is on the meta device.
    """

    def __init__(
        self, manifest: Manifest, functions: Mapping[str, Loaded], state: Mapping[str, torch.Tensor] | None = None
    ):
        self.manifest = manifest
        self._functions = dict(functions)
        self._only = next(iter(manifest.functions)) if len(manifest.functions) == 1 else None
        self._plans: dict[str, CallPlan] = {}
        _require("function", manifest.functions, functions)
        initial = state or {}
        _require("state", manifest.state, initial)
        self.state = State({name: _checked_tensor("state", name, initial[name]).clone() for name in manifest.state})
        """The current state, by name in the state dict."""
        weights = {
            argument.name: argument
            for function in manifest.functions.values()
            for argument in function.arguments
            if argument.kind == "weight"
        }
        _require("weight", weights, initial)
        self.weights = {name: _checked_tensor("weight", name, initial[name]) for name in weights}
        """The weights that functions take, by name in the state dict."""
        self.lock: AbstractContextManager[Any] = threading.RLock()
        """Held while a function that reads or writes state or gradients runs."""
        self.gradients: dict[str, torch.Tensor] = {}
        """The gradients of the last call of a training program, by parameter or input name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the only function of the module with the inputs of the model.

        Inputs that the model mutates are updated in place.

        Raises:
            UsageError: for inputs that the program was not exported for, or if the module has several functions.
        """
        if self._only is None:
            first = next(iter(self.manifest.functions))
            raise UsageError(f"the module has several functions: pick one, caller['{first}'](...)")
        return self._plan(self._only)(args, kwargs)

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Raise `UsageError`, for pickle and copy: loaded code belongs to this process."""
        raise UsageError(
            "a caller is neither pickled nor copied: save the module, and pass dict(caller.state) to "
            "fx_importer.load(path).caller(...), in another process too"
        )

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a callable for the function ``name``. All functions of a caller share its state."""
        if name not in self.manifest.functions:
            there = ", ".join(f"'{function}'" for function in self.manifest.functions)
            raise UsageError(f"the module has no function '{name}': there is {there}")
        plan = self._plan(name)
        return lambda *args, **kwargs: plan(args, kwargs)

    def unwrapped(self, name: str) -> Loaded:
        """Return a callable for the function ``name``, which has no nested inputs or outputs. It may skip all checks.

        It is the loaded function itself if that takes the inputs and returns the outputs unchanged.
        """
        return self._functions[name] if is_plain(self.manifest.functions[name]) else self[name]

    def _plan(self, name: str) -> CallPlan:
        if (plan := self._plans.get(name)) is None:
            plan = self._plans[name] = CallPlan(name, self.manifest, self._functions[name], self)
        return plan


def _checked_tensor(what: str, name: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"the {what} '{name}' is of type {type(value).__name__}, and not a tensor")
    if problem := missing_values(value):
        raise UsageError(f"the {what} '{name}' {problem}: pass what it is to begin with")
    return value.detach()


def _require(what: str, needed: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    if missing := [name for name in needed if name not in values]:
        raise UsageError(f"no {what} was given for {', '.join(map(repr, missing))}")
