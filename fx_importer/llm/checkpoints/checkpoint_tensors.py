"""Load the tensors of a checkpoint into a transformers model, and account for each of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fx_importer.errors import UsageError

_SHOWN = 8
"""The most problems that an error lists."""


def load_checkpoint(
    model_class: Any, config: Any, tensors: Mapping[str, Tensor], dtype: torch.dtype | str, path: Path
) -> Any:
    """Return the model of ``config`` with the weights ``tensors``, which come from ``path``.

    transformers decides which tensors a model may lack (tied weights, buffers that it computes), which it ignores, and
    how names and layouts of older checkpoints map to the model. It initializes other missing weights with random
    numbers; here they are an error.

    Args:
        model_class: the transformers class of the model.
        config: its configuration.
        tensors: the tensors by their names in the checkpoint.
        dtype: the dtype that the model computes in, or ``"auto"``.
        path: where the tensors come from, for errors.

    Raises:
        UsageError: listing tensors that are missing, that the model does not have, or that are of another shape or
            dtype.
    """
    integers = _integers_for_floats(model_class, config, tensors)
    floats = next((tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), torch.float32)
    # transformers would convert integers to floats. It reports an empty tensor, unless it ignores the name.
    offered = {**tensors, **{name: torch.empty(0, dtype=floats) for name in integers}}
    try:
        model, report = model_class.from_pretrained(
            None,
            config=config,
            state_dict=offered,
            dtype=dtype,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except RuntimeError as error:  # tensors that transformers would stack or split do not fit together
        listed = [f"'{name}' is {_spelled(tensors[name])}" for name in integers] or [str(error)]
        raise _mismatch(model_class, config, path, listed) from error
    if problems := [*_problems(report, tensors)]:
        raise _mismatch(model_class, config, path, problems)
    return model


def _integers_for_floats(model_class: Any, config: Any, tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the names of ``tensors`` that are not floats, except where the model itself has integers."""
    integers = [name for name, tensor in tensors.items() if not tensor.is_floating_point()]
    if not integers:
        return integers
    with torch.device("meta"):
        state = model_class(copy.deepcopy(config)).state_dict()
    ends = {_end(name) for name, tensor in state.items() if not tensor.is_floating_point()}
    return [name for name in integers if _end(name) not in ends]


def _end(name: str) -> str:
    return name.rpartition(".")[2]


def _problems(report: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    for name in sorted(report["missing_keys"]):
        yield f"'{name}' is missing"
    for name, shape, needed in sorted(report["mismatched_keys"]):
        stored = tensors.get(name)
        met = f"is {list(shape)}" if stored is None else f"is {_spelled(stored)}"
        yield f"'{name}' {met}, and the model needs floats of {list(needed)}"
    for name in sorted(report["unexpected_keys"]):
        yield f"the model has no weight '{name}'"
    yield from map(str, report["error_msgs"])


def _spelled(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _mismatch(model_class: Any, config: Any, path: Path, problems: Sequence[str]) -> UsageError:
    """Return the error that lists ``problems``."""
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    name, saved = model_class.__name__, ", ".join(getattr(config, "architectures", None) or ())
    other = f", and config.json calls the model {saved}" if saved and saved != name else ""
    return UsageError(
        f"'{path}' does not hold the weights of {name}, a causal language model{other}: "
        f"{'; '.join(problems[:_SHOWN])}{more}; accepted are all weights of the model and no others, as transformers' "
        "save_pretrained writes them"
    )
