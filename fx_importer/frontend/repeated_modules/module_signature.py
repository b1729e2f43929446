"""What decides the trace of a module, apart from the values of its weights: classes, attributes, types of weights."""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.nn.modules import module as nn_module

from fx_importer.fx_graph.programs import storage_key

CONSTANTS = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, type(None), slice)

_OF_MODULES = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CONTAINERS = (list, tuple, dict, OrderedDict, set, frozenset)
_MAX_ITEMS = 1_000
"""A container of more is equal to itself only."""
_MIN_MODULES = 3
"""A smaller module costs about as much to trace as to copy."""

Attribute = tuple[str, str]
"""The path of a submodule in its module, and the name of an attribute."""


class NotComparable(Exception):
    """Code of the module may depend on values that cannot be compared. The message is the reason."""


@dataclass(frozen=True, eq=False)
class Repeated:
    """A module with its submodules, by path in it."""

    path: str
    module: nn.Module
    parts: Mapping[str, nn.Module]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters and buffers by name; during an export, they are torch's fakes."""
        for path, part in self.parts.items():
            for name, tensor in (*part._parameters.items(), *part._buffers.items()):
                if tensor is not None:
                    yield f"{path}.{name}" if path else name, tensor

    def attribute(self, at: Attribute) -> Any:
        path, name = at
        return vars(self.parts[path])[name]

    def set_attribute(self, at: Attribute, value: Any) -> None:
        path, name = at
        vars(self.parts[path])[name] = value


@dataclass(frozen=True, eq=False)
class EqualModules:
    """Modules of one class whose traces are equal if they do not read ``numbers``."""

    modules: Sequence[Repeated]
    """In the order of the model."""
    numbers: frozenset[Attribute]
    """Attributes that hold another int in each module, such as the number of a layer."""

    @functools.cached_property
    def parts(self) -> frozenset[int]:
        """The ids of the modules and their submodules, which code may tell one of them by."""
        return frozenset(id(part) for member in self.modules for part in member.parts.values())


def equal_modules(model: nn.Module) -> tuple[list[EqualModules], dict[str, str]]:
    """Return groups of two or more equal modules that are not inside a module which is copied.

    Also returns why modules of a class that has several with weights of the same types are not equal, by class.
    """
    if any(getattr(nn_module, f"_global{name}", None) for name in _HOOKS):
        return [], {type(model).__name__: "there are hooks for all modules"}
    if (shared := _shared_module(model)) is not None:  # torch.export calls modules by proxies then
        return [], {type(model).__name__: f"{shared} is in several places"}
    keys = _Keys(_shared_storages(model))
    groups: dict[int, list[tuple[str, nn.Module]]] = defaultdict(list)
    by_weights: dict[int, list[tuple[str, nn.Module]]] = defaultdict(list)
    for path, module in model.named_modules():
        if path and keys.size(module) >= _MIN_MODULES and _is_called(module):
            groups[keys.key(module)].append((path, module))
            by_weights[keys.weights(module)].append((path, module))
    reasons: dict[str, str] = {}
    for members in by_weights.values():
        different = {keys.key(module): (path, module) for path, module in members}
        if len(members) > 1 and (reason := keys.difference([*different.values()])) is not None:
            reasons.setdefault(type(members[0][1]).__name__, reason)
    equal: list[EqualModules] = []
    copied: set[str] = set()
    for key, several in sorted(groups.items(), key=lambda group: -keys.size(group[1][0][1])):
        members = [
            Repeated(path, module, dict(module.named_modules(remove_duplicate=False)))
            for path, module in several
            if copied.isdisjoint(_parents(path))
        ]
        if len(members) > 1 and keys.reason(key) is None:
            equal.append(EqualModules(members, _numbers(members)))
            copied.update(member.path for member in members[1:])
    return equal, reasons


class _Keys:
    """Keys of modules, made of those of their submodules; equal for modules with the same trace."""

    def __init__(self, shared: Collection[int]):
        self._shared = shared
        self._numbers: dict[Any, int] = {}
        self._known: dict[nn.Module, tuple[int, int, int]] = {}
        self._reasons: dict[int, str] = {}

    def key(self, module: nn.Module) -> int:
        return self._of(module)[0]

    def weights(self, module: nn.Module) -> int:
        """Return a key of the class and the types of the weights alone."""
        return self._of(module)[1]

    def size(self, module: nn.Module) -> int:
        """Return the number of modules in ``module``."""
        return self._of(module)[2]

    def reason(self, key: int) -> str | None:
        """Return why modules of this key cannot be compared."""
        return self._reasons.get(key)

    def difference(self, members: Sequence[tuple[str, nn.Module]]) -> str | None:
        """Return why ``members``, which have different keys, cannot be compared or differ."""
        for _, module in members:
            if (reason := self.reason(self.key(module))) is not None:
                return reason
        for (before, one), (path, other) in itertools.pairwise(members):
            ours, theirs = (signature(dict(member.named_modules(remove_duplicate=False))) for member in (one, other))
            for at in {**ours, **theirs}:
                if ours.get(at) != theirs.get(at):
                    return f"{path} differs from {before} in {'.'.join(filter(None, at)) or 'its class'}"
        return None

    def _of(self, module: nn.Module) -> tuple[int, int, int]:
        if (known := self._known.get(module)) is None:
            children = {name: self._of(child) for name, child in module._modules.items() if child is not None}
            weights = [*module._parameters.items(), *module._buffers.items()]
            types = tuple((name, weight_type(tensor)) for name, tensor in weights)
            reason = next((self._reasons[key] for key, *_ in children.values() if key in self._reasons), None)
            try:
                if "forward" in vars(module):
                    raise NotComparable("it has a method forward of its own")
                self._check_weights(tensor for _, tensor in weights if tensor is not None)
                own: Any = tuple(_without_ints(module, _attributes(module)).items())
            except NotComparable as error:
                reason, own = reason or str(error), id(module)
            key = self._number((own, types, *((name, key) for name, (key, _, _) in children.items())))
            if reason is not None:
                self._reasons[key] = reason
            same = self._number((type(module), types, *((name, key) for name, (_, key, _) in children.items())))
            known = self._known[module] = key, same, 1 + sum(size for *_, size in children.values())
        return known

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _check_weights(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            if not _is_plain(tensor):
                raise NotComparable(f"it has a weight of the class {type(tensor).__name__}")
            if tensor.layout is not torch.strided:
                raise NotComparable("it has a sparse weight")
            if storage_key(tensor) in self._shared:
                raise NotComparable("it shares a weight with another module")


def signature(parts: Mapping[str, nn.Module], without: Collection[Attribute] = ()) -> dict[Attribute, Any]:
    """Return what decides the trace of a module with these ``parts``, by attribute; those in ``without`` are left out.

    Raises:
        NotComparable: if there are hooks, or a class that replaces how modules are called.
    """
    entries: dict[Attribute, Any] = {}
    for path, part in parts.items():
        for name, value in _attributes(part).items():
            if (path, name) not in without:
                entries[path, name] = value
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            entries[path, name] = weight_type(tensor)
    return entries


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the class and the attributes of ``module`` itself, without its weights and submodules."""
    kind, own = type(module), vars(module)
    if any(own.get(name) for name in _HOOKS):
        raise NotComparable("it has hooks")
    if kind.__call__ is not nn.Module.__call__ or kind.__getattr__ is not nn.Module.__getattr__:
        raise NotComparable(f"{kind.__name__} replaces __call__ or __getattr__")
    if kind.__getattribute__ is not object.__getattribute__:
        raise NotComparable(f"{kind.__name__} replaces __getattribute__")
    entries: dict[str, Any] = {"": (kind, module.training, tuple(own["_modules"]))}
    places: dict[int, str] = {}
    try:
        for name, value in own.items():
            if name not in _OF_MODULES and not (name == "forward" and getattr(value, "traces_once", False)):
                first = places.setdefault(id(value), name) if type(value) in (list, dict, set) else None
                entries[name] = _comparable(value) if first is None else (first, _comparable(value))
    except RecursionError:
        raise NotComparable("it has an attribute that contains itself") from None
    return entries


def weight_type(tensor: Tensor | None) -> Any:
    """Return the type of a tensor, which is equal for tensors that code treats in the same way."""
    if tensor is None:
        return None
    return tensor.requires_grad, *tensor_type(tensor)


def tensor_type(tensor: Tensor) -> tuple[Any, ...]:
    """Return the class, dtype, device, layout, sizes and strides of a tensor, which may be symbolic."""
    sizes = (*tensor.shape, *tensor.stride()) if tensor.layout is torch.strided else tuple(tensor.shape)
    return (
        *(type(tensor), tensor.dtype, tensor.device, tensor.layout, tensor.dim(), tensor.is_conj(), tensor.is_neg()),
        *(size if isinstance(size, int) else size.node.expr for size in sizes),
    )


def _parents(path: str) -> Iterator[str]:
    """Yield the paths of the modules that the one at ``path`` is inside of."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _is_called(module: nn.Module) -> bool:
    """Return whether ``module`` may run code of its own: containers that are only indexed are never called."""
    kind = type(module)
    if kind.forward is nn.Module.forward or isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule):
        return False
    return not kind.__module__.startswith("torch.nn.modules.container")


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter, nn.Buffer, FakeTensor)


def _shared_module(model: nn.Module) -> str | None:
    """Return the name of a module that ``model`` has in several places."""
    seen: set[nn.Module] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if module in seen:
            return name
        seen.add(module)
    return None


def _shared_storages(model: nn.Module) -> set[int]:
    """Return the storages of the weights that several modules hold, or the same one twice."""
    seen: set[int] = set()
    shared: set[int] = set()
    for part in model.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None and _is_plain(tensor) and tensor.layout is torch.strided:
                key = storage_key(tensor)
                (shared if key in seen else seen).add(key)
    return shared


def _comparable(value: Any) -> Any:
    """Return a key that is equal for attributes of equal value; other objects are equal to themselves only."""
    kind = type(value)
    if kind in CONSTANTS:
        return kind, repr(value)
    if kind is functools.partial:
        return kind, *map(_comparable, (value.func, value.args, value.keywords, vars(value)))
    if kind not in _CONTAINERS or len(value) > _MAX_ITEMS:  # a subclass may have attributes
        return id(value)
    if isinstance(value, Mapping):
        return kind, *((_comparable(key), _comparable(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return kind, *sorted((_comparable(item) for item in value), key=repr)
    return kind, *map(_comparable, value)


def _without_ints(module: nn.Module, entries: dict[str, Any]) -> dict[str, Any]:
    """Return ``entries`` without the values of ints of users' classes, which may be numbers of layers."""
    if type(module).__module__.startswith("torch."):
        return entries
    return {name: int if _is_int(value) else value for name, value in entries.items()}


def _is_int(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] is int


def _numbers(members: Sequence[Repeated]) -> frozenset[Attribute]:
    """Return the attributes whose ints are different in all of ``members``."""
    return frozenset(
        (path, name)
        for path, part in members[0].parts.items()
        for name, value in vars(part).items()
        if type(value) is int and len({member.attribute((path, name)) for member in members}) == len(members)
    )
