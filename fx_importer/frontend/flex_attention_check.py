"""Comparison of an exported program that has ``flex_attention`` with its model, in eager.

torch.export traces ``score_mod`` and ``mask_mod`` with Dynamo, apart from the rest of the model. Their closures may
hold other values than at the call, because Dynamo traces through ``functools.lru_cache``. torch does not report this.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.errors import ExportError
from fx_importer.frontend.example_inputs import state_of
from fx_importer.frontend.fake_weights import is_fake_or_meta
from fx_importer.frontend.torch_patches import warnings_filtered, without_compilation
from fx_importer.frontend.undo_writes import attributes_restored

_FLEX_ATTENTION = torch.ops.higher_order.flex_attention


def check_flex_attention(
    program: ExportedProgram, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Run ``module`` and ``program`` on the example inputs, if ``program`` has ``flex_attention`` and all are real.

    Not checked are models whose results change from call to call, by attributes that they count up, and
    ``flex_attention`` in branches and loops, which torch fails to run.

    Raises:
        ExportError: if they give other numbers.
    """
    if not any(node.target is _FLEX_ATTENTION for node in program.graph.nodes):
        return
    state = (
        *state_of(module).values(),
        *program.state_dict.values(),
        *program.constants.values(),
    )
    if any(map(is_fake_or_meta, (*state, *pytree.tree_leaves((args, kwargs))))):
        return
    buffers = [tensor for tensor in state if type(tensor) is Tensor and not tensor.is_inference()]
    with _attributes_kept(module):
        try:
            expected, again = (_results(module, args, kwargs, buffers) for _ in range(2))
            results = _results(program.module(check_guards=False), args, kwargs, buffers)
        except Exception as error:
            name = type(module).__name__
            warnings.warn(
                f"the flex_attention of {name} is not checked, since it does not run in eager: {error}", stacklevel=2
            )
            return
    if any(_difference(a, e) for a, e in zip(again, expected, strict=True)):
        return
    for i, (a, e) in enumerate(zip(results, expected, strict=True)):
        if difference := _difference(a, e):
            raise ExportError(
                f"torch.export captured another computation than that of {type(module).__name__}, which has "
                f"flex_attention: result {i} of the exported program is wrong on the example inputs. {difference}\n"
                "score_mod or mask_mod depends on state that torch traces wrongly. Give it tensors that are inputs, "
                "buffers or computed in forward, and numbers that are plain attributes or locals."
            )


def _difference(actual: Any, expected: Any) -> str:
    """Return how two results differ by more than rounding, or an empty string for results that are not tensors."""
    if not isinstance(expected, Tensor):
        return ""
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


def _results(run: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], buffers: list[Tensor]) -> list[Any]:
    """Return the flat results of ``run`` on copies of the inputs; it leaves ``buffers`` as they are."""
    args, kwargs = pytree.tree_map_only(Tensor, lambda argument: argument.detach().clone(), (tuple(args), dict(kwargs)))
    before = [(buffer, buffer._version, buffer.clone()) for buffer in buffers]
    with (
        torch.no_grad(),
        torch.random.fork_rng(),
        without_compilation(),  # else Dynamo may reuse the graph of another score_mod
        warnings_filtered("ignore"),
        attributes_restored(run),
    ):
        torch.manual_seed(0)
        try:
            results = run(*args, **kwargs)
            return [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in pytree.tree_leaves(results)]
        finally:
            for tensor, version, values in before:
                if tensor._version != version:
                    tensor.copy_(values)


@contextmanager
def _attributes_kept(module: torch.nn.Module) -> Iterator[None]:
    """Restore the attributes of ``module`` and its submodules that the body sets."""
    attributes = [(part, dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for attribute, old in attributes:
            vars(attribute).clear()
            vars(attribute).update(old)
