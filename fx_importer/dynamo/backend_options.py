"""The ``options`` of `torch.compile` for this backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fx_importer.api.keywords import KEYWORDS
from fx_importer.errors import UsageError
from fx_importer.execution import Backend, backend_named
from fx_importer.output_types import OutputType
from fx_importer.targets import target_for

_NOT_HERE = frozenset(
    (
        *("output_type", "dynamic_shapes", "fx_importer", "hooks", "strict", "kwargs", "options"),
        "func_name",
        *("mutation", "experimental_support_mutation", "import_symbolic_shape_expressions", "weights"),
    )
)
"""Options of `lower` about the export, state and weights, which TorchDynamo and AOTAutograd determine here."""

LOWERING = frozenset(KEYWORDS) - _NOT_HERE
"""Options of `lower` that also apply to graphs."""


@dataclass(frozen=True)
class Settings:
    """The compile options of a graph.

    Raises `UsageError` for invalid values.
    """

    output_type: OutputType = OutputType.LINALG_ON_TENSORS
    execution: str | Backend | None = None
    """The backend that runs the module: a name in `BACKENDS`, ``"eager"``, or a user-defined backend. None is the
    default of the output type."""
    dynamic_shapes: bool = True
    """Whether a graph with symbolic sizes becomes one function for all of them. Otherwise each set of sizes is compiled
    to a function on its first call."""
    cache: bool = True
    """Whether graphs already compiled with the same options, for any model, are reused."""
    lowering: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of `lower`."""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> Settings:
        """Return the settings of `torch.compile`'s options. Raise `UsageError` for an option that is not accepted."""
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
    def falls_back(self) -> bool:
        """Whether operators that the output type does not support run in eager PyTorch."""
        return "unsupported" not in self.lowering

    @property
    def key(self) -> tuple[Any, ...]:
        """A key equal for settings that compile alike. It is valid while the settings are alive."""
        lowering = sorted((name, _hashable(value)) for name, value in self.lowering.items())
        return (self.output_type, _hashable(self.execution), self.dynamic_shapes, *lowering)


def _check_runs(execution: Any, output_type: OutputType) -> None:
    target = target_for(output_type)
    runs = (*target.backends, "eager")
    text = ", ".join(map(repr, runs))
    if execution is None:
        if target.default_backend is None:
            raise UsageError(
                f"nothing runs {output_type.value} by itself: pass the option 'execution', which for it may be {text}"
            )
    elif isinstance(execution, str):
        if execution != "eager":
            backend_named(execution)
        if execution not in runs:
            raise UsageError(f"'{execution}' does not run {output_type.value}: option 'execution' may be {text}")
    elif not callable(getattr(execution, "load", None)):
        raise UsageError(f"option 'execution' is {text}, or a backend of your own, which has `load`; not {execution!r}")


def _hashable(value: Any) -> Any:
    """Return a hashable key for ``value``: the value itself, or its identity."""
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value if isinstance(value, str | int | float | None) else (type(value).__name__, id(value))
