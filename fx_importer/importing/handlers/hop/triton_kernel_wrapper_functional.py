"""Import of a Triton kernel as an opaque operator with its grid, arguments and, if triton is installed, its IR."""

from __future__ import annotations

import importlib.util
from typing import Any

from torch import fx
from torch._higher_order_ops import triton_kernel_wrap
from torch.fx.node import map_arg

from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError
from fx_importer.mlir.bindings import ir


def import_triton_kernel(node: fx.Node, build: NodeBuilder) -> list[ir.Value]:
    """Import a call of a kernel as ``torch.operator "torch.triton.<name>"(grids…, arguments…)``.

    Each grid is a list of three integers. There is one, or one for each autotuning configuration.
    Names and constants are attributes: ``triton.arguments``, ``triton.constants``, and ``triton.results``, the mutated
    tensors, whose new values are the results. ``triton.ir`` is the kernel as Triton's own generic IR.

    Raises:
        UnsupportedNodeError: for a kernel with TMA descriptors.
    """
    call: dict[str, Any] = dict(node.kwargs)
    if call["tma_descriptor_metadata"]:
        raise UnsupportedNodeError("a Triton kernel with TMA descriptors cannot be imported: pass it pointers")
    kernel: Any = triton_kernel_wrap.kernel_side_table.get_kernel(call["kernel_idx"])
    constants = triton_kernel_wrap.kernel_side_table.get_constant_args(call["constant_args_idx"])
    examples: dict[str, Any] = build.example(node)
    name, arguments = _name(kernel), call["kwargs"]
    context = build.fx_importer.context

    def strings(values: Any) -> ir.Attribute:
        return ir.ArrayAttr.get([ir.StringAttr.get(value, context=context) for value in values], context)

    attributes: dict[str, ir.Attribute] = {
        "name": ir.StringAttr.get(f"torch.triton.{name}", context=context),
        "triton.arguments": strings(arguments),
        "triton.constants": strings(f"{key}={value!r}" for key, value in constants.items()),
        "triton.results": strings(examples),
    }
    if importlib.util.find_spec("triton") is not None:
        known = map_arg(arguments, build.example)
        assert isinstance(known, dict)
        module, _ = triton_kernel_wrap.generate_ttir(kernel, {**known, **constants}, {})
        attributes["triton.ir"] = ir.StringAttr.get(str(module), context=context)
    grids = [build.list_of(build.values([*grid, 1, 1][:3])) for grid in call["grid"]]
    types = [build.types.of(example) for example in examples.values()]
    return list(build.op("torch.operator", types, [*grids, *build.values(arguments.values())], attributes).results)


def _name(kernel: Any) -> str:
    """Return the name of the Python function of a kernel, unwrapping decorators."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel.__name__
