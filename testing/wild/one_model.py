"""One wild model, in a process of its own: ``python -m testing.wild.one_model NAME`` prints the result as JSON."""

from __future__ import annotations

import json
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from fx_importer import ExportError, lower
from fx_importer.dynamo import import_function
from fx_importer.verification.comparison import compare
from testing.wild.models import MODELS

MEMORY_BYTES = 12 * 2**30
OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")


def result_of(name: str) -> dict[str, str]:
    """Return what became of the model: whether it is built and captured, and lowers to each output type."""
    (row,) = (each for each in MODELS if each.name == name)
    torch.manual_seed(0)
    scope: dict[str, Any] = {"torch": torch, "nn": nn}
    try:
        exec(row.build, scope)  # of our own table
        model, inputs, kwargs = scope["model"].eval(), scope["inputs"], scope.get("kwargs", {})
        with torch.no_grad():
            expected = _leaves(model(*inputs, **kwargs))
    except Exception as error:  # of the package
        return {"built": _line(error)}
    result = {"built": "yes"}
    for output_type in OUTPUT_TYPES:
        try:
            lowered = lower(model, *inputs, kwargs=kwargs, output_type=output_type)
        except ExportError as error:
            result["captured"] = _line(error)
            result["functions"] = _functions(model, inputs, kwargs)
            return result
        except Exception as error:
            result[output_type] = _line(error)
            continue
        function = lowered.manifest.functions["main"]
        result["captured"] = f"{len(function.assumptions)} assumptions" if function.assumptions else "yes"
        result[output_type] = "lowers"
        if output_type == OUTPUT_TYPES[0]:
            result[output_type] = _numbers(lambda lowered=lowered: lowered.run(*inputs, **kwargs), expected)
    if row.dynamic:
        result["dynamic batch"] = _dynamic(model, inputs, kwargs)
    return result


def _numbers(run: Callable[[], Any], expected: list[Any]) -> str:
    try:
        wrong = [compare(one, other) for one, other in zip(_leaves(run()), expected, strict=True)]
    except Exception as error:
        return f"stops: {_line(error)}"
    wrong = [each for each in wrong if not each.passed]
    return f"WRONG: {wrong[0]}" if wrong else "equals eager"


def _functions(model: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return what `import_function` makes of a model that torch.export rejects."""
    try:
        options = {"output_type": OUTPUT_TYPES[0], "mutation": "functional", "kwargs": kwargs}
        imported = import_function(model, *inputs, **options)
        verdict = "equal eager" if imported.lowered and imported.verify() else "not verified"
        return f"{len(imported.captured)} functions, {len(imported.breaks)} breaks, {verdict}"
    except Exception as error:
        return _line(error)


def _dynamic(model: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    shapes = tuple({0: torch.export.Dim.AUTO} if each.dim() else None for each in inputs)
    try:
        lower(model, *inputs, kwargs=kwargs, output_type=OUTPUT_TYPES[0], dynamic_shapes=shapes)
    except Exception as error:
        return _line(error)
    return "lowers"


def _leaves(tree: Any) -> list[Any]:
    leaves = pytree.tree_leaves(tree)
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no text').splitlines()[0][:200]}"


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("ignore")
    print(json.dumps(result_of(sys.argv[1])))
