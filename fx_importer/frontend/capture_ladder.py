"""The ways to capture a model, in the order in which they are tried."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch

from fx_importer.frontend.torch_patches import (
    ARGUMENT_CHECKS,
    ASSERT_REWRITE,
    EXPORT_PRINT,
    GUARD_LOG,
    META_LOG,
    NUMBER_LOG,
    SUBMODULE,
    UNUSED_CONSTANT,
    patched,
)
from fx_importer.options import Capture, ExportOptions

_TORCH_LOG = logging.getLogger("torch.fx.experimental.symbolic_shapes")
_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")
_NUMBER_LOG = logging.getLogger("torch.utils._sympy.interp")
_OF_VALUES = (
    *("data-dependent", "datadependent", "dynamic shape operator", "dynamic_shape_operator"),
    *("pending unbacked symbols", "but got faketensor", "but got symfloat"),  # a tensor, or a number of one, as a size
    *("unhashable type: non-nested symint", "faketensor(..., size=()"),  # in a name, such as f"expert_{index}"
)


@dataclass(frozen=True)
class Rung:
    """A way to capture a model."""

    strict: bool
    """Whether torch.export traces through Python bytecode."""
    assumes: bool = False
    """Whether questions about values of tensors are answered with the example inputs."""
    assumes_integers: bool = False
    """Whether integers that Python reads from tensors (``item``, ``tolist``) are the example's, and not symbols."""
    drops_asserts: bool = True
    """Whether torch.export may drop an ``assert`` of the model's code that depends on values, or refuses it."""
    below_autograd: bool = False
    """Whether operators are recorded below autograd, with the gradients that the model's code computes."""
    checks_sizes: bool = False
    """Whether the program asserts what was asked of dynamic sizes, where their ranges do not imply it."""

    def __str__(self) -> str:
        below = " below autograd" if self.below_autograd else ""
        if self.assumes:
            integers = ", and on the integers that Python reads" if self.assumes_integers else ""
            return f"torch.export{below} under assumptions on the values of the example inputs{integers}"
        checks = " with checks of sizes" if self.checks_sizes else ""
        return f"torch.export{below or f'(strict={self.strict})'}{checks}"


ASSUMED_INTEGERS = Rung(False, assumes=True, assumes_integers=True)


def rungs(options: ExportOptions, dynamic: bool = True) -> Iterator[Rung]:
    """Yield the ways that ``options`` allow. Graphs with Python between them are `fx_importer.import_function`'s.

    With the other ``strict``, numbers that are read as sizes stay dynamic; ``dynamic`` is whether the output type has
    sizes that depend on values. Otherwise they are assumed to be the example's. It does not drop an assert
    that the first ``strict`` refused: under assumptions, the program checks it. A recording below autograd lacks
    composite operators, and is the last way, for models that compute gradients.

    The integers that Python reads are assumed last: other ways assume less of them, such as that one is positive.
    """
    yield Rung(options.strict)
    yield Rung(options.strict, checks_sizes=True)
    others = [Rung(not options.strict, drops_asserts=False)] if options.capture is Capture.AUTO else []
    assumed = [] if options.capture is Capture.EXPORT else [Rung(False, assumes=True), ASSUMED_INTEGERS]
    yield from (*others, *assumed) if dynamic else (*assumed, *others)
    yield from (replace(rung, below_autograd=True) for rung in (Rung(False), *assumed))


def depends_on_values(error: Exception) -> bool:
    """Return whether torch.export refused a model because of the value of a tensor."""
    text = f"{type(error).__name__}: {error}".lower()
    return any(word in text for word in _OF_VALUES)


def torch_repaired(rung: Rung) -> AbstractContextManager[None]:
    """Repair torch for ``rung``, and keep it from printing what it refuses: errors have it, or another way works."""
    filters = [*_TORCH_LOG.filters, lambda record: record.levelno != logging.WARNING]
    unused = UNUSED_CONSTANT.resolved().read()
    return patched(
        {
            **({} if rung.drops_asserts else {ASSERT_REWRITE: False}),
            ARGUMENT_CHECKS: ARGUMENT_CHECKS.resolved().read(),
            EXPORT_PRINT: lambda *args, **kwargs: None,
            GUARD_LOG.on(_TORCH_LOG): filters,
            META_LOG.on(_FAKE_LOG): [*_FAKE_LOG.filters, lambda record: record.levelno != logging.ERROR],
            NUMBER_LOG.on(_NUMBER_LOG): [*_NUMBER_LOG.filters, lambda record: record.levelno != logging.WARNING],
            SUBMODULE: _submodule,
            UNUSED_CONSTANT: lambda node: unused(node) if node.users else [node],
        }
    )


def _submodule(accessor: Any, name: str) -> torch.nn.Module:
    """Return the submodule ``name`` of the module of ``accessor``; methods of modules do not hide it."""
    module = accessor.module
    for part in name.split(".") if name else ():
        module = module._modules.get(part) or getattr(module, part)
    return module
