"""What `torch.compile` is told in its ``options``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fx_importer.api.keywords import KEYWORDS
from fx_importer.errors import UsageError
from fx_importer.execution import DEFAULTS, Backend, backend_named, backends_for
from fx_importer.output_types import OutputType
from fx_importer.targets import target_for

_NOT_HERE = frozenset(
    (
        *("output_type", "dynamic_shapes", "fx_importer", "hooks", "strict", "kwargs", "options"),
        "func_name",
        *("mutation", "experimental_support_mutation", "import_symbolic_shape_expressions", "weights"),
    )
)
"""Options of `lower` that say how a model is exported, or what becomes of its state and weights: TorchDynamo and
AOTAutograd see to these."""

LOWERING = frozenset(KEYWORDS) - _NOT_HERE
"""Options of `lower` that hold for a graph too."""


@dataclass(frozen=True)
class Settings:
    """How graphs are compiled.

    Raises `UsageError` for what cannot be.
    """

    output_type: OutputType = OutputType.LINALG_ON_TENSORS
    execution: str | Backend | None = None
    """What runs the module: a name, of `BACKENDS` or ``"eager"``, or a backend of one's own; None is the output
    type's."""
    dynamic_shapes: bool = True
    """Whether a graph of symbolic sizes becomes one function for all of them. Otherwise there is a function for each
    set of sizes that is met, compiled when it is."""
    cache: bool = True
    """Whether a graph that has been compiled with the same options, for whichever model, is not compiled again."""
    lowering: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of `lower`."""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Settings:
        """Read the options of `torch.compile`; raises `UsageError` for one that is not accepted."""
        given = {} if options is None else options
        if not isinstance(given, Mapping):
            raise UsageError(f"options is a dictionary of options by name, not {given!r}")
        own = ("output_type", "execution", "dynamic_shapes", "cache")
        if unknown := [name for name in given if name not in (*own, *LOWERING)]:
            raise UsageError(
                f"backend 'fx_importer' has no option {', '.join(map(repr, unknown))}: accepted are "
                f"{', '.join(map(repr, own))}, and of those of `fx_importer.lower` "
                f"{', '.join(map(repr, sorted(LOWERING)))}"
            )
        output_type = OutputType.get(given.get("output_type", cls.output_type))
        dynamic = given.get("dynamic_shapes", target_for(output_type).dynamic_shapes)
        cache = given.get("cache", True)
        for name, value in (("dynamic_shapes", dynamic), ("cache", cache)):
            if not isinstance(value, bool):
                raise UsageError(f"option '{name}' is True or False, not {value!r}")
        execution = given.get("execution")
        _check_runs(execution, output_type)
        lowering = {name: value for name, value in given.items() if name in LOWERING}
        return cls(output_type, execution, dynamic, cache, lowering)

    @property
    def key(self) -> tuple[Any, ...]:
        """What two settings that compile alike have in common. It holds while the settings live."""
        lowering = sorted((name, _hashable(value)) for name, value in self.lowering.items())
        return (self.output_type, _hashable(self.execution), self.dynamic_shapes, *lowering)


def _check_runs(execution: Any, output_type: OutputType) -> None:
    runs = (*backends_for(output_type), "eager")
    said = f"{', '.join(map(repr, runs))}"
    if execution is None:
        if output_type.root not in DEFAULTS:
            raise UsageError(
                f"nothing runs {output_type.value} by itself: pass the option 'execution', which for it may be {said}"
            )
    elif isinstance(execution, str):
        if execution != "eager":
            backend_named(execution)
        if execution not in runs:
            raise UsageError(f"'{execution}' does not run {output_type.value}: option 'execution' may be {said}")
    elif not callable(getattr(execution, "load", None)):
        raise UsageError(f"option 'execution' is {said}, or a backend of your own, which has `load`; not {execution!r}")


def _hashable(value: Any) -> Any:
    """Return what stands for ``value`` in a key: itself, or that it is this object."""
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value if isinstance(value, str | int | float | None) else (type(value).__name__, id(value))
