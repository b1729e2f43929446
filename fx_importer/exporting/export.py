"""`torch.export` behind sentences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from fx_importer.errors import ExportError, UsageError
from fx_importer.exporting.aliased_inputs import check_writes, separate
from fx_importer.exporting.example_inputs import check_quantized
from fx_importer.exporting.fake_weights import on_the_cpu, with_meta_weights
from fx_importer.exporting.mutated_attributes import attributes_as_buffers
from fx_importer.exporting.stack_traces import lines_of_calls
from fx_importer.exporting.undo_writes import writes_undone
from fx_importer.options import ExportOptions


def export_program(f: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: ExportOptions) -> ExportedProgram:
    """Export a module or a function; an ExportedProgram is returned as it is.

    Raises:
        UnsupportedProgramError: if the program writes to memory that two of its inputs, or its state, share.
        UsageError: if ``f`` is none of these, or a tensor has a quantized dtype.
        ExportError: if torch.export cannot capture it; torch's own exception is the cause.
    """
    program = with_meta_weights(f if isinstance(f, ExportedProgram) else _captured(f, args, kwargs, options))
    program = attributes_as_buffers(program)
    check_writes(program, args, kwargs)
    return program


def _captured(f: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: ExportOptions) -> ExportedProgram:
    if not callable(f):
        raise UsageError(f"expected an nn.Module, a function or an ExportedProgram, not {type(f).__name__}")
    module = f if isinstance(f, torch.nn.Module) else FunctionModule(f)
    check_quantized(module, args, kwargs)
    example = separate(args, kwargs, module)
    try:
        with lines_of_calls(), writes_undone(module), on_the_cpu(module, *example) as (inputs, keywords, restored):
            shapes, strict = options.dynamic_shapes, options.strict
            if isinstance(module, FunctionModule):
                shapes = module.shapes_of(shapes)
            return restored(torch.export.export(module, inputs, keywords, dynamic_shapes=shapes, strict=strict))
    except Exception as error:
        name = type(f).__name__ if isinstance(f, torch.nn.Module) else getattr(f, "__name__", "the function")
        raise ExportError(
            f"torch.export cannot capture {name} (strict={options.strict}): {type(error).__name__}: "
            f"{str(error).strip()}\n"
            f"To see everything that stands in the way, run torch.export.draft_export with the same arguments; "
            f"strict={not options.strict} takes another way through the Python code."
        ) from error


class FunctionModule(torch.nn.Module):
    """A plain function as a module, which is what torch.export takes; it keeps the function's own parameters."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.says_what_it_takes = True
        try:
            inspect.signature(function)
        except ValueError:  # a builtin does not
            self.says_what_it_takes = False
            self.forward = lambda *args: function(*args)
        else:
            self.forward = function

    def shapes_of(self, dynamic_shapes: Any) -> Any:
        """Return ``dynamic_shapes`` of the function as those of `forward`."""
        nested = not self.says_what_it_takes and isinstance(dynamic_shapes, tuple | list)
        return (tuple(dynamic_shapes),) if nested else dynamic_shapes
