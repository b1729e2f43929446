"""Quantization by torchao's PT2E: observers of the values in the plan, in int8 or int16, calibration, conversion."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from fx_importer.errors import UsageError
from fx_importer.frontend.torch_patches import tracing
from fx_importer.fx_graph.operators import aten
from fx_importer.quantization.families import MOVES, RULES
from fx_importer.quantization.families.elementwise import is_elementwise
from fx_importer.quantization.families.norms import NORMS
from fx_importer.quantization.normalization.normalize import normalize
from fx_importer.quantization.post_training.calibration import Call
from fx_importer.quantization.post_training.integer_io import integers_outside
from fx_importer.quantization.post_training.memory import Memory, with_memory, without_memory
from fx_importer.quantization.post_training.plan import QuantizationPlan, is_huge, planned
from fx_importer.quantization.post_training.shared_scales import OperandRanges
from fx_importer.quantization.qdq import described, mark_as_from_quantize

_INT8: dict[str, Any] = {"dtype": torch.int8, "quant_min": -128, "quant_max": 127}
_LEVELS: dict[str, dict[str, Any]] = {
    "int8": _INT8,
    "int16": {"dtype": torch.int16, "quant_min": -(2**15), "quant_max": 2**15 - 1},
}
"""Dtypes and ranges of activations; int16 is symmetric."""
ACTIVATIONS = (*_LEVELS, "mixed")
"""Dtypes of activations; mixed ones are int16 for `wide_values`."""
_LEAST_SCALE = 2.0**-16
"""Of values that are all zero, and of weights whose channel is."""
OBSERVERS = {"histogram": "HistogramObserver", "minmax": "MinMaxObserver"}
"""torchao's observers of activations, by name."""


@tracing()
def quantized(
    program: ExportedProgram,
    calls: Sequence[Call],
    observer: str,
    integer_io: bool,
    kept: Collection[str] = (),
    activations: str = "int8",
    warn: Callable[[str], None] = lambda _: None,
) -> fx.GraphModule:
    """Return the module of ``program`` with quantize and dequantize operators, calibrated by ``calls`` in order.

    The module has copies of the buffers that it writes, as they were. With ``integer_io``, inputs and results that are
    quantized are int8, and their scales are in ``meta``. What ``kept`` names stays in floating point. ``warn`` gets a
    sentence for each tensor whose one scale loses much of a part of it, and one for values without elements.

    Raises:
        UsageError: if a value that is to be quantized is not finite in one of the calls.
    """
    entry = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    module, memory = without_memory(program)
    normalize(module)
    excluded = _huge_values(module, memory.leaves(calls[0]))
    prepared = entry.prepare_pt2e(
        module, _quantizer(lambda graph: planned(graph, excluded, kept), observer, activations)
    )
    with torch.no_grad():
        ranges = OperandRanges.observing(prepared)
        _calibrate(prepared, calls, memory, warn)
        ranges.stop()
        converted = entry.convert_pt2e(prepared)
    for loss in ranges.losses(converted):
        warn(loss)
    # torchao's module refuses eval().
    result = with_memory(converted, memory)
    result.train(False)
    mark_as_from_quantize(result.graph)
    return integers_outside(result) if integer_io else result


def float_reference(program: ExportedProgram) -> fx.GraphModule:
    """Return the module of ``program`` as `quantized` quantizes it: its nodes have the same names."""
    entry = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    module, memory = without_memory(program)
    normalize(module)
    nothing = _quantizer(lambda graph: QuantizationPlan({}, {}, {}, {}), "minmax", "int8")
    return with_memory(entry.prepare_pt2e(module, nothing), memory)


def _calibrate(prepared: fx.GraphModule, calls: Iterable[Call], memory: Memory, warn: Callable[[str], None]) -> None:
    """Record the ranges of values in ``prepared``. A value that has no elements in any call stays float: warn."""
    observers = [
        node
        for node in prepared.graph.find_nodes(op="call_module")
        if str(node.target).startswith("activation_post_process")
    ]
    observed = {node.target: node.args[0] for node in observers}

    seen: set[torch.nn.Module] = set()

    def check(name: str) -> Callable[..., None]:
        def hook(observer: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs[0].numel():
                seen.add(observer)
            if is_huge(inputs[0]):
                at = observed[name]
                raise UsageError(f"calibration input {number}: the value of {at.name} ({at.target}) is not finite")

        return hook

    number = 0
    hooks = [prepared.get_submodule(name).register_forward_pre_hook(check(name)) for name in observed]
    try:
        for number, call in enumerate(memory.calls(prepared, calls)):  # noqa: B007 - hooks read it
            call()
    finally:
        for handle in hooks:
            handle.remove()
    _warn_of_states(prepared, memory, warn)
    unseen = [node for node in observers if prepared.get_submodule(node.target) not in seen]
    empty = ", ".join(described(node.args[0]) for node in unseen)
    for node in unseen:
        node.replace_all_uses_with(node.args[0])
        prepared.graph.erase_node(node)
    prepared.recompile()
    if unseen:
        warn(
            f"calibration: {empty}: no elements in any call, so no range, and the value stays float. Pass inputs for "
            "which it has elements"
        )


def _warn_of_states(prepared: fx.GraphModule, memory: Memory, warn: Callable[[str], None]) -> None:
    """Warn of buffers that were the same number in all elements whenever ``prepared``, calibrated, read them."""
    states = prepared.graph.find_nodes(op="placeholder")[-len(memory.state) :]
    for buffer, node in zip(memory.state, states, strict=False):
        for observer in node.users:
            ranges: Any = prepared.get_submodule(str(observer.target)) if observer.op == "call_module" else None
            low, high = getattr(ranges, "min_val", None), getattr(ranges, "max_val", None)
            if low is not None and low.numel() == 1 and low == high:
                read = described(next(iter(observer.users), observer))
                warn(
                    f"calibration: the buffer '{buffer}', which the model writes, was {low.item():g} in all elements "
                    f"whenever {read} read it, and other values will be beyond the range of its scale. Pass several "
                    "calls that change it, in order"
                )
                break


def _quantizer(plan: Callable[[fx.Graph], QuantizationPlan], observer: str, activations: str) -> Any:
    """Return a quantizer of torchao that annotates the nodes of ``plan``."""
    observers = importlib.import_module("torchao.quantization.pt2e.observer")
    library = importlib.import_module("torchao.quantization.pt2e.quantizer")
    ranges = getattr(observers, OBSERVERS[observer]).with_args(eps=_LEAST_SCALE)
    by_channel = observers.PerChannelMinMaxObserver.with_args(eps=_LEAST_SCALE)
    schemes = {"int8": torch.per_tensor_affine, "int16": torch.per_tensor_symmetric}
    observed = {
        kind: library.QuantizationSpec(**levels, observer_or_fake_quant_ctr=ranges, qscheme=schemes[kind])
        for kind, levels in _LEVELS.items()
    }

    def weight(axis: int | None) -> Any:
        return library.QuantizationSpec(
            **(_INT8 | {"quant_min": -127}),
            observer_or_fake_quant_ctr=by_channel,
            qscheme=torch.per_channel_symmetric,
            ch_axis=axis,
        )

    def fixed(kind: str, scale: float, zero_point: int) -> Any:
        if kind == "int16":  # the same range
            scale, zero_point = 2.0**-15, 0
        kwargs = {"scale": scale, "zero_point": zero_point, "qscheme": schemes[kind]}
        return library.FixedQParamsQuantizationSpec(**_LEVELS[kind], **kwargs)

    class Planned(library.Quantizer):
        def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
            groups = plan(model.graph)
            owners: dict[fx.Node, Any] = {}
            wide = wide_values(groups) if activations == "mixed" else set[fx.Node]()

            def kind_of(root: fx.Node | None) -> str:
                if activations == "mixed":
                    return "int16" if root in wide else "int8"
                return activations

            def shared(root: fx.Node, owner: Any) -> Any:
                """Return the specification of a value: the first of a group has its own, which the others share."""
                if root in owners:
                    return library.SharedQuantizationSpec(owners[root])
                owners[root] = owner
                kind = kind_of(root)
                return fixed(kind, *groups.fixed[root]) if root in groups.fixed else observed[kind]

            for node in model.graph.nodes:
                root = groups.groups.get(node)
                operands: dict[fx.Node, Any] = {}
                if node in groups.weights:
                    operands[groups.weights[node]] = weight(RULES[node.target].weight_axis)
                for constant in groups.constants.get(node, ()):
                    shares = root if node.target in MOVES else None
                    operands[constant] = observed[kind_of(root)] if shares is None else shared(shares, (constant, node))
                result = shared(root, node) if root is not None else None
                if operands or result is not None:
                    annotation = library.QuantizationAnnotation(operands, result, _annotated=True)
                    node.meta["quantization_annotation"] = annotation
            return model

        def validate(self, model: fx.GraphModule) -> None:
            pass

    return Planned()


class _Finder(fx.Interpreter):
    """Runs a graph, and collects the names of values that int8 cannot hold."""

    def __init__(self, module: fx.GraphModule):
        super().__init__(module)
        self.found: set[str] = set()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor) and is_huge(result):
            self.found.add(n.name)
        return result


def _huge_values(module: fx.GraphModule, leaves: Sequence[Any]) -> set[str]:
    finder = _Finder(module)
    with torch.no_grad():
        finder.run(*leaves, enable_io_processing=False)
    return finder.found


def wide_values(plan: QuantizationPlan) -> set[fx.Node]:
    """Return the representatives of values that mixed activations have in int16.

    These are sums, norms and their operands. In an MLP whose result is added, the result of the first linear layer and
    the elementwise functions after it are int16 too: there, activations of single channels are a hundred times larger
    than others (Sun et al., Massive Activations in Large Language Models). Constants stay as they are, including
    embeddings, which would take twice the memory in int16.
    """
    wide: set[fx.Node] = set()
    products: list[fx.Node] = []
    for node in plan.groups:
        if node.target in (aten.add.Tensor, aten.sub.Tensor, *NORMS):
            wide.add(plan.groups[node])
            roots = (plan.groups.get(operand) for operand in node.all_input_nodes)
            sources = [root for root in roots if root is not None and root.target not in MOVES]
            wide.update(sources)
            products += [source for source in sources if source.target is aten.linear.default]
    for product in products:
        wide |= _functions_before(product.all_input_nodes[0], plan, wide)
    return wide


def _functions_before(value: fx.Node, plan: QuantizationPlan, known: Collection[fx.Node]) -> set[fx.Node]:
    """Return the representatives of the functions of elements that ``value`` is, and of the products before these."""
    before: set[fx.Node] = set()
    stack = [value] if is_elementwise(value.target) else []
    while stack:
        node = stack.pop()
        root = plan.groups.get(node)
        if root in known or root in before or not (is_elementwise(node.target) or node.target is aten.linear.default):
            continue
        if root is not None:
            before.add(root)
        if node.target is not aten.linear.default:
            stack += node.all_input_nodes
    return before
