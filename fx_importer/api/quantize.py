"""`quantize`: a float model quantized for integer hardware, over torchao's PT2E."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NoReturn

import torch
from torch.export import ExportedProgram

from fx_importer.errors import NotInstalledError, UsageError
from fx_importer.frontend.example_inputs import check_inputs
from fx_importer.frontend.export import export_program
from fx_importer.options import ExportOptions
from fx_importer.quantization.post_training.calibration import Call, calls_of, check_like_first
from fx_importer.quantization.post_training.checks import check_calls, check_changed, check_float
from fx_importer.quantization.post_training.pt2e import ACTIVATIONS, OBSERVERS, quantized


def quantize(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any],
    calibration: Iterable[Any],
    *,
    integer_io: bool = False,
    observer: str = "histogram",
    activations: str = "int8",
    keep_float: Collection[str] = (),
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> torch.fx.GraphModule:
    """Quantize a float model: activations in int8 with one scale, weights in int8 with a scale per output channel.

    Args:
        f: the model, a plain function, or an exported program. It does not change.
        calibration: representative inputs, from which the scales of activations come: each a tensor, a tuple of
            arguments, a dict of keyword arguments, or an `Inputs`, which has both. The model is exported with the
            first.
        integer_io: let inputs and results that are quantized be int8, so that no operator in floating point is left
            around an integer model; their scales and zero points are in ``meta["input_scales"]`` and
            ``meta["result_scales"]``, by position, None for those that are not quantized.
        observer: ``"histogram"``, which chooses the range with the least error, or ``"minmax"``, the whole range.
        activations: ``"int8"``, or ``"int16"``: symmetric, with products of 48 bits, for models whose activations have
            a larger range than int8 can hold; or ``"mixed"``: int16 for sums, norms, and their operands, as the
            residual stream of a transformer is, and between the products of an MLP; int8 for the rest.
        keep_float: names of modules, or of values of the exported program, that stay in floating point: those that
            `accuracy` lists as worst.
        dynamic_shapes: as `torch.export.export` takes it.
        strict: as `torch.export.export` takes it.

    Returns:
        A module of quantize and dequantize operators around operators in floating point: the program that
        ``lower(..., quantized="integer")`` computes in integers.

    Raises:
        NotInstalledError: without torchao.
        UsageError: for calibration inputs that are missing or empty, differ from the first or from the exported sizes,
            or lead to values that are not finite; for a quantized model or one in half precision; and for a name in
            ``keep_float`` that the model does not have.
        ExportError: if torch.export cannot capture ``f``.
    """
    check_torchao()
    if observer not in OBSERVERS:
        raise UsageError(f"observer is {' or '.join(map(repr, OBSERVERS))}, and not {observer!r}")
    if activations not in ACTIVATIONS:
        raise UsageError(f"activations is {', '.join(map(repr, ACTIVATIONS))}, and not {activations!r}")
    calls = calls_of(calibration)
    program = exported(f, calls, ExportOptions(dynamic_shapes=dynamic_shapes, strict=strict))
    check_float(program)
    check_calls(program, calls)
    losses: list[str] = []
    result = quantized(program, calls, observer, integer_io, keep_float, activations, losses.append)
    check_changed(result, losses)
    type(result).__reduce_ex__ = _not_pickled  # each graph module has a class of its own
    return result


def _not_pickled(_module: torch.fx.GraphModule, _protocol: object) -> NoReturn:
    """Raise `UsageError`, for pickle and `torch.save`, which cannot restore a program of torch.export."""
    raise UsageError(
        "a quantized program is not pickled: torch.export.save(torch.export.export(quantized, inputs), 'q.pt2') writes "
        "it, and torch.export.load reads it"
    )


def check_torchao() -> None:
    """Raise `NotInstalledError` without torchao."""
    if importlib.util.find_spec("torchao") is None:
        raise NotInstalledError("quantize", "torchao", "quantize")


def exported(
    f: torch.nn.Module | ExportedProgram | Callable[..., Any], calls: Sequence[Call], options: ExportOptions
) -> ExportedProgram:
    """Return ``f`` exported with the first of ``calls``, which must be alike. Raises `UsageError` and `ExportError`."""
    check_like_first(calls, dynamic=options.dynamic_shapes is not None or isinstance(f, ExportedProgram))
    args, kwargs = calls[0]
    if not isinstance(f, ExportedProgram):
        check_inputs(f, args, kwargs, options=())
    return export_program(f, args, kwargs, options)
