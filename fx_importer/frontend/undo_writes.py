"""Restoring tensors that a model mutates while it is traced, or called for comparison.

torch.export traces with fake inputs, parameters and buffers. Other tensors of the model, in attributes or objects of a
library, are real while tracing, so that mutations of them persist.
"""

from __future__ import annotations

import operator
import types
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch._C._autograd as _autograd
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from fx_importer.errors import FrozenStateWarning
from fx_importer.fx_graph.programs import storage_key


@contextmanager
def attributes_restored(module: torch.nn.Module) -> Iterator[None]:
    """Restore what the body changes in ``module``, except for parameters and buffers, which torch.export fakes.

    Tensors have their elements again, and everything else its values, as `values_restored` says.
    """
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in _attributes(module)]
    try:
        with values_restored(module, warn=True):
            yield
    finally:
        with torch.no_grad():
            for tensor, version, old in before:
                if tensor._version != version and tensor.shape == old.shape:
                    tensor.copy_(old)


@contextmanager
def values_restored(root: Any, *, warn: bool = False) -> Iterator[None]:
    """Restore variables of functions, and items of lists, dictionaries and objects, that are reachable from ``root``.

    These are the ones that refer to tensors, or belong to a module that is not in ``root``: torch.export restores the
    attributes of the modules that it exports. With ``warn``, warn of tensors that the body has set, and restore no
    other variables, which other threads may have changed.
    """
    items = [(container, _items(container)) for container in _containers(root)]
    functions = [item for item in _reachable(root) if isinstance(item, types.FunctionType)]
    cells = [(cell, cell.cell_contents) for function in functions for cell in _cells(function)]
    variables = [(function.__globals__, _globals(function)) for function in functions]
    try:
        yield
    finally:
        kept = [name for container, before in items for name in _restore(container, before)]
        for cell, value in cells:
            if _is_set(cell.cell_contents, value) or not warn:
                cell.cell_contents = value
        for scope, values in variables:
            kept += [name for name, value in values.items() if _is_set(scope[name], value)]
            scope.update({name: value for name, value in values.items() if not warn or _is_set(scope[name], value)})
        if kept and warn:
            warnings.warn(
                f"the model keeps tensors from one call to the next ({', '.join(dict.fromkeys(kept))}), which "
                "torch.export does not capture outside of the module that is lowered: each call of the program starts "
                "with those of the lowering. Lower the module itself, or write to registered buffers with copy_",
                FrozenStateWarning,
                stacklevel=2,
            )


def variables_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the values of the variables outside of ``function`` that it reads, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return _globals(function) | {name: cell.cell_contents for name, cell in cells if cell != _EMPTY}


def _attributes(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield the tensors reachable from ``module`` that are neither parameters nor buffers."""
    for tensor in reachable_tensors(module, without=("_parameters", "_buffers")):
        # Parameters are always faked; an inference tensor cannot be mutated here.
        if type(tensor) is torch.Tensor and not tensor.is_meta and not tensor.is_inference():
            yield tensor


def reachable_tensors(root: Any, without: Sequence[str] = ()) -> Iterator[torch.Tensor]:
    """Yield the tensors reachable from ``root``: in attributes, containers, and variables of functions.

    Attributes named in ``without`` are left out.
    """
    return (item for item in _reachable(root, without) if isinstance(item, torch.Tensor))


def _containers(root: Any) -> Iterator[Container]:
    """Yield the lists, sets, dictionaries and attributes reachable from ``root`` that are not its modules' own."""
    modules = [*root.modules()] if isinstance(root, torch.nn.Module) else []
    known = {id(vars(module)) for module in modules}
    known |= {id(value) for module in modules for name, value in vars(module).items() if name in _OF_MODULES}
    for item in _reachable(root):
        own = item if isinstance(item, list | dict | set | deque) else getattr(item, "__dict__", None)
        if isinstance(own, list | dict | set | deque) and id(own) not in known:
            yield own


def _is_set(value: Any, old: Any) -> bool:
    return value is not old and isinstance(value, torch.Tensor)


def _restore(container: Container, before: list[tuple[Any, ...]]) -> list[str]:
    """Let ``container`` have the items ``before``, if it has others and is a module's, or refers to tensors.

    Return the names of the items that were tensors and are not among those ``before``.
    """
    items = _items(container)
    values = [value for item in (*items, *before) for value in item]
    of_module = isinstance(container, dict) and "_modules" in container  # lists may hold arrays
    if not any(isinstance(value, torch.Tensor) for value in values) and not of_module:
        return []
    if len(items) == len(before) and all(map(operator.is_, values, [value for item in before for value in item] * 2)):
        return []
    known = {id(value) for item in before for value in item}
    set_items = [item for item in items if isinstance(item[-1], torch.Tensor) and id(item[-1]) not in known]
    if isinstance(container, list | deque):
        container.clear()
        container.extend(item for (item,) in before)
    elif isinstance(container, set):
        container.clear()
        container.update(item for (item,) in before)
    else:
        container.clear()
        container.update(before)
    return [str(item[0]) if isinstance(container, dict) else f"a {type(container).__name__}" for item in set_items]


def _items(container: Container | tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the items of a container in tuples, with their keys first; methods of subclasses may do anything."""
    if isinstance(container, dict):
        return [*dict.items(container)]
    iterate: Any = next(base.__iter__ for base in (list, tuple, set, deque) if isinstance(container, base))
    return [(item,) for item in iterate(container)]


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """Return the global variables that ``function`` reads, by name, without modules of Python, types and builtins."""
    scope, left_out = function.__globals__, (types.ModuleType, type, types.BuiltinFunctionType)
    named = {name: scope[name] for name in function.__code__.co_names if name in scope}
    return {name: value for name, value in named.items() if not isinstance(value, left_out)}


def _cells(function: types.FunctionType) -> list[types.CellType]:
    return [cell for cell in function.__closure__ or () if cell != _EMPTY]


def _reachable(root: Any, without: Sequence[str] = ()) -> Iterator[Any]:
    """Yield ``root`` and what is reachable from it, each object once; attributes named in ``without`` are left out.

    Of the global variables of a function, these are modules, tensors, containers and functions of the same file.
    """
    seen: set[int] = set()
    todo: list[Any] = [root]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, _LEAVES):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, torch.Tensor):
            continue
        if isinstance(item, dict | list | tuple | set | deque):
            todo += [entry[-1] for entry in _items(item)]
        elif isinstance(item, types.FunctionType):
            todo += [cell.cell_contents for cell in _cells(item)]
            todo += [value for value in _globals(item).values() if _is_followed(value, item)]
        elif isinstance(item, types.MethodType):
            todo += [item.__self__, item.__func__]
        else:
            own = getattr(item, "__dict__", {})
            todo += [value for name, value in own.items() if name not in without]


def _is_followed(value: Any, function: types.FunctionType) -> bool:
    if isinstance(value, types.FunctionType):
        return value.__globals__ is function.__globals__
    return isinstance(value, torch.nn.Module | torch.Tensor | list | tuple | dict | set | deque)


_LEAVES = (str, bytes, int, float, type, types.ModuleType, torch.dtype, torch.device, torch.fx.Graph)
_EMPTY = types.CellType()
_OF_MODULES = frozenset(vars(torch.nn.Module()))
Container = list[Any] | set[Any] | dict[Any, Any] | deque[Any]


class WritesUndone(TorchDispatchMode):
    """Mode that keeps the elements of memory that its body mutates and has not allocated, before the first write.

    `undo` restores them. Memory that nothing mutates is not copied. What bodies of control flow mutate is not observed.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        """A mutated tensor, the bytes of its memory and its version before, by `storage_key`."""
        self._allocated: set[int] = set()

    def allow(self, tensors: Iterable[torch.Tensor]) -> None:
        """Let the body mutate ``tensors``, such as copies."""
        self._allocated |= {storage_key(tensor) for tensor in _strided(list(tensors))}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True: TorchDynamo, which control flow uses in eager PyTorch too, refuses other modes."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``, after a copy of the values that it mutates."""
        kwargs = kwargs or {}
        operands = {storage_key(tensor) for tensor in _strided((args, kwargs))}
        for tensor in _strided(_mutated(func, args, kwargs)):
            key = storage_key(tensor)
            if key not in self._allocated and key not in self.before:
                self.before[key] = tensor, _memory(tensor).clone(), tensor._version
        result = func(*args, **kwargs)
        self._allocated |= {storage_key(tensor) for tensor in _strided(result)} - operands - self.before.keys()
        return result

    def mutated(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield each mutated tensor, with its elements before and now."""
        for tensor, old, _ in self.before.values():
            view = old.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
            yield tensor, torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(*view), tensor.detach().clone()

    def undo(self) -> None:
        """Restore the elements of all mutated memory."""
        for tensor, old, version in self.before.values():
            _memory(tensor).copy_(old)
            _autograd._unsafe_set_version_counter((tensor,), (version,))


def _strided(tree: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(tree):
        if not isinstance(leaf, torch.Tensor) or is_traceable_wrapper_subclass(leaf):
            continue
        if leaf.layout is torch.strided and not leaf.is_meta and leaf.numel():
            yield leaf


def _mutated(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    names = [argument.name for argument in schema.arguments if argument.is_write]
    bound = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | dict(kwargs)
    return [bound.get(name) for name in names]


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return all bytes of the memory of ``tensor``."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
