"""Import of the launch of a Triton kernel as a call of a function that whoever compiles the module defines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops import triton_kernel_wrap
from torch.fx.node import map_arg

from fx_importer.fx_graph.triton_kernel import (
    KNOWN_KERNELS,
    LAUNCH_OPTIONS,
    KernelVariant,
    KnownKernel,
    TritonKernel,
)
from fx_importer.fx_graph.triton_runtime import traceable_kernels
from fx_importer.importing.call_arguments import CallArguments
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.manifest import TRITON_IR_ATTRIBUTE, Fixed, OperatorStub, Returned
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.declarations import OperatorStubs


def import_triton_kernel(node: fx.Node, build: NodeBuilder) -> list[ir.Value]:
    """Import a launch as a call of a function with the name of the kernel, which returns what the kernel writes.

    Its operands are the sizes of the grids that are computed, and then the parameters that are. Everything else is in
    the declaration: the `OperatorStub`, and as `TRITON_IR_ATTRIBUTE` the kernel in Triton's dialect.

    Raises:
        UnsupportedNodeError: for a kernel with TMA descriptors, or that triton does not compile.
    """
    launch = _Launch.of(node)
    examples: Mapping[str, torch.Tensor] = build.example(node)
    call = CallArguments.of(node, build)
    grids = tuple(call.argument([*grid, 1, 1][:3]) for grid in node.kwargs["grid"])  # type: ignore[union-attr]
    parameters = tuple(call.argument(parameter) for parameter in launch.parameters.values())
    returns = tuple(Returned(call.tensor(example), (position,)) for position, example in enumerate(examples.values()))
    name = launch.function.__name__
    kernel = TritonKernel(
        name,
        launch.function.cache_key,
        tuple(launch.parameters),
        tuple(examples),
        tuple(configuration.variant for configuration in launch.configurations),
    )
    operator = f"triton.{launch.function.fn.__module__}.{launch.function.fn.__qualname__}"
    stub = OperatorStub(operator, (*grids, *parameters), tuple(call.takes), returns, kernel=kernel)
    KNOWN_KERNELS[stub.to_json()] = KnownKernel(launch.function, launch.configurations[0].constants)

    known = map_arg(launch.parameters, build.example)
    texts = [
        _triton_ir(launch.function, {**known, **configuration.constants}) for configuration in launch.configurations
    ]
    symbol = re.sub(r"\W", "_", name)
    names = (f"{symbol}{f'_{number}' if number else ''}" for number in itertools.count())
    with build.ambient():
        attributes = {TRITON_IR_ATTRIBUTE: ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])}
        types = [build.types.of(example) for example in examples.values()]
        stubs = OperatorStubs(build.fx_importer.module_op)
        return list(stubs.call(stub, call.operands, types, names, attributes).results)


@dataclass(frozen=True)
class _Configuration:
    constants: Mapping[str, Any]
    options: Mapping[str, int]

    @property
    def variant(self) -> KernelVariant:
        constants = {name: value if isinstance(value, Fixed) else str(value) for name, value in self.constants.items()}
        return KernelVariant(constants, **self.options)


@dataclass(frozen=True)
class _Launch:
    function: Any
    """The ``triton.runtime.JITFunction``, without what tunes or wraps it."""
    parameters: Mapping[str, Any]
    """Nodes and numbers, in the order of the kernel."""
    configurations: tuple[_Configuration, ...]

    @classmethod
    def of(cls, node: fx.Node) -> _Launch:
        call: dict[str, Any] = dict(node.kwargs)
        if call["tma_descriptor_metadata"]:
            raise UnsupportedNodeError("a Triton kernel with TMA descriptors cannot be imported: pass it pointers")
        table = triton_kernel_wrap.kernel_side_table
        kernel: Any = table.get_kernel(call["kernel_idx"])
        arguments = {**call["kwargs"], **table.get_constant_args(call["constant_args_idx"])}
        configs = getattr(kernel, "configs", None) or [None]
        while not hasattr(kernel, "params"):
            kernel = kernel.fn
        options = {name: value for name, value in arguments.items() if name not in kernel.arg_names}
        if unknown := sorted({*options} - {*LAUNCH_OPTIONS}):
            raise UnsupportedNodeError(
                f"the Triton kernel {kernel.__name__} is launched with {', '.join(unknown)}: of the options, only "
                f"{', '.join(LAUNCH_OPTIONS)} are known"
            )
        fixed = {param.name for param in kernel.params if param.is_constexpr}
        passed = {name: arguments[name] for name in kernel.arg_names if name in arguments and name not in fixed}
        configurations = []
        for config in configs:
            tuned = {} if config is None else config.kwargs
            chosen = options if config is None else _options_of(config, kernel.__name__)
            constants = {name: value for name, value in {**arguments, **tuned}.items() if name in fixed}
            configurations.append(_Configuration(constants, chosen))
        return cls(kernel, passed, tuple(configurations))


def _options_of(config: Any, kernel: str) -> dict[str, int]:
    """Return the options of a configuration of an autotuned kernel."""
    if getattr(config, "ir_override", None):
        raise UnsupportedNodeError(f"a configuration of the Triton kernel {kernel} has ir_override: it has no source")
    options = {name: getattr(config, name, None) for name in LAUNCH_OPTIONS}
    return {name: value for name, value in options.items() if value is not None}


def _triton_ir(function: Any, arguments: dict[str, Any]) -> str:
    with traceable_kernels():
        try:
            module, _ = triton_kernel_wrap.generate_ttir(function, arguments, {})
        except Exception as error:
            raise UnsupportedNodeError(
                f"triton does not compile the kernel {function.__name__}: {type(error).__name__}: {error}"
            ) from error
    return str(module)
