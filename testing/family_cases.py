"""Export a model of `testing.families` once, lower it to an output type, run it, and compare it with eager."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fx_importer import FxImporterError, StageFailed, UnsupportedProgramError, lower
from fx_importer.engines import backend_named
from testing.families import FAMILIES
from testing.op_cases import differences

BACKENDS = {"linalg-on-tensors": ("jit",), "tosa": ("jit", "tosa_reference"), "stablehlo": ("xla",)}
"""Backends of each output type, in order of preference: MLIR's passes from TOSA lack some operations."""

Outcome = dict[str, str]


class Exported:
    """A model, eager's results, and the exported program."""

    def __init__(self, name: str):
        self.not_lowered: Outcome | None = None
        """The outcome if there is nothing to lower."""
        with torch.no_grad():
            self.model, self.args, self.kwargs = FAMILIES[name].build()
            self.expected = self.model(*_copied(self.args), **_copied(self.kwargs))
            if differences(self.model(*_copied(self.args), **_copied(self.kwargs)), self.expected):
                self.not_lowered = _outcome("skip", "random")
                return
            try:
                self.program = torch.export.export(self.model, self.args, self.kwargs)
            except Exception as error:
                self.not_lowered = _outcome("export", _line(error))

    def lowered(self, output_type: str) -> Outcome:
        """Lower the program, run it, and compare all of its results."""
        if self.not_lowered is not None:
            return self.not_lowered
        try:
            lowered = lower(self.program, output_type=output_type, mutation="functional")
        except UnsupportedProgramError as error:
            return _outcome("import", "; ".join(each.reason for each in error.unsupported_nodes))
        except StageFailed as error:
            reasons = [each.message for each in error.diagnostics] or [_line(error)]
            return _outcome("contract" if error.stage == "contract" else "lower", "; ".join(dict.fromkeys(reasons)))
        except Exception as error:
            return _outcome("lower", f"{type(error).__name__}: {_line(error)}")
        reason = ""
        for name in BACKENDS[output_type]:
            try:
                results = lowered.caller(backend=backend_named(name))(*_copied(self.args), **_copied(self.kwargs))
            except FxImporterError as error:
                reason = " ".join(str(error).split())
                continue
            found = differences(results, self.expected)
            if found and not differences(results, self.exact()):
                return _outcome("pass", f"of eager's results: {found}", f"{name}, as float64")
            return _outcome("mismatch" if found else "pass", found, name)
        return _outcome("run", reason)

    def exact(self) -> Any:
        """Return eager's results of the inputs in float64, rounded to the dtypes of the float32 results.

        They decide which side is wrong if the two differ: a float32 norm of a single element, for example, is
        dominated by rounding errors.
        """
        with torch.no_grad():
            wide = copy.deepcopy(self.model).double()
            results = wide(*_copied(self.args, torch.float64), **_copied(self.kwargs, torch.float64))
        leaves, spec = pytree.tree_flatten(self.expected)
        found = zip(pytree.tree_leaves(results), leaves, strict=True)
        rounded = [each.to(like.dtype) if isinstance(like, torch.Tensor) else each for each, like in found]
        return pytree.tree_unflatten(rounded, spec)


def _copied(inputs: Any, floats: torch.dtype | None = None) -> Any:
    def copied(each: torch.Tensor) -> torch.Tensor:
        return each.to(floats if floats and each.is_floating_point() else each.dtype, copy=True)

    return pytree.tree_map_only(torch.Tensor, copied, inputs)


def _outcome(status: str, reason: str = "", backend: str = "") -> Outcome:
    return {"status": status, "reason": reason[:600], "backend": backend}


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
