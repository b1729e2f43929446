"""The ``options`` of `torch.compile` for this backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_importer.calls.backend import Backend
from fx_importer.engines import BackendOptions, engine_named, engine_of, engines_for
from fx_importer.engines.device_names import CPU, engine_on, platform_of
from fx_importer.engines.engine_table import DEFAULT_ENGINE, program_engines
from fx_importer.errors import UsageError
from fx_importer.options import KEYWORDS
from fx_importer.output_types import OutputType
from fx_importer.targets import EXECUTABLE, target_for

_NOT_HERE = frozenset(
    (
        *("output_type", "dynamic_shapes", "fx_importer", "hooks", "strict", "capture", "kwargs", "options"),
        *("func_name", "input_names", "output_names", "reuse_traces", "gradients"),
        *("mutation", "experimental_support_mutation", "import_symbolic_shape_expressions", "weights"),
    )
)
"""Options of `lower` about the export, state and weights, which TorchDynamo and AOTAutograd determine here."""

LOWERING = frozenset(KEYWORDS) - _NOT_HERE
"""Options of `lower` that also apply to graphs."""


_OWN = ("engine", "output_type", "dynamic_shapes", "cache")
_MODES = (None, "default", "max-autotune")


@dataclass(frozen=True)
class GraphOptions:
    """The compile options of a graph.

    Raises `UsageError` for invalid values.
    """

    engine: str | Backend = DEFAULT_ENGINE
    """What runs the module: the name of an engine, or a user-defined backend."""
    output_type: OutputType = OutputType.LINALG_ON_TENSORS
    dynamic_shapes: bool = True
    """Whether a graph with symbolic sizes becomes one function for all of them. Otherwise each set of sizes is compiled
    to a function on its first call."""
    cache: bool = True
    """Whether graphs already compiled with the same options, for any model, are reused."""
    autotune: bool = False
    """Whether the first call of a graph tries other engines, and keeps the fastest."""
    lowering: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of `lower`."""
    device: str = CPU
    """The device of the tensors, as `Lowered.caller` takes it."""
    passed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options as they were passed."""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, mode: str | None = None, device: str = CPU) -> GraphOptions:
        """Return the settings of `torch.compile`'s options and mode, for graphs of ``device``.

        Raises `UsageError` for an invalid one, and if no engine runs on the device.
        """
        if mode not in _MODES:
            raise UsageError(
                f"mode={mode!r} is Inductor's: backend 'fx_importer' accepts 'default', and 'max-autotune', which "
                "tries engines on the first call and keeps the fastest"
            )
        settings = {} if options is None else options
        if not isinstance(settings, Mapping):
            raise UsageError(f"options is a dictionary of options by name, not {settings!r}")
        if unknown := [name for name in settings if name not in (*_OWN, *LOWERING)]:
            raise UsageError(
                f"backend 'fx_importer' has no option {', '.join(map(repr, unknown))}: accepted are "
                f"{', '.join(map(repr, _OWN))}, and of those of `fx_importer.lower` "
                f"{', '.join(map(repr, sorted(LOWERING)))}"
            )
        engine = settings.get("engine")
        if device != CPU:
            engine = _engine_on(device, settings)
        output_type = OutputType.get(settings.get("output_type", output_type_for(engine)))
        dynamic = settings.get("dynamic_shapes", target_for(output_type).dynamic_shapes)
        cache = settings.get("cache", True)
        for name, value in (("dynamic_shapes", dynamic), ("cache", cache)):
            if not isinstance(value, bool):
                raise UsageError(f"option '{name}' is True or False, not {value!r}")
        _check_runs(engine, output_type)
        # Results equal eager PyTorch; integers may differ by a step.
        lowering = {"quantized": "float"} | {name: value for name, value in settings.items() if name in LOWERING}
        autotune = mode == "max-autotune"
        return cls(engine or DEFAULT_ENGINE, output_type, dynamic, cache, autotune, lowering, device, settings)

    def on(self, device: torch.device) -> GraphOptions:
        """Return the settings for graphs of ``device``. Raise `UsageError` if no engine runs there."""
        if (name := platform_of(device)) == self.device:
            return self
        return GraphOptions.of(self.passed, "max-autotune" if self.autotune else None, name)

    @property
    def calls_python(self) -> bool:
        """Whether the engine calls the operators that modules declare, or is one of the user, which may do so."""
        engine = engine_of(self.engine)
        return engine is None or engine.runs_stubs or engine.runs_programs

    @property
    def falls_back(self) -> bool:
        """Whether operators that the output type does not support run in eager PyTorch."""
        return "unsupported" not in self.lowering

    @property
    def key(self) -> tuple[Any, ...]:
        """A key equal for settings that compile alike. It is valid while the settings are alive."""
        lowering = sorted((name, _hashable(value)) for name, value in self.lowering.items())
        products: Any = torch.backends  # its stubs lack the settings of convolutions
        precision = (products.cuda.matmul.fp32_precision, products.cudnn.conv.fp32_precision)  # on GPUs
        return (_hashable(self.engine), self.output_type, self.dynamic_shapes, self.autotune, *precision, *lowering)


def _engine_on(device: str, options: Mapping[str, Any]) -> str:
    """Return the name of the engine on another device than the CPU, which is there."""
    kind = OutputType.get(options["output_type"]) if "output_type" in options else None
    name = engine_on(device, kind, options.get("engine"))
    engine_named(name).create(BackendOptions(device=device))  # raises if the device is not there
    return name


def output_type_for(engine: Any) -> OutputType:
    """Return the first output type that ``engine`` runs; linalg on tensors for one of the user."""
    runs = (kind for kind in EXECUTABLE if any(engine == other.name for other in engines_for(kind)))
    return next(runs, GraphOptions.output_type)


def _check_runs(engine: Any, output_type: OutputType) -> None:
    runs = [other.name for other in (*engines_for(output_type), *program_engines())]
    text = ", ".join(map(repr, runs))
    if engine is None:
        if DEFAULT_ENGINE not in runs:
            raise UsageError(
                f"the default engine, '{DEFAULT_ENGINE}', does not run {output_type.value}: pass the option 'engine', "
                f"which for it may be {text}"
            )
    elif isinstance(engine, str):
        record = engine_named(engine)
        if engine not in runs:
            raise UsageError(f"'{engine}' does not run {output_type.value}: option 'engine' may be {text}")
        record.check_installed()
    elif not callable(getattr(engine, "load", None)):
        raise UsageError(f"option 'engine' is {text}, or a backend of your own, which has `load`; not {engine!r}")


def _hashable(value: Any) -> Any:
    """Return a hashable key for ``value``: the value itself, or its identity."""
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value if isinstance(value, str | int | float | None) else (type(value).__name__, id(value))
