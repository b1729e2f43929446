"""Errors of torch.export: the refused operation, its line in the model, and accepted forms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from fx_importer.errors import ExportError
from fx_importer.frontend.capture_ladder import Rung, depends_on_values
from fx_importer.frontend.dynamic_dimensions import InputSize, name_of, with_dimensions
from fx_importer.frontend.example_inputs import state_of
from fx_importer.frontend.export_changes import ExportChange
from fx_importer.frontend.gradients.below_autograd import loses_gradients
from fx_importer.frontend.python_functions import WITH_DYNAMIC_SIZES
from fx_importer.frontend.size_conditions import FixedSize, SizeConditions
from fx_importer.frontend.user_calls import UserCall, call_that_raised, frames_of

_NOISE = re.compile(
    r"For (more|extended|C\+\+)|If you suspect the guard was triggered from C|The error above occurred"
    r"|consider using data-dependent friendly APIs|Suggested fixes:$|  \w+ = |Caused by: "
)
"""Lines of torch's messages that are about torch's own debugging."""

_LOGS = re.compile(r" For more information, run with TORCH_LOGS=.*")
_FIXED = re.compile(r"  - You marked (.+) as dynamic but your code specialized it to be a constant")
_USER_STACK = re.compile(r"\n\nUser stack:(\n  (?!- ).*)*")
_NARROW_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64)


class ExportFailure:
    """A failed call of torch.export, with the model and its inputs."""

    def __init__(
        self,
        module: torch.nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        dynamic_shapes: Any,
        asked: SizeConditions,
        rung: Rung,
        cause: Exception,
    ):
        self._rung, self.cause = rung, cause
        self.tried: dict[Rung, Exception] = {}
        """What else was tried, and what torch raised."""
        self._args, self._kwargs, self._shapes = tuple(args), dict(kwargs), dynamic_shapes
        self._devices = {str(tensor.device) for tensor in state_of(module).values()}
        try:
            self._parameters = list(inspect.signature(module.forward).parameters)
        except ValueError:  # of a builtin
            self._parameters = []
        self._leaves, self._structure = pytree.tree_flatten_with_path((self._args, self._kwargs))
        self._fixed = {
            self._located(size): fixed for name, fixed in asked.fixed.items() if (size := InputSize.of(name))
        }

    def is_worth(self, rung: Rung) -> bool:
        """Return whether ``rung`` may capture the model: sizes that become numbers stay an error on all of them."""
        if rung.below_autograd:
            return any(map(loses_gradients, self.tried.values()))
        text = str(self.cause)
        if _FIXED.search(InputSize.described(text)):
            return False
        if rung.checks_sizes or self._is_of_ranges():
            return rung.checks_sizes and self._is_of_ranges()
        return depends_on_values(self.cause)

    def _is_of_ranges(self) -> bool:
        """Return whether the model does not take all sizes that the dynamic shapes allow."""
        return getattr(getattr(self.cause, "error_type", None), "name", "") == "CONSTRAINT_VIOLATION"

    def error(self, name: str) -> ExportError:
        """Return the error for what torch.export raised for the model ``name``, with `changes` to try."""
        strict, error = self._rung.strict, self.cause
        violated = {size: fixed for size, fixed in self._fixed.items() if self._is_dynamic(size)}
        text = InputSize.described(str(error))
        start = f"torch.export cannot capture {name} (strict={strict}): "
        if violated and _FIXED.search(text):
            return self._of_fixed_sizes(start, text, violated)
        call = call_that_raised(error)
        kept = (_LOGS.sub("", line) for line in text.splitlines() if line.strip() and not _NOISE.match(line))
        text = "\n".join(kept).strip()
        lines = [f"{start}{type(error).__name__}: {text}"]
        if call.place and f'"{call.file}", line {call.line}' not in text:
            lines.append(f"    {call.place}")
        lines += [hint for advice in _HINTS if (hint := advice(error, call))]
        if "on the same device" in text:
            return _made([*lines, self._of_devices()], call, ())
        if (ours := next((tried for tried in self.tried.values() if isinstance(tried, ExportError)), None)) is not None:
            others = [_failed(rung, tried) for rung, tried in self.tried.items() if tried is not ours]
            return _made([f"{name} cannot be captured: {ours}", *others], call, ())
        lines += [_failed(rung, tried) for rung, tried in self.tried.items() if rung is not self._rung]
        if len(self.tried) == 1 and not self._is_of_ranges():
            lines.append(
                f"To see everything that stands in the way, run torch.export.draft_export with the same arguments; "
                f"strict={not strict} takes another way through the Python code."
            )
        changes = () if "data-dependent" in text.lower() else (*self._with_narrower_ranges(), *self._with_long_inputs())
        return _made(lines, call, changes)

    def _of_devices(self) -> str:
        inputs = {str(leaf.device) for _, leaf in self._leaves if isinstance(leaf, torch.Tensor)}
        on = {"the model": " and ".join(sorted(self._devices)), "its inputs": " and ".join(sorted(inputs))}
        where = ", ".join(f"{what} on {devices}" for what, devices in on.items() if devices)
        if len(self._devices | inputs) > 1:
            return f"There are tensors on two devices: {where}. Move both to one, `model.to(device)`, `x.to(device)`"
        return f"The line has a tensor on another device ({where}): make it there, with `device=x.device`"

    def _is_dynamic(self, size: InputSize) -> bool:
        dimension = size.dimension(self._shapes, self._parameters)
        return not (dimension in (None, torch.export.Dim.AUTO, torch.export.Dim.STATIC) or isinstance(dimension, int))

    def _of_fixed_sizes(self, start: str, text: str, violated: Mapping[InputSize, FixedSize]) -> ExportError:
        count = "1 dynamic size" if len(violated) == 1 else f"{len(violated)} dynamic sizes"
        lines = [f"{start}{count} became a number while it was traced:"]
        names, shapes = [], self._shapes
        for size, fixed in violated.items():
            name = name_of(size.dimension(self._shapes, self._parameters))
            names.append(f"'{name}'" if name else str(size))
            shapes = size.made_static(shapes, self._parameters)
            by = f", in {function}" if (function := _function(fixed.call)) else ""
            lines.append(f"  {f'{name} ({size})' if name else size} is {fixed.value}{by}")
            lines += [f"    {fixed.call.place}"] if fixed.call.place else []
        lines += dict.fromkeys(map(_advice_for, violated.values()))
        text = _USER_STACK.sub("", text)
        rest = (line for line in text.splitlines()[1:] if not _NOISE.match(line) and not _FIXED.match(line))
        lines += [line for line in rest if line.strip()]
        listed = ", ".join(dict.fromkeys(names))
        change = ExportChange(f"dynamic_shapes with Dim.STATIC for {listed}", self._args, self._kwargs, shapes)
        return _made(lines, next(iter(violated.values())).call, (change,))

    def _with_narrower_ranges(self) -> Iterator[ExportChange]:
        """Yield the dimensions that torch suggests instead of those that the model does not take."""
        _, _, suggested = str(self.cause).partition("\nSuggested fixes:\n")
        fixes = [line.strip() for line in suggested.partition("\n\n")[0].splitlines()]
        if not fixes:
            return
        try:
            text = "Suggested fixes:\n" + "\n".join(fixes)
            shapes = refine_dynamic_shapes_from_suggested_fixes(text, with_dimensions(self._shapes))
        except Exception:  # it takes named dimensions only
            return
        yield ExportChange(f"dynamic_shapes with {', '.join(fixes)}", self._args, self._kwargs, shapes)

    def _with_long_inputs(self) -> Iterator[ExportChange]:
        """Yield the inputs with one tensor of a narrow integer dtype as int64, and with all of them."""
        leaves = self._leaves
        narrow = [n for n, (_, leaf) in enumerate(leaves) if getattr(leaf, "dtype", None) in _NARROW_INTEGERS]
        for changed in dict.fromkeys([*((n,) for n in narrow), tuple(narrow)]) if narrow else ():
            values = [leaf.long() if n in changed else leaf for n, (_, leaf) in enumerate(leaves)]
            args, kwargs = pytree.tree_unflatten(values, self._structure)
            names = [self._name(leaves[n][0]) for n in changed]
            dtypes = dict.fromkeys(str(leaves[n][1].dtype) for n in changed)
            text = f"{', '.join(f'{name}.long()' for name in names)}: int64 instead of {', '.join(dtypes)}"
            yield ExportChange(text, args, kwargs, self._shapes)

    def _name(self, path: tuple[Any, ...]) -> str:
        parameter, *keys = self._keys(path)
        return f"{parameter}{''.join(f'[{key!r}]' for key in keys)}"

    def _keys(self, path: tuple[Any, ...]) -> tuple[str | int, ...]:
        """Return the parameter and the keys of the input at ``path`` in the arguments and keyword arguments."""
        keys: list[Any]
        position, *keys = (getattr(key, "idx", getattr(key, "key", getattr(key, "name", ""))) for key in path)
        if position == 0 and self._parameters:
            keys[0] = self._parameters[min(keys[0], len(self._parameters) - 1)]
        return tuple(keys)

    def _located(self, size: InputSize) -> InputSize:
        """Return ``size`` with its parameter: with strict=True, torch counts the tensors of all inputs."""
        match size.path:
            case ("flat_args", int(number)):
                return InputSize(self._keys(self._leaves[number][0]), size.axis)
        return size


def _failed(rung: Rung, error: Exception) -> str:
    return f"{rung} fails too, {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _made(lines: Sequence[str], call: UserCall, changes: Sequence[ExportChange]) -> ExportError:
    error = ExportError("\n".join(lines), f"{call.file}:{call.line}" if call.file else "")
    error.changes = tuple(changes)
    return error


def _function(call: UserCall) -> str:
    """Return the function of torch that fixes a size; with strict=True the line has its name."""
    return call.function or next((name for name in WITH_DYNAMIC_SIZES if f"{name}(" in call.place), "")


def _advice_for(fixed: FixedSize) -> str:
    function = _function(fixed.call)
    if function in WITH_DYNAMIC_SIZES:
        return f"{function} takes sizes as numbers only. For a dynamic size n, write {WITH_DYNAMIC_SIZES[function]}"
    return (
        "The line takes the size as a number (int(), range(), a branch on it, a function that has no dynamic sizes), "
        "or combines it with a constant size. torch.arange, torch.full, slices and views have dynamic sizes"
    )


def _one_hot_hint(error: Exception, call: UserCall) -> str:
    if call.function != "one_hot":
        return ""
    return "one_hot without num_classes reads the number of classes from the values: pass num_classes."


def _packed_hint(error: Exception, call: UserCall) -> str:
    """Return a line about packed sequences, if the model has them."""
    frames = list(frames_of(error))
    in_torch = any(frame.f_code.co_filename.endswith("torch/nn/utils/rnn.py") for frame in frames)
    if not in_torch and not any(isinstance(v, PackedSequence) for frame in frames for v in frame.f_locals.values()):
        return ""
    return (
        "A packed sequence has sizes that depend on the values of its lengths, which torch.export cannot trace: pass "
        "the padded batch to the layer, and select what is valid from its results, with a mask of the lengths "
        "(torch.arange(n) < lengths[:, None]) or gather."
    )


def _dtype_hint(error: Exception, call: UserCall) -> str:
    """Return a line about the dtype of indices, if that is what ``error`` is about."""
    if not re.search(r"index|target|scalar type Long|int64", str(error)) or not re.search(
        r"dtype|scalar type", str(error)
    ):
        return ""
    return (
        f"{call.function or 'The operator'} takes int64 for indices and classes when it is exported, also where eager "
        "PyTorch takes uint8: convert them with .long()."
    )


def _number_hint(error: Exception, call: UserCall) -> str:
    """Return a line about a size that Python reads from a tensor as a number, if that is what ``error`` is about."""
    if "specialized integer from data-dependent" not in str(error) or call.function == "one_hot":
        return ""
    return (
        "The line needs the value of a tensor as a number (int(), range(), a function that takes only numbers): read "
        "it with .item(), which slices, views and torch.zeros take as a size."
    )


def _data_dependent_hint(error: Exception, call: UserCall) -> str:
    """Return a line about control flow that depends on values, if that is what ``error`` is about; else nothing."""
    if "data-dependent" not in str(error).lower() or call.function == "one_hot":
        return ""
    return (
        "A branch or a size in it depends on values of tensors: write the branch with torch.cond "
        "(docs/control-flow.md), or lower the graphs between such places with fx_importer.dynamo.import_function "
        "(docs/torch-compile.md). Where the values have limits that the code relies on, state them with torch._check."
    )


def _kernel_hint(error: Exception, call: UserCall) -> str:
    """Return a line about a Triton kernel that is launched in a branch, if that is what ``error`` is about."""
    if "triton_kernel_wrapper_mutation" not in str(error):
        return ""
    return (
        "A Triton kernel is launched in a branch or a loop, where export loses what it writes: launch it in an "
        "operator defined with torch.library.triton_op."
    )


_HINTS: tuple[Callable[[Exception, UserCall], str], ...] = (
    *(_one_hot_hint, _packed_hint, _dtype_hint, _number_hint),
    *(_data_dependent_hint, _kernel_hint),
)
