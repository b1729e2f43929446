"""Names of inputs and outputs that users give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fx_importer.errors import UsageError
from fx_importer.manifest import Argument, Function, Result

Named = TypeVar("Named", Argument, Result)


def with_names(function: Function, inputs: Sequence[str], outputs: Sequence[str]) -> Function:
    """Return ``function`` with these names of its inputs and outputs; an empty sequence leaves them as they are.

    Results that are new values of inputs have the names of these.

    Raises:
        UsageError: if there are not as many names as inputs or outputs, if names occur twice or are empty, or if the
            program returns gradients, which are named by placeholders.
    """
    if inputs:
        if any(result.kind == "gradient" for result in function.results):
            raise UsageError("input_names does not name the inputs of a program that returns gradients")
        passed = [argument for argument in function.arguments if argument.kind == "input"]
        _check("input_names", inputs, passed)
        names = {argument.leaf: name for argument, name in zip(passed, inputs, strict=True)}
        function = replace(
            function,
            arguments=tuple(
                replace(_named(argument, names), placeholder=argument.name) if argument.kind == "input" else argument
                for argument in function.arguments
            ),
            results=tuple(_named(result, names) if result.kind == "input" else result for result in function.results),
        )
    if outputs:
        returned = [result for result in function.results if result.kind == "output"]
        _check("output_names", outputs, returned)
        names = {result.leaf: name for result, name in zip(returned, outputs, strict=True)}
        results = (_named(result, names) if result.kind == "output" else result for result in function.results)
        function = replace(function, results=tuple(results))
    return function


def _named(argument: Named, names: Mapping[int | None, str]) -> Named:
    return replace(argument, name=names.get(argument.leaf, argument.name))


def _check(keyword: str, names: Sequence[str], values: Sequence[Argument] | Sequence[Result]) -> None:
    what = keyword.split("_")[0]
    if len(names) != len(values):
        there = ", ".join(value.name for value in values) or "none"
        raise UsageError(f"{keyword} names {len(names)} {what}s, but the function has {len(values)}: {there}")
    if wrong := [repr(name) for name, count in Counter(names).items() if count > 1 or not name]:
        raise UsageError(f"{keyword} has names that are empty or occur twice: {', '.join(wrong)}")
