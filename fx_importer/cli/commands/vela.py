"""``fx-importer vela``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils._pytree import tree_flatten, tree_unflatten

from fx_importer.api.lower import lower
from fx_importer.api.quantize import quantize
from fx_importer.cli.commands.import_model import export_model
from fx_importer.cli.commands.matrix import read_inputs
from fx_importer.cli.following import Following
from fx_importer.cli.json_output import json_output
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.engines.vela.vela import (
    ARRAYS,
    Estimate,
    RefusedError,
    Scales,
    check_accelerator,
    compile_with_vela,
    has_resize,
    tensor_scales,
)
from fx_importer.errors import UsageError
from fx_importer.mlir.output_files import check_writable
from fx_importer.options import Options
from fx_importer.output_types import OutputType
from fx_importer.quantization import WITHOUT_RESIZE
from fx_importer.quantization.post_training.integer_io import channels_last_inputs, integers_outside
from fx_importer.quantization.qdq import is_quantized
from fx_importer.results.lowered import Lowered
from fx_importer.verification import Inputs

_STRATEGIES = ("Performance", "Size")
_SHOWN = 12
"""Operators in floating point that an error lists."""


def compile_model(
    model: str,
    accelerators: Sequence[str],
    output: Path | None,
    inputs: Path | None,
    options: tuple[str, ...] = (),
    json_file: Path | None = None,
    following: Following = Following(),  # noqa: B008 - it is frozen
    trust: bool = False,
    activations: str = "int8",
    nhwc: bool = False,
) -> None:
    """Compile the model that ``model`` names for ``accelerators``, and print Vela's estimates.

    A float model is quantized, with the input sets in the file ``inputs`` or its example inputs. ``options`` are more
    arguments of Vela's command. With ``nhwc``, inputs of rank 4 have channels last.

    Raises:
        UsageError: for an unknown accelerator, operators that have no integer form, and those that Vela refuses.
        NotInstalledError: without Vela, ``tosa-tools`` or, for a float model, torchao.
    """
    for name in accelerators:
        check_accelerator(name)
    if output is not None:
        check_writable(output, (".tflite", ARRAYS))
        if len(accelerators) > 1:
            raise UsageError("--output is for one accelerator: what Vela writes for another differs")
    with json_output(json_file) as write:
        estimates = _estimates(model, accelerators, output, inputs, options, following, trust, activations, nhwc)
        echo("\n\n".join(map(str, estimates)))
        write(json.dumps([asdict(estimate) for estimate in estimates], indent=1) + "\n")


def check_vela_options(config: Path | None, optimise: str | None) -> None:
    """Raise `UsageError` for a configuration file that does not exist, and an unknown strategy."""
    if config is not None and not config.is_file():
        raise UsageError(f"--config: there is no file '{config}'; without it, Vela uses its own configurations")
    if optimise is not None and optimise not in _STRATEGIES:
        raise UsageError(f"--optimise: Vela has no strategy '{optimise}': {' and '.join(_STRATEGIES)} are accepted")


def _estimates(
    model: str,
    accelerators: Sequence[str],
    output: Path | None,
    inputs: Path | None,
    options: tuple[str, ...],
    following: Following,
    trust: bool,
    activations: str,
    nhwc: bool,
) -> list[Estimate]:
    """Compile the model for each of ``accelerators``, as `compile_model` does, and return Vela's estimates."""
    with following.run(model, OutputType.TOSA.value) as followed, reporting_progress(True):
        program = export_model(model, Options(OutputType.TOSA), trust)
        quantized = quantized_call(program, inputs, activations, nhwc)
        scales = (quantized[0].meta["input_scales"], quantized[0].meta["result_scales"])
        lowered: dict[bool, Lowered] = {}
        estimates: list[Estimate] = []
        for name in accelerators:
            resizes = has_resize(name)
            if resizes not in lowered:
                lowered[resizes] = followed.lowered = lower_to_integers(quantized, resizes)
            estimates.append(_compile(lowered[resizes], name, output, options, scales))
    return estimates


def _compile(
    lowered: Lowered, accelerator: str, output: Path | None, options: tuple[str, ...], scales: tuple[Scales, Scales]
) -> Estimate:
    """Compile the model for the NPU, and what that does not run as C for the processor next to it."""
    floats = floating_operators(lowered)
    reason = _listed("Ethos-U computes in integers, but these stay in floating point:", floats)
    if not floats:
        try:
            return compile_with_vela(lowered.module, accelerator, output, options, scales)
        except RefusedError as error:
            reason = str(error)
    if output is not None and output.suffix != ARRAYS:
        raise UsageError(f"{reason}\nThe file '{output.with_suffix(ARRAYS)}' would have them as C for the processor")
    from fx_importer.native.divided_program import divide_program
    from fx_importer.native.divided_source import write_divided

    program = divide_program(lowered.module, accelerator, options, floats)
    if output is not None:
        write_divided(lowered, program, output, scales)
    return replace(program.estimate, inputs=tensor_scales(scales[0]), outputs=tensor_scales(scales[1]))


def quantized_call(
    program: ExportedProgram, inputs: Path | None = None, activations: str = "int8", nhwc: bool = False
) -> tuple[torch.fx.GraphModule, Inputs]:
    """Return ``program``, quantized if it is not yet, with integer inputs and results, and its example inputs.

    With ``nhwc``, inputs of rank 4 have channels last.

    Raises:
        UsageError: if nothing of it can be quantized.
    """
    args, kwargs = program.example_inputs or ((), {})
    if is_quantized(program.graph):
        module = integers_outside(program.module(check_guards=False))
    else:
        calls = read_inputs(inputs) if inputs else [Inputs(args, kwargs)]
        module = quantize(program, calls, integer_io=True, activations=activations)
    if not is_quantized(module.graph):
        raise UsageError("Ethos-U computes in integers, and no operator of the model has an integer form")
    scales = module.meta["input_scales"]
    leaves, structure = tree_flatten((args, kwargs))
    tensors = [_quantized(*leaf) for leaf in zip(leaves, scales, module.meta["input_dtypes"], strict=True)]
    if nhwc:
        images = [isinstance(tensor, Tensor) and tensor.ndim == 4 for tensor in tensors]
        channels_last_inputs(module, images)
        tensors = [t.permute(0, 2, 3, 1).contiguous() if image else t for t, image in zip(tensors, images, strict=True)]
    return module, Inputs(*tree_unflatten(tensors, structure))


def lower_to_integers(quantized: tuple[torch.fx.GraphModule, Inputs], resizes: bool = True) -> Lowered:
    """Lower the result of `quantized_call` to TOSA; without ``resizes``, ``tosa.resize`` is left where it must be."""
    module, inputs = quantized
    return lower(
        module,
        *inputs.args,
        kwargs=dict(inputs.kwargs),
        output_type="tosa",
        quantized="integer",
        narrow_integers=True,
        tosa_target="version=1.0 extensions=int16",
        lowerings=() if resizes else WITHOUT_RESIZE,
    )


def _listed(head: str, lines: Sequence[str]) -> str:
    rest = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n  ".join([head, *lines[:_SHOWN], *rest])


def floating_operators(lowered: Lowered) -> list[str]:
    """Return the operators that have no integer form, with the reasons."""
    remarks = lowered.trace.stages[0].remarks
    return [remark.removeprefix("float: ") for remark in remarks if remark.startswith("float: ")]


def _quantized(value: Any, scale: tuple[float, int] | None, dtype: torch.dtype | None) -> Any:
    if scale is None or dtype is None or not isinstance(value, Tensor):
        return value
    ends = torch.iinfo(dtype)
    return (value / scale[0] + scale[1]).round().clamp(ends.min, ends.max).to(dtype)
