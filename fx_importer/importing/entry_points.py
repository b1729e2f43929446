"""Shared state of several programs in one module."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.export import ExportedProgram

from fx_importer.errors import UsageError
from fx_importer.fx_graph.programs import held_value, mutated_state, storage_key
from fx_importer.importing.signatures.signature import HELD


def shared_state(programs: Mapping[str, ExportedProgram]) -> set[str]:
    """Return the names of the parameters and buffers that any of ``programs`` mutates.

    Raises:
        UsageError: if programs hold different tensors under one of these names, or one tensor under several names.
    """
    state = set().union(*map(mutated_state, programs.values()))
    homes: dict[str, tuple[str, torch.Tensor]] = {}
    names: dict[int, tuple[str, str]] = {}
    for function, program in programs.items():
        for spec in program.graph_signature.input_specs:
            if spec.kind not in HELD or spec.target is None:
                continue
            tensor = held_value(program, spec)
            strided = tensor.layout is torch.strided  # a sparse tensor has no single storage
            memory = storage_key(tensor) if strided else id(tensor)
            other, name = names.setdefault(memory, (function, spec.target))
            if name != spec.target and other != function and state & {name, spec.target}:
                raise UsageError(
                    f"'{spec.target}' of '{function}' is '{name}' of '{other}', and one of them mutates it: state is "
                    "shared by name, so export both from modules that hold it under one name"
                )
            if spec.target in state:
                other, first = homes.setdefault(spec.target, (function, tensor))
                if (first.shape, first.dtype) != (tensor.shape, tensor.dtype):
                    raise UsageError(
                        f"the state '{spec.target}' is {_type(first)} in '{other}', but {_type(tensor)} in "
                        f"'{function}': entry points share state by name, so give it one type or two names"
                    )
    return state


def _type(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
