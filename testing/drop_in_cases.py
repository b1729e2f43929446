"""The text of one program by `fx_importer.fx` and by `torch_mlir.fx`: answers of a worker process."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch_mlir import fx as peer

from fx_importer import fx as ours
from fx_importer.errors import FxImporterError
from testing.drop_in_programs import programs
from testing.op_cases import Exported, ExportedDynamic, distinct_calls, dtype_for, operators

OUTPUT_TYPES = ("raw", "torch")
KINDS: dict[str, type[Exported]] = {"static": Exported, "dynamic": ExportedDynamic}

Lowering = Callable[..., Any]


class Texts:
    """Answers requests with a row for each program and output type."""

    def __init__(self, note: Callable[[str], None]):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)
        self._note = note

    def __call__(self, request: tuple[str, str, int]) -> list[dict[str, str]]:
        return rows_of(*request, self._note) or [{"sample": "-", "output_type": "-", "outcome": "skip", "reason": ""}]


def rows_of(kind: str, name: str, samples: int, note: Callable[[str], None]) -> list[dict[str, str]]:
    """Return a row for each sample and output type. ``note`` is told the side and the output type before each."""
    note("export -")
    return [
        {"sample": str(sample), "output_type": output_type, **_row(f, args, keywords, output_type, note)}
        for sample, (f, args, keywords) in _programs(kind, name, samples)
        for output_type in OUTPUT_TYPES
    ]


def _row(
    f: Any, args: tuple[Any, ...], keywords: dict[str, Any], output_type: str, note: Callable[[str], None]
) -> dict[str, str]:
    texts: dict[str, str] = {}
    errors: dict[str, Exception] = {}
    sides: dict[str, Lowering] = {"torch-mlir": peer.export_and_import, "ours": ours.export_and_import}
    for name, lower in sides.items():
        note(f"{name} {output_type}")
        model = copy.deepcopy(f) if isinstance(f, torch.nn.Module) else f
        try:
            texts[name] = str(lower(model, *args, output_type=output_type, **keywords))
        except Exception as error:
            errors[name] = error
    return outcome(texts, errors)


def outcome(texts: dict[str, str], errors: dict[str, Exception]) -> dict[str, str]:
    """Compare the texts, or errors, of both sides."""
    reasons = {name: f"{type(error).__name__}: {' '.join(str(error).split())[:200]}" for name, error in errors.items()}
    if len(texts) == 2:
        same = texts["ours"] == texts["torch-mlir"]
        return {"outcome": "same" if same else "differs", "reason": "" if same else _first_difference(**_lines(texts))}
    if "ours" in texts:
        return {"outcome": "refused by torch-mlir", "reason": reasons["torch-mlir"]}
    if "torch-mlir" in texts:
        return {"outcome": "refused by us", "reason": reasons["ours"]}
    typed = isinstance(errors["ours"], FxImporterError)
    return {"outcome": "refused by both" if typed else "untyped", "reason": " | ".join(reasons.values())}


def _lines(texts: dict[str, str]) -> dict[str, list[str]]:
    return {name.replace("-", "_"): text.splitlines() for name, text in texts.items()}


def _first_difference(ours: list[str], torch_mlir: list[str]) -> str:
    pairs = zip([*ours, ""], [*torch_mlir, ""], strict=False)
    return next((f"{a.strip()} | {b.strip()}" for a, b in pairs if a != b), f"{len(ours)} | {len(torch_mlir)} lines")


def _programs(kind: str, name: str, samples: int) -> Iterator[tuple[int, tuple[Any, tuple[Any, ...], dict[str, Any]]]]:
    if kind == "programs":
        torch.manual_seed(0)
        yield 0, programs()[name]()
        return
    operator = operators()[name]
    dtype = dtype_for(operator)
    if dtype is None:
        return
    exported = type(kind, (KINDS[kind],), {"pick": staticmethod(distinct_calls)})(name, dtype, samples)
    symbols = {"import_symbolic_shape_expressions": True} if kind == "dynamic" else {}
    for number, _, program, _, _ in exported.ready:
        assert isinstance(program, ExportedProgram)
        yield number, (program, (), symbols)
