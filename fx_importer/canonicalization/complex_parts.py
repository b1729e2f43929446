"""Complex tensors as two real ones, for output types that have no complex numbers.

Decompositions compute with the parts of complex numbers, and between any two of them put parts together and take them
apart again (`decompositions.complex_numbers`). Here nothing is put together: what only moves elements moves both parts.
Complex inputs and results of the program stay, and so does what is not known here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument
from torch.fx.node import map_arg

from fx_importer.canonicalization.carriers import CONVERSIONS, FILLS, MOVES
from fx_importer.canonicalization.rewriting import emit, value_of
from fx_importer.programs import signature_of, with_rewritten_graphs

aten = torch.ops.aten
prims = torch.ops.prims

Parts = tuple[fx.Node, fx.Node]
"""The real and the imaginary part."""

_PART: dict[Any, int] = {aten.real.default: 0, aten.imag.default: 1, prims.real.default: 0, prims.imag.default: 1}


def complex_as_parts(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with real tensors in the place of complex ones on the way, and of complex constants."""
    return with_rewritten_graphs(_with_constants_in_parts(program), _split)


def _split(graph: fx.Graph, owner: fx.GraphModule) -> None:
    del owner
    if any(_is_complex(node) for node in graph.nodes):
        _Splitting(graph)
        graph.eliminate_dead_code()


class _Splitting:
    """Rewrites one graph."""

    def __init__(self, graph: fx.Graph):
        self._parts: dict[fx.Node, Parts] = {}
        for node in list(graph.nodes):
            if node.op == "call_function" and (_is_complex(node) or any(map(_is_complex, node.all_input_nodes))):
                self._call(node)
            elif node.op == "output":
                self._put_together(node)

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        source = node.args[0] if node.args else None
        if target is aten.complex.default:
            self._parts[node] = self._broadcast(node)
        elif target is aten.view_as_complex.default:
            parts = (emit(node, aten.select.int, source, -1, side) for side in (0, 1))
            self._parts[node] = next(parts), next(parts)
        elif target is aten.view_as_real.default:
            self._side_by_side(node)
        elif target in _PART:
            node.replace_all_uses_with(self._of(source, node)[_PART[target]])
        elif target in CONVERSIONS and _is_complex(node):
            self._parts[node] = self._converted(node)
        elif target in MOVES and _is_complex(node):
            self._parts[node] = self._moved(node, 0), self._moved(node, 1)
        else:
            self._put_together(node)

    def _of(self, node: Any, before: fx.Node) -> Parts:
        """Return the parts of a complex node; of one that stays complex, and of a real one, what they are."""
        if node not in self._parts:
            if _is_complex(node):
                pairs = emit(before, aten.view_as_real.default, node)
                return emit(before, aten.select.int, pairs, -1, 0), emit(before, aten.select.int, pairs, -1, 1)
            return node, emit(before, aten.zeros_like.default, node)
        return self._parts[node]

    def _broadcast(self, node: fx.Node) -> Parts:
        shape = list(value_of(node).shape)
        parts: list[Any] = list(node.args)
        for side, part in enumerate(parts):
            if list(value_of(part).shape) != shape:
                parts[side] = emit(node, aten.expand.default, part, shape)
        return parts[0], parts[1]

    def _side_by_side(self, node: fx.Node) -> None:
        parts, last = self._of(node.args[0], node), value_of(node).dim() - 1
        for user in list(node.users):
            if user.target is aten.select.int and user.args[1] in (-1, last):
                user.replace_all_uses_with(parts[int(user.args[2] in (1, -1))])
                user.graph.erase_node(user)
        if node.users:
            columns = [emit(node, aten.unsqueeze.default, part, -1) for part in parts]
            node.replace_all_uses_with(emit(node, aten.cat.default, columns, -1))

    def _converted(self, node: fx.Node) -> Parts:
        dtype = value_of(node).dtype.to_real()
        parts = self._of(node.args[0], node)
        real, imaginary = (emit(node, prims.convert_element_type.default, part, dtype) for part in parts)
        return real, imaginary

    def _moved(self, node: fx.Node, side: int) -> fx.Node:
        given: Any = map_arg((node.args, node.kwargs), lambda each: self._side(each, node, side))
        target: Any = node.target
        args, kwargs = list(given[0]), dict(given[1])
        if (position := FILLS.get(target)) is not None and position < len(args):
            number = complex(args[position])
            args[position] = number.imag if side else number.real
        if isinstance(kwargs.get("dtype"), torch.dtype):
            kwargs["dtype"] = kwargs["dtype"].to_real()
        return emit(node, target, *args, **kwargs)

    def _side(self, each: fx.Node, node: fx.Node, side: int) -> fx.Node:
        """Return a part of an operand; indices and masks stay, and other real ones are converted."""
        value = value_of(each)
        if not isinstance(value, Tensor) or not (value.is_complex() or value.is_floating_point()):
            return each
        return self._of(each, node)[side]

    def _put_together(self, node: fx.Node) -> None:
        """Let ``node`` take complex tensors."""
        for each in node.all_input_nodes:
            if each in self._parts:
                node.replace_input_with(each, emit(node, aten.complex.default, *self._parts[each]))


def _with_constants_in_parts(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with two real constants, and `aten.complex` of them, for each complex one that it reads."""
    written = {spec.target for spec in program.graph_signature.output_specs if spec.target}
    constants = dict(program.constants)
    specs: list[InputSpec] = []
    program = with_rewritten_graphs(program, lambda graph, owner: None)
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    first = next((node for node in program.graph.nodes if node.op != "placeholder"), None)
    for spec in program.graph_signature.input_specs:
        held = program.state_dict.get(spec.target or "", program.constants.get(spec.target or ""))
        splits = spec.kind is not InputKind.USER_INPUT and isinstance(held, Tensor) and held.is_complex()
        if not splits or spec.target in written or first is None:
            specs.append(spec)
            continue
        assert isinstance(held, Tensor)
        node, parts = nodes[spec.arg.name], []
        for name, part in zip(
            ("real", "imag"), torch.view_as_real(held.detach().resolve_conj()).unbind(-1), strict=True
        ):
            target = f"{spec.target}.{name}"
            constants[target] = part.contiguous()
            with program.graph.inserting_before(node):
                parts.append(program.graph.placeholder(target.replace(".", "_")))
            with value_of(node).fake_mode:
                parts[-1].meta["val"] = torch.empty(part.shape, dtype=part.dtype)
            specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(parts[-1].name), target))
        node.replace_all_uses_with(emit(first, aten.complex.default, *parts))
        program.graph.erase_node(node)
    return ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=signature_of(ExportGraphSignature(specs, program.graph_signature.output_specs), program.graph),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=constants,
        verifiers=program.verifiers,
    )


def _is_complex(node: Any) -> bool:
    value = value_of(node)
    return isinstance(node, fx.Node) and isinstance(value, Tensor) and value.is_complex()
