"""Joint graphs of a loss and its gradients, which torch makes of an exported program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.experimental import _export_forward_backward
from torch.export.graph_signature import ExportGraphSignature, InputKind, OutputKind, OutputSpec

from fx_importer.errors import ExportError, UsageError
from fx_importer.frontend.assumptions.decided_sizes import gather_at_numbers
from fx_importer.frontend.torch_patches import warnings_filtered
from fx_importer.fx_graph.aliasing import writes_of
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import storage_key, with_graph, with_rewritten_graphs
from fx_importer.symbolic.guards import environment_of


def with_gradients(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with the gradients of its first result as further results.

    They are those of the parameters, and of the inputs that require gradients, which the result depends on, as
    ``backward`` gives them. A parameter without a gradient has no result. Other results do not contribute.

    Raises:
        UsageError: if the program has gradients already, its first result is not a tensor of one element that
            requires gradients, or it has a parameter as a constant.
        ExportError: if torch cannot trace the gradients.
    """
    if any(spec.kind is OutputKind.LOSS_OUTPUT for spec in program.graph_signature.output_specs):
        raise UsageError("gradients=True computes the gradients of a loss, and this program computes them already")
    _check_constants(program)
    program = with_rewritten_graphs(program, _prepare)
    try:
        differentiated = _keep_differentiated(program)
        numbers = _without_numbers(program)
        program = with_graph(program, program.graph, program.graph_signature, root=program.graph_module)
        with warnings_filtered("ignore", ".*treespec", FutureWarning):  # torch's own
            joint = _export_forward_backward(program)
    except UsageError:
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise ExportError(f"torch traces no gradients of this program: {type(error).__name__}: {text}") from error
    return _with_results(joint, differentiated, numbers)


def _check_constants(program: ExportedProgram) -> None:
    """Raise UsageError if a constant is a parameter: torch.export does not record whether it was detached."""
    weights = {storage_key(tensor): name for name, tensor in program.state_dict.items() if tensor.requires_grad}
    for name, constant in program.constants.items():
        if not isinstance(constant, torch.Tensor) or constant.layout is not torch.strided:
            continue
        if (parameter := weights.get(storage_key(constant))) is not None:
            raise UsageError(
                f"gradients=True would lose the gradient of the parameter '{parameter}': the model also reads it from "
                f"a Python attribute, such as a cache, which torch.export records as the constant '{name}'. Read the "
                "parameter itself, or empty the cache before"
            )


def _prepare(graph: fx.Graph, _: fx.GraphModule) -> None:
    _remove_copies_to_themselves(graph)
    gather_at_numbers(graph)


def _remove_copies_to_themselves(graph: fx.Graph) -> None:
    """Remove the copies of tensors to themselves that torch.export makes of ``self.steps += 1``, in place.

    Autograd would take the copy for a change of the steps that the loss was computed with.
    """
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        written, source = node.args[:2]
        while isinstance(source, fx.Node) and (writes := list(writes_of(source))) and writes[0][0] is source.args[0]:
            source = source.args[0]
        if source is written and not node.users:
            graph.erase_node(node)


def _keep_differentiated(program: ExportedProgram) -> list[str]:
    """Detach all results but the loss, and the inputs of the graph that have no gradient, in place.

    Return the names of the other inputs.
    """
    inputs = program.graph.find_nodes(op="placeholder")
    values = [value_of(node) for node in inputs]
    kinds = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    environment = environment_of(program)
    unrelated = environment.ignore_fresh_unbacked_symbols() if environment is not None else nullcontext()
    with detect_fake_mode(values) or nullcontext(), torch.enable_grad(), unrelated:
        results = fx.Interpreter(program.graph_module).run(*values)
        _check_results(results)
        wanted = [
            at
            for at, (node, value) in enumerate(zip(inputs, values, strict=True))
            if isinstance(value, torch.Tensor) and value.requires_grad and kinds[node.name] in _DIFFERENTIATED
        ]
        gradients = torch.autograd.grad(results[0], [values[at] for at in wanted], allow_unused=True)
    kept = {at for at, gradient in zip(wanted, gradients, strict=True) if gradient is not None}
    for at, (node, value) in enumerate(zip(inputs, values, strict=True)):
        if at not in kept and isinstance(value, torch.Tensor) and value.requires_grad:
            node.meta["val"] = value.detach()
    output = program.graph.output_node()
    returned: Any = output.args[0]
    detached = (
        emit(output, aten.detach.default, node) if isinstance(value, torch.Tensor) and value.requires_grad else node
        for node, value in zip(returned[1:], results[1:], strict=True)
    )
    output.args = ((returned[0], *detached),)
    return [node.name for at, node in enumerate(inputs) if at in kept]


_SIZES = torch.SymInt | torch.SymFloat | torch.SymBool
_DIFFERENTIATED = (InputKind.PARAMETER, InputKind.USER_INPUT)


def _check_results(results: Sequence[Any]) -> None:
    loss = results[0] if results else None
    if any(isinstance(result, _SIZES) for result in results):
        raise UsageError("gradients=True takes a model whose results are tensors, and a result is a dynamic size")
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        return
    if isinstance(loss, torch.Tensor):
        independent = "" if loss.requires_grad else " that depends on no parameter or input that requires gradients"
        returned = f"is of shape {list(loss.shape)}{independent}"
    else:
        returned = f"is {loss!r}" if results else "is missing"
    raise UsageError(
        "gradients=True computes the gradients of the model's first result, a loss: a tensor of one element that "
        f"depends on parameters, or on inputs that require gradients. The first result {returned}. Wrap the model in "
        "a module that returns the loss first"
    )


def _without_numbers(program: ExportedProgram) -> dict[int, tuple[Any, OutputSpec]]:
    """Remove the results of ``program`` that are not tensors, in place, and return them by their position."""
    output = program.graph.output_node()
    returned: Any = output.args[0]
    specs = program.graph_signature.output_specs
    pairs = dict(enumerate(zip(returned, specs, strict=True)))
    numbers = {at: pair for at, pair in pairs.items() if not isinstance(pair[0], fx.Node)}
    output.args = (tuple(pair[0] for at, pair in pairs.items() if at not in numbers),)
    kept = [pair[1] for at, pair in pairs.items() if at not in numbers]
    program._graph_signature = ExportGraphSignature(program.graph_signature.input_specs, kept)
    return numbers


def _with_results(
    joint: ExportedProgram, differentiated: Sequence[str], numbers: dict[int, tuple[Any, OutputSpec]]
) -> ExportedProgram:
    """Name the gradients of inputs after these, which torch does not, and insert ``numbers`` among the results."""
    output = joint.graph.output_node()
    returned: Any = output.args[0]
    specs = list(joint.graph_signature.output_specs)
    gradients = [at for at, spec in enumerate(specs) if spec.kind in _GRADIENTS]
    for at, name in zip(gradients, differentiated, strict=True):
        if specs[at].kind is OutputKind.GRADIENT_TO_USER_INPUT:
            specs[at] = replace(specs[at], target=name)
    pairs = list(zip(returned, specs, strict=True))
    start = next(at for at, spec in enumerate(specs) if spec.kind is OutputKind.LOSS_OUTPUT)
    for at, pair in sorted(numbers.items()):
        pairs.insert(start + at, pair)
    output.args = (tuple(result for result, _ in pairs),)
    joint.graph_module.recompile()
    joint._graph_signature = replace(joint.graph_signature, output_specs=[spec for _, spec in pairs])
    return joint


_GRADIENTS = (OutputKind.GRADIENT_TO_PARAMETER, OutputKind.GRADIENT_TO_USER_INPUT)
