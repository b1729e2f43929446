"""Fake and meta tensors: export of modules that were built on the meta device or under FakeTensorMode.

Such a module is exported as on the CPU, and its weights in the program (`host_programs`) are on the meta device: they
have shapes and dtypes, and no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from fx_importer.frontend.example_inputs import state_of
from fx_importer.fx_graph.programs import empty_on, with_tensors

_CPU, _META = torch.device("cpu"), torch.device("meta")


def is_fake_or_meta(value: object) -> bool:
    """Return whether ``value`` is a fake or meta tensor."""
    return isinstance(value, FakeTensor) or (isinstance(value, Tensor) and value.is_meta)


@contextmanager
def on_fake_cpu(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Callable[[ExportedProgram], ExportedProgram]]]:
    """Replace fake and meta tensors of the inputs and of ``module`` by fake CPU tensors during the body.

    torch.export would otherwise record the meta device in the program, and fail where two devices meet. Yields args,
    kwargs, and a function that puts the original tensors of ``module``, with their aliasing, back into a program.
    """
    inputs = (tuple(args), dict(kwargs))
    tensors = [*state_of(module).values(), *pytree.tree_leaves(inputs)]
    if not any(map(is_fake_or_meta, tensors)):
        yield *inputs, lambda program: program
        return
    mode = next((tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)), None) or FakeTensorMode()
    made: dict[int, tuple[Tensor, Any]] = {}  # with the original, which keeps its id() taken

    def fake(tensor: Any) -> Any:
        if not is_fake_or_meta(tensor) or (isinstance(tensor, FakeTensor) and tensor.device == _CPU):
            return tensor
        if id(tensor) not in made:
            made[id(tensor)] = tensor, empty_on(tensor, _CPU, mode)
        return made[id(tensor)][1]

    def restored(program: ExportedProgram) -> ExportedProgram:
        originals = {id(made): tensor for tensor, made in made.values() if not isinstance(tensor, FakeTensor)}
        tensors_by_name = {**program.constants, **program.state_dict}
        return with_tensors(
            program,
            {name: originals[id(tensor)] for name, tensor in tensors_by_name.items() if id(tensor) in originals},
        )

    places = [
        (tensors_by_name, name, tensor)
        for owner in module.modules()
        for tensors_by_name in (owner._parameters, owner._buffers)
        for name, tensor in tensors_by_name.items()
        if is_fake_or_meta(tensor)
    ]
    for tensors_by_name, name, tensor in places:
        tensors_by_name[name] = fake(tensor)
    try:
        fakes = pytree.tree_map(fake, inputs)
        with _NamedDevicesOnCpu() if made else nullcontext():
            yield *fakes, restored
    finally:
        for tensors_by_name, name, tensor in places:
            tensors_by_name[name] = tensor  # type: ignore[assignment]


class _NamedDevicesOnCpu(TorchFunctionMode):
    """Calls with the CPU in place of devices, which a model may name as those of its fake tensors."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.cuda:
            return args[0]
        if func is Tensor.to:
            args = [_on_cpu(argument) if isinstance(argument, str | torch.device) else argument for argument in args]
        keywords = dict(kwargs or {})
        if keywords.get("device") is not None:
            keywords["device"] = _on_cpu(keywords["device"])
        return func(*args, **keywords)


def _on_cpu(device: str | int | torch.device) -> str | int | torch.device:
    """Return the CPU in place of a device; the meta device stays, in which torch makes fake tensors."""
    return device if torch.device(device) == _META else _CPU
