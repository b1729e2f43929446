"""The reference of comparisons: the exported program, run node by node in eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.calls.backend import Value
from fx_importer.engines.eager.eager_backend import as_model_argument, key_of, placeholder_values, results_of
from fx_importer.fx_graph.triton_runtime import interpreted_kernels
from fx_importer.manifest import Function

Observer = Callable[[fx.Node, tuple[Any, ...], Mapping[str, Any], Any], None]
"""Called after each node with its arguments, as they were before it ran, and its value."""


@dataclass(frozen=True)
class Reference:
    """An exported program with the arguments and results of its lowered function.

    State and inputs that the program mutates are copied, unless the function overwrites them too.
    """

    program: ExportedProgram
    function: Function
    observe: Observer | None = None

    def __call__(self, *arguments: Value) -> tuple[Any, ...]:
        named = {
            key_of(argument): as_model_argument(argument, value if argument.overwritten else _copy(value))
            for argument, value in zip(self.function.arguments, arguments, strict=True)
        }
        with torch.no_grad(), interpreted_kernels():
            interpreter = _Interpreter(self.program.graph_module, self.observe)
            returned = interpreter.run(*placeholder_values(self.program, named))
            results, values = results_of(self.program, self.function, returned, named)
            results = tuple(map(_copy, results))
            for written in self.function.arguments:
                if (
                    written.overwritten and values[key_of(written)] is not named[key_of(written)]
                ):  # of a functional program
                    named[key_of(written)].copy_(values[key_of(written)])
        return results


class _Interpreter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, observe: Observer | None):
        super().__init__(module)
        self._observe = observe

    def run_node(self, n: fx.Node) -> Any:
        if self._observe is None or n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if writes(n):
            args, kwargs = copied((args, kwargs))
        value = super().run_node(n)
        self._observe(n, args, kwargs, value)
        return value


def writes(node: fx.Node) -> bool:
    """Return whether the operator of ``node`` mutates an argument."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def copied(tree: Any) -> Any:
    """Return ``tree`` with copies of its tensors, which alias like the originals."""
    memo: dict[int, Any] = {}
    with torch.no_grad():
        return pytree.tree_map_only(torch.Tensor, lambda tensor: copy.deepcopy(tensor.detach(), memo), tree)


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
