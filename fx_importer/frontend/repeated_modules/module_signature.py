"""What decides the trace of a module, apart from the values of its weights: classes, attributes, types of weights."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as nn_module

from fx_importer.fx_graph.programs import storage_key

CONSTANTS = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, type(None), slice)

_OF_MODULES = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MIN_MODULES = 3
"""A smaller module costs about as much to trace as to copy."""

Attribute = tuple[str, str]
"""The path of a submodule in its module, and the name of an attribute."""


class NotComparable(Exception):
    """Code of the module may depend on what cannot be compared. The message is the reason."""


@dataclass(frozen=True, eq=False)
class EqualModules:
    """Modules of one class whose traces are equal if they do not read ``numbers``."""

    modules: Sequence[tuple[str, nn.Module]]
    """With their paths, in the order of the model."""
    numbers: frozenset[Attribute]
    """Attributes that hold another int in each module, such as the number of a layer."""


def equal_modules(model: nn.Module) -> tuple[list[EqualModules], dict[str, str]]:
    """Return groups of two or more equal modules that are not inside a module which is copied.

    Also returns why modules of a class that has several with weights of the same types are not equal, by class.
    """
    reasons: dict[str, str] = {}
    if any(getattr(nn_module, f"_global{name}", None) for name in _HOOKS):
        return [], {type(model).__name__: "there are hooks for all modules"}
    shared = _shared_storages(model)
    groups: dict[Any, list[tuple[str, nn.Module, dict[Attribute, Any]]]] = defaultdict(list)
    by_weights: dict[Any, list[tuple[str, dict[Attribute, Any] | str]]] = defaultdict(list)
    for path, module in model.named_modules():
        if not path or not _is_worth_it(module):
            continue
        weights = (type(module), tuple(weight_type(each) for each in _weights(module)))
        try:
            _check_weights(module, shared)
            entries: dict[Attribute, Any] | str = signature(module)
            groups[type(module), tuple(_without_ints(entries).items())].append((path, module, entries))
        except NotComparable as error:
            entries = str(error)
        by_weights[weights].append((path, entries))
    found: list[EqualModules] = []
    copied: set[str] = set()
    for several in sorted(groups.values(), key=lambda group: -len(group[0][2])):
        group = [member for member in several if copied.isdisjoint(_parents(member[0]))]
        if len(group) > 1:
            found.append(
                EqualModules([(path, each) for path, each, _ in group], _numbers([entries for *_, entries in group]))
            )
            copied.update(path for path, *_ in group[1:])
    for (kind, _), members in by_weights.items():
        if len(members) > 1 and (reason := _difference(members)) is not None:
            reasons.setdefault(kind.__name__, reason)
    return found, reasons


def signature(module: nn.Module, without: Collection[Attribute] = ()) -> dict[Attribute, Any]:
    """Return what decides the trace of ``module``, by attribute; those in ``without`` are left out.

    Raises:
        NotComparable: if there are hooks, or a class that replaces how modules are called.
    """
    entries: dict[Attribute, Any] = {}
    for path, each in module.named_modules(remove_duplicate=False):
        kind, own = type(each), vars(each)
        entries[path, ""] = kind, each.training, tuple(own["_modules"])
        if any(own.get(name) for name in _HOOKS):
            raise NotComparable(f"{path or 'it'} has hooks")
        if kind.__call__ is not nn.Module.__call__ or kind.__getattr__ is not nn.Module.__getattr__:
            raise NotComparable(f"{kind.__name__} replaces __call__ or __getattr__")
        if kind.__getattribute__ is not object.__getattribute__:
            raise NotComparable(f"{kind.__name__} replaces __getattribute__")
        for name, value in own.items():
            if name not in _OF_MODULES and (path, name) not in without:
                if name == "forward" and not path and getattr(value, "traces_once", False):
                    continue
                entries[path, name] = _comparable(value)
        for name, tensor in (*own["_parameters"].items(), *own["_buffers"].items()):
            entries[path, name] = weight_type(tensor)
    return entries


def weight_type(tensor: Tensor | None) -> Any:
    """Return the type of a tensor, which is equal for tensors that code treats in the same way."""
    if tensor is None:
        return None
    sizes = (*tensor.shape, *tensor.stride()) if tensor.layout is torch.strided else tuple(tensor.shape)
    return (
        *(type(tensor), tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad, tensor.dim()),
        *(each if isinstance(each, int) else each.node.expr for each in sizes),
    )


def _parents(path: str) -> Iterator[str]:
    """Yield the paths of the modules that the one at ``path`` is inside of."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _weights(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _is_worth_it(module: nn.Module) -> bool:
    """Return whether ``module`` runs code of its own: containers that are only indexed are never called."""
    if type(module).forward is nn.Module.forward or isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule):
        return False
    return not type(module).__module__.startswith("torch.nn.modules.container") and (
        sum(1 for _ in module.modules()) >= _MIN_MODULES
    )


def _check_weights(module: nn.Module, shared: Collection[int]) -> None:
    for tensor in _weights(module):
        if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer) and not hasattr(tensor, "fake_mode"):
            raise NotComparable(f"it has a weight of the class {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            raise NotComparable("it has a sparse weight")
        if storage_key(tensor) in shared:
            raise NotComparable("it shares a weight with another module")


def _shared_storages(model: nn.Module) -> set[int]:
    """Return the storages of the weights that several modules hold, or the same one twice."""
    seen: set[int] = set()
    shared: set[int] = set()
    for each in model.modules():
        for tensor in (*each._parameters.values(), *each._buffers.values()):
            if tensor is not None and tensor.layout is torch.strided:
                key = storage_key(tensor)
                (shared if key in seen else seen).add(key)
    return shared


def _comparable(value: Any) -> Any:
    """Return a key that is equal for attributes of equal value; other objects are equal to themselves only."""
    if isinstance(value, CONSTANTS):
        return type(value), repr(value)
    if isinstance(value, Mapping):
        return type(value), *((_comparable(key), _comparable(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return type(value), *map(_comparable, value)
    if isinstance(value, set | frozenset):
        return type(value), *sorted((_comparable(each) for each in value), key=repr)
    if isinstance(value, functools.partial):
        return _comparable((value.func, value.args, value.keywords))
    return id(value)


def _without_ints(entries: dict[Attribute, Any]) -> dict[Attribute, Any]:
    """Return ``entries`` without the values of ints of users' classes, which may be numbers of layers."""
    own = {path for (path, name), value in entries.items() if not name and not value[0].__module__.startswith("torch.")}
    return {
        (path, name): int if _is_int(value) and path in own and name else value
        for (path, name), value in entries.items()
    }


def _is_int(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] is int


def _numbers(members: Sequence[dict[Attribute, Any]]) -> frozenset[Attribute]:
    """Return the attributes whose ints are different in all of ``members``."""
    return frozenset(
        at for at, value in members[0].items() if _is_int(value) and len({each[at] for each in members}) == len(members)
    )


def _difference(members: Sequence[tuple[str, dict[Attribute, Any] | str]]) -> str | None:
    """Return why the first of ``members`` that is not equal to the one before differs; None if all are equal."""
    for (before, one), (path, other) in itertools.pairwise(members):
        if isinstance(one, str) or isinstance(other, str):
            return one if isinstance(one, str) else str(other)
        kept, theirs = _without_ints(one), _without_ints(other)
        for at in {**kept, **theirs}:
            if kept.get(at) != theirs.get(at):
                name = ".".join(filter(None, at)) or "its class"
                return f"{path} differs from {before} in {name}"
    return None
