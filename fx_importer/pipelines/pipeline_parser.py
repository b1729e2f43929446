"""Parser of pipelines in MLIR's syntax, with the rewrites in Python by their names."""

from __future__ import annotations

import copyreg
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

from fx_importer.diagnostics.trace import IMPORTED_FUNCTION, LOCAL_FUNCTION
from fx_importer.errors import UsageError
from fx_importer.pipelines.contracts import CHECKS, parse_user_contract_check
from fx_importer.pipelines.python_passes import imported_step
from fx_importer.pipelines.stage import Nested, Pass, RewriteStep, Step
from fx_importer.pipelines.tosa_contract import CHECK, WARN
from fx_importer.rewrites import REWRITE_FAMILIES, REWRITES


def parse_steps(text: str) -> tuple[Step, ...]:
    """Return the steps of ``builtin.module(...)``: rewrites in Python by name; passes of MLIR for MLIR to parse.

    Raises:
        UsageError: if ``text`` is not of this form.
    """
    anchor, _, rest = text.strip().partition("(")
    if anchor.strip() != "builtin.module" or not rest.endswith(")"):
        raise UsageError(f"not a pass pipeline: {text!r} (one reads 'builtin.module(...)')")
    return tuple(_step(part.strip()) for part in split_at_commas(rest[:-1]))


_PYTHON_STEPS = {**REWRITES, **{step.name: step for step in (*CHECKS.values(), CHECK, WARN)}}
_NEST = re.compile(r"([\w.\-]+)\s*\((.*)\)", re.DOTALL)


def _step(text: str) -> Step:
    if text.startswith(IMPORTED_FUNCTION):
        return imported_step(text.removeprefix(IMPORTED_FUNCTION).removesuffix("}"))
    if text.startswith(LOCAL_FUNCTION):
        name = text.removeprefix(LOCAL_FUNCTION).removesuffix("}")
        raise UsageError(
            f"a pipeline calls the Python function '{name}' of another process, which no text can hold: define it at "
            "the top of a module that can be imported"
        )
    return _python_step(text) or _pass(text)


def _python_step(text: str) -> RewriteStep | None:
    """Return the rewrite or check of this package with the text ``text``; None if it is another step."""
    if (step := _PYTHON_STEPS.get(text) or parse_user_contract_check(text)) is not None:
        return step
    name, _, options = text.removesuffix("}").partition("{")
    if (family := REWRITE_FAMILIES.get(name.strip())) is None:
        return None
    try:
        return family.parse(options)
    except ValueError as error:
        raise UsageError(f"not a pass pipeline: {text!r}: {error}") from None


def is_known(step: RewriteStep) -> bool:
    """Whether `parse_steps` returns ``step`` for its name, also in another process."""
    return step.name.startswith(IMPORTED_FUNCTION) or _python_step(step.name) is not None


def _pickled(step: RewriteStep) -> tuple[Callable[..., RewriteStep], tuple[Any, ...]]:
    """Return how pickle restores ``step``: by its name, which `parse_steps` reads, or from its function.

    Raises:
        UsageError: for a function that another process cannot import.
    """
    if is_known(step):
        return _restored, (step.name,)
    try:
        pickle.dumps(step.run)
    except (pickle.PicklingError, AttributeError, TypeError):
        name = step.name.removeprefix(LOCAL_FUNCTION).removesuffix("}")
        raise UsageError(
            f"the pass '{name}' cannot be pickled: it is a Python function that no other process can import; define it "
            "at the top of a module"
        ) from None
    return RewriteStep, (step.name, step.run)


def _restored(name: str) -> RewriteStep:
    (step,) = parse_steps(f"builtin.module({name})")
    assert isinstance(step, RewriteStep)
    return step


copyreg.pickle(RewriteStep, _pickled)


def foreign_steps(text: str) -> list[str]:
    """Return the steps of a pipeline that may run other code or open files, without importing what they name.

    These are functions of Python, and passes of MLIR that are neither conversions nor rewrites of the dialects here, or
    that have an option for a file or another pipeline: for example ``gpu-module-to-binary`` starts programs, and
    ``snapshot-op-locations`` writes files.

    Raises:
        UsageError: if ``text`` is not a pipeline.
    """
    anchor, _, rest = text.strip().partition("(")
    if anchor.strip() != "builtin.module" or not rest.endswith(")"):
        raise UsageError(f"not a pass pipeline: {text!r} (one reads 'builtin.module(...)')")
    return list(_foreign(rest[:-1]))


def _foreign(steps: str) -> Iterator[str]:
    for step in map(str.strip, split_at_commas(steps)):
        if step.startswith(IMPORTED_FUNCTION):
            yield step.removeprefix(IMPORTED_FUNCTION).removesuffix("}")
        elif not step or step.startswith(LOCAL_FUNCTION) or _python_step(step):
            pass
        elif nest := _NEST.fullmatch(step):
            yield from _foreign(nest[2])
        elif not (_FAMILIAR.match(step) and _PASS.fullmatch(step)) or _FILE_OPTION.search(step):
            yield step


_PASS = re.compile(r"[\w.\-]+(\{[^{}()]*\})?")
"""What MLIR, too, reads as one pass."""
_FAMILIAR = re.compile(
    r"(affine|arith|buffer|canonicalize|chlo|convert|cse|eliminate|empty-tensor|expand|finalize|fold|func|inline|linalg|"
    r"lower|math|memref|one-shot|ownership|reconcile|refback|remove|resolve|sccp|scf|shape|stablehlo|strip|symbol-dce|tensor|"
    r"tm-tensor|torch|torchdynamo|tosa|vector)\b"
)
_FILE_OPTION = re.compile(r"\b(\w+-)*(library|librar\w+|file|filename|path|paths|dir|directory|pipeline|pipelines)=")


def _pass(text: str) -> Pass | Nested:
    nest = _NEST.fullmatch(text)
    return Nested(nest[1], tuple(_pass(part.strip()) for part in split_at_commas(nest[2]))) if nest else Pass(text)


def split_at_commas(text: str) -> Iterator[str]:
    """Yield the parts of ``text`` between commas that are not in parentheses or braces."""
    depth = start = 0
    for position, character in enumerate(text):
        depth += (character in "({") - (character in ")}")
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]
