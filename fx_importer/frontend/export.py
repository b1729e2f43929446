"""Calls of torch.export, with errors that say what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.proxy import TraceError

from fx_importer.errors import UsageError
from fx_importer.frontend.aliased_inputs import check_aliased_mutations, without_aliases
from fx_importer.frontend.assumptions.assumed_values import with_assumptions, without_check
from fx_importer.frontend.assumptions.result_sizes import has_read_sizes
from fx_importer.frontend.assumptions.value_questions import ValueQuestions
from fx_importer.frontend.capture_ladder import ASSUMED_INTEGERS, Rung, rungs, torch_repaired
from fx_importer.frontend.deferred_code import code_deferred, with_code
from fx_importer.frontend.dynamic_dimensions import with_dimensions
from fx_importer.frontend.eager_comparison import EagerModel, cannot_compare, check_assumptions
from fx_importer.frontend.example_inputs import check_quantized, quantized_state_error, without_quantized_state
from fx_importer.frontend.export_errors import ExportFailure
from fx_importer.frontend.fake_weights import on_fake_cpu
from fx_importer.frontend.flex_attention_check import check_flex_attention
from fx_importer.frontend.gradients.below_autograd import check_gradients, export_below_autograd
from fx_importer.frontend.gradients.joint_graphs import with_gradients
from fx_importer.frontend.module_conversions import conversions_traced
from fx_importer.frontend.mutated_attributes import attributes_as_buffers
from fx_importer.frontend.python_functions import PythonFunctions
from fx_importer.frontend.recurrent_states import (
    check_recurrent_casts,
    check_recurrent_states,
    recurrent_states_of_eager,
)
from fx_importer.frontend.repeated_modules.traced_once import exported_once
from fx_importer.frontend.scan_check import check_scans
from fx_importer.frontend.size_conditions import SizeConditions
from fx_importer.frontend.small_sizes import guard_small_sizes
from fx_importer.frontend.stack_traces import frames_of_calls_kept
from fx_importer.frontend.torch_patches import tracing, warnings_filtered, without_collections
from fx_importer.frontend.training_mode import warn_of_seeding, warn_of_training_mode
from fx_importer.frontend.undo_writes import attributes_restored
from fx_importer.fx_graph.host_programs import on_host
from fx_importer.fx_graph.triton_runtime import traceable_kernels
from fx_importer.options import Capture, ExportOptions
from fx_importer.symbolic.guards import environment_of, restore_guards


@tracing()
@without_collections()
def export_program(
    f: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: ExportOptions,
    dynamic: bool = True,
    remark: Callable[[str], None] = lambda remark: None,
) -> ExportedProgram:
    """Export a module or a function; an ExportedProgram is not exported again.

    ``dynamic`` is whether the output type has sizes that depend on values, see `rungs`. ``remark`` is told which
    modules were traced once for several that are equal, and why others were not.

    Raises:
        UnsupportedProgramError: if the program mutates memory that is shared by inputs or state, or torch.export
            recorded wrong shapes.
        UsageError: if ``f`` is none of these, a tensor has a quantized dtype, a dynamic dimension has no valid name, or
            the first result has no gradients.
        ExportError: if torch.export cannot capture it; torch's own exception is the cause.
    """
    if isinstance(f, ExportedProgram):
        restore_guards(f)
    asked = SizeConditions()
    if isinstance(f, ExportedProgram):
        program = f
    else:
        program, asked = _captured(f, args, kwargs, options, dynamic, remark)
    program = on_host(program)
    if asked.deferred and (environment := environment_of(program)) is not None:
        environment.guards += asked.deferred
    differs = EagerModel(_as_module(f), args, kwargs).differs if asked.lines else cannot_compare
    guard_small_sizes(program, asked, differs)
    program = attributes_as_buffers(program)
    check_aliased_mutations(program, args, kwargs)
    check_recurrent_states(program)
    check_recurrent_casts(program)
    if not isinstance(f, ExportedProgram):
        check_flex_attention(program, _as_module(f), args, kwargs)
        check_scans(program.graph_module)
    return with_gradients(program) if options.gradients else program


def _captured(
    f: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: ExportOptions,
    dynamic: bool,
    remark: Callable[[str], None],
) -> tuple[ExportedProgram, SizeConditions]:
    """Return the program of ``f``, captured by the first of `rungs` that can, and what it asks of sizes."""
    if not callable(f):
        raise UsageError(f"expected an nn.Module, a function or an ExportedProgram, not {type(f).__name__}")
    module = _as_module(f)
    check_quantized(args, kwargs)
    failure: ExportFailure | None = None
    captured: tuple[ExportedProgram, SizeConditions] | None = None
    for rung in rungs(options, dynamic):
        if captured is not None and rung != ASSUMED_INTEGERS:
            continue
        if failure is not None and not failure.is_worth(rung):
            continue
        asked = SizeConditions()
        try:
            export = partial(_exported_by, rung, module, args, kwargs, options, asked, remark)
            program = without_quantized_state(module, export)
        except (Warning, UsageError):  # of a filter that makes warnings errors, such as pytest's; or of our checks
            raise
        except Exception as error:
            failure = failure or ExportFailure(module, args, kwargs, options.dynamic_shapes, asked, rung, error)
            if not rung.checks_sizes:  # it refuses what the first one does
                failure.tried[rung] = error
            continue
        captured = program, asked
        if dynamic or options.capture is Capture.EXPORT or not has_read_sizes(program):
            break
    if captured is not None:
        if isinstance(f, torch.nn.Module) and f.training:
            warn_of_training_mode(captured[0], type(f).__name__)
        return captured
    assert failure is not None
    if (quantized := quantized_state_error(module)) is not None:
        raise quantized from failure.cause
    name = type(f).__name__ if isinstance(f, torch.nn.Module) else getattr(f, "__name__", "the function")
    raise failure.error(name) from failure.cause


def _exported_by(
    rung: Rung,
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: ExportOptions,
    asked: SizeConditions,
    remark: Callable[[str], None],
) -> ExportedProgram:
    """Return the program that torch.export captures on ``rung``. Raises what torch.export raises."""
    shapes = with_dimensions(options.dynamic_shapes)
    if isinstance(module, FunctionModule):
        shapes = module.shapes_of(shapes)
    questions = ValueQuestions()
    with (
        torch_repaired(rung),
        warnings_filtered("ignore", r"The \.grad attribute of a Tensor that is not a leaf"),  # torch itself reads it
        conversions_traced(),
        traceable_kernels(),
        frames_of_calls_kept(),
        asked.recorded(rung.checks_sizes),
        recurrent_states_of_eager(),
        attributes_restored(module),
        questions.answered(rung.assumes_integers) if rung.assumes else nullcontext(),
        nullcontext() if rung.strict else code_deferred(),
        nullcontext() if rung.strict else PythonFunctions(),
        on_fake_cpu(module, *without_aliases(args, kwargs, module)) as (inputs, keywords, restored),
    ):
        seed = torch.initial_seed()
        try:
            once = options.reuse_traces and rung == Rung(strict=False)
            capture = export_below_autograd if rung.below_autograd else torch.export.export
            checks = {"prefer_deferred_runtime_asserts_over_guards": True} if rung.checks_sizes else {}
            export = partial(capture, module, inputs, keywords, dynamic_shapes=shapes, strict=rung.strict, **checks)
            program = exported_once(module, export, remark) if once else export()
        except (TypeError, TraceError) as error:  # of a number that torch cannot compute in a graph
            raise (without_check(rounded) if (rounded := questions.rounded()) else error) from error
        name = "the function" if isinstance(module, FunctionModule) else type(module).__name__
        warn_of_seeding(program, name, seed)
        check_gradients(program)
        program = with_assumptions(restored(program), questions)
        check_assumptions(program, inputs, keywords)
    return program if rung.strict else with_code(program)


def _as_module(f: Callable[..., Any]) -> torch.nn.Module:
    return f if isinstance(f, torch.nn.Module) else FunctionModule(f)


class FunctionModule(torch.nn.Module):
    """A function as a module, which torch.export requires, with the function's parameters."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.has_signature = True
        try:
            inspect.signature(function)
        except ValueError:  # of a builtin
            self.has_signature = False
            self.forward = lambda *args: function(*args)
        else:
            self.forward = function

    def shapes_of(self, dynamic_shapes: Any) -> Any:
        """Return the function's ``dynamic_shapes`` for `forward`."""
        nested = not self.has_signature and isinstance(dynamic_shapes, tuple | list)
        return (tuple(dynamic_shapes),) if nested else dynamic_shapes
