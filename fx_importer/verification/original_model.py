"""The model that a user lowered, to be called again for comparison, and left as it is."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from fx_importer.errors import UsageError
from fx_importer.frontend.fake_weights import is_fake_or_meta
from fx_importer.frontend.torch_patches import without_compilation
from fx_importer.frontend.undo_writes import WritesUndone, reachable_tensors, values_restored, variables_of
from fx_importer.fx_graph.programs import storage_key, storage_view_key
from fx_importer.fx_graph.triton_runtime import interpreted_kernels


@dataclass(frozen=True)
class OriginalModel:
    """A module or a function that was lowered, with its settings at that time."""

    function: Callable[..., Any]
    training: tuple[bool, ...] = ()
    """Whether each of its modules was in training mode, in the order of ``modules()``."""
    autocast: torch.dtype | None = None
    """The dtype of torch.autocast on the CPU around the lowering; None if there was none."""
    weights_given: bool = False
    """Whether the weights of the lowered program replace those of the model."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> OriginalModel:
        """Return the record of ``function`` with its settings now."""
        modules = function.modules() if isinstance(function, torch.nn.Module) else ()
        cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        return cls(function, tuple(module.training for module in modules), cast)

    def cast(self) -> AbstractContextManager[Any]:
        """Return the context of torch.autocast around the lowering."""
        return torch.autocast("cpu", self.autocast, enabled=self.autocast is not None)

    def with_given_weights(self) -> OriginalModel:
        """Return the model with the weights of the program in place of its own."""
        return replace(self, weights_given=True)

    def copied(self, values: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor]) -> ModelCopy:
        """Return a copy with its own Python attributes, which shares all tensors except ``state``.

        A function is not copied: `ModelCopy.restored` restores what it refers to.

        Args:
            held: the tensors that the exported program holds, by name in the state dict.
            state: copies of those that it mutates, which the copy takes.

        Raises:
            UsageError: for a function whose weights were replaced, and for a model on another device than the CPU.
            Exception: that an object of the user raises when it is copied.
        """
        tensors = list(reachable_tensors(self.function))
        if devices := {str(tensor.device) for tensor in tensors if tensor.device.type not in ("cpu", "meta")}:
            raise UsageError(f"it is on {', '.join(sorted(devices))}, and the program on the CPU")
        if isinstance(self.function, types.FunctionType):
            if self.weights_given:
                raise UsageError("a function has its own weights, and not those that were given")
            return ModelCopy(self, self.function, {name: values[name] for name in state}, (), values, {})
        memo: dict[int, Any] = {}
        of_state: dict[str, torch.Tensor] = {}
        names = _names(self.function)
        by_place = {storage_view_key(tensor): name for name, tensor in values.items() if _has_place(tensor)}
        for tensor in tensors:
            name = names.get(id(tensor), "")
            if name not in values and _has_place(tensor):
                name = by_place.get(storage_view_key(tensor), "")
            memo[id(tensor)] = tensor
            if name in state:
                of_state[name] = memo[id(tensor)] = _like(tensor, state[name])
            elif name in values and (self.weights_given or is_fake_or_meta(tensor)):
                memo[id(tensor)] = _like(tensor, values[name])
        function = copy.deepcopy(self.function, memo)
        if isinstance(function, torch.nn.Module):
            for module, training in zip(function.modules(), self.training, strict=False):
                module.training = training
        others = {name: values[name] for name in state if name not in of_state}  # of a global variable, perhaps
        return ModelCopy(self, function, of_state | others, list(of_state.values()), values, names)


@dataclass(frozen=True)
class ModelCopy:
    """A copy of a model, to be called for comparison."""

    original: OriginalModel
    function: Callable[..., Any]
    state: Mapping[str, torch.Tensor]
    """The tensors that the exported program mutates too, by name in the state dict."""
    own_state: Sequence[torch.Tensor]
    """The tensors of `state` that it does not share with the model."""
    held: Mapping[str, torch.Tensor]
    names: Mapping[int, str]
    """The names of the parameters and buffers that it shares with the model, by id."""

    @contextmanager
    def called(self, writes: WritesUndone) -> Iterator[None]:
        """Let the body call the copy in eager PyTorch, with the settings of the lowering; ``writes`` observes it."""
        with ExitStack() as stack:
            stack.enter_context(without_compilation())
            stack.enter_context(self.original.cast())
            stack.enter_context(interpreted_kernels())
            stack.enter_context(writes)
            yield

    def restored(self) -> AbstractContextManager[None]:
        """Restore variables and containers of the user after the body, which hooks of a copied module share too."""
        return values_restored(self.original.function)

    def current_state(self, writes: WritesUndone) -> dict[str, torch.Tensor]:
        """Return the tensors of `state` as they are now: a model may replace a buffer, or write to the user's own."""
        function = self.function
        own: dict[str, torch.Tensor] = {}
        if isinstance(function, torch.nn.Module):
            own = {**dict(function.named_buffers()), **dict(function.named_parameters())}
        return {
            name: self.held[name] if storage_key(self.held[name]) in writes.before else own.get(name, tensor)
            for name, tensor in self.state.items()
        }

    def attributes(self) -> dict[str, Any]:
        """Return the numbers, strings and sizes of containers among attributes, or variables of a function, by path."""
        function = self.function
        if isinstance(function, types.FunctionType):
            return {name: _summary(value) for name, value in variables_of(function).items()}
        owner = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
        modules = owner.named_modules() if isinstance(owner, torch.nn.Module) else [("", owner)]
        summaries: dict[str, Any] = {}
        for path, module in modules:
            for name, value in getattr(module, "__dict__", {}).items():
                if name not in _OF_MODULES:
                    summaries[f"{path}.{name}" if path else name] = _summary(value)
        return summaries


def _summary(value: Any) -> Any:
    if isinstance(value, bool | int | float | complex | str | None):
        return value
    kind = type(value).__name__
    return f"{kind} of {len(value)}" if isinstance(value, list | tuple | dict | set) else kind


_OF_MODULES = frozenset(vars(torch.nn.Module()))


def _has_place(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has memory of its own, by which it is recognized."""
    return tensor.layout is torch.strided and not (is_fake_or_meta(tensor) or is_traceable_wrapper_subclass(tensor))


def _names(function: Callable[..., Any]) -> dict[int, str]:
    """Return the names of the parameters and buffers of a module, by id."""
    if not isinstance(function, torch.nn.Module):
        return {}
    tensors = (*function.named_parameters(), *function.named_buffers())
    return {id(tensor): name for name, tensor in tensors}


def _like(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return ``value`` as a parameter if ``tensor`` is one."""
    if not isinstance(tensor, torch.nn.Parameter):
        return value
    return torch.nn.Parameter(value.detach(), tensor.requires_grad)
