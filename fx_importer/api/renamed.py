"""Old import paths and names of version 0.1, which still work and warn."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES: Mapping[str, str] = {
    "bindings": "mlir.bindings",
    "causes": "diagnostics.causes",
    "census": "diagnostics.operator_output_types",
    "compilation": "compiler.driver",
    "entry": "api.lower",
    "explaining": "api.explain",
    "explanation": "diagnostics.explanation",
    "lowered": "api.lowered",
    "lowering": "api.lower_module",
    "pipelines.isolated": "pipelines.isolated_runner",
    "progress": "diagnostics.progress",
    "reducing": "api.reduce",
    "reports": "diagnostics.reports",
    "reproducing": "api.reproduce",
    "saving": "mlir.module_io",
    "trace": "diagnostics.trace",
}
"""New paths of modules of version 0.1 that were documented or held public names."""

NAMES: Mapping[str, str] = {
    "Declined": "NoMatch",
    "Refusal": "UnsupportedNode",
    "Refused": "UnsupportedNodeError",
}
"""Current names of public names of version 0.1."""


def current_name(name: str) -> str:
    """Return the current name of the public name ``name``. Warn if it has changed."""
    if name not in NAMES:
        return name
    message = f"fx_importer.{name} is deprecated: it is called fx_importer.{NAMES[name]} now"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return NAMES[name]


class RenamedModules(MetaPathFinder, Loader):
    """Import finder that loads modules of `MODULES` from their new paths, with a `DeprecationWarning`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if package == "fx_importer" and name in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace the module by the one at its new path."""
        old = module.__name__
        new = f"fx_importer.{MODULES[old.partition('.')[2]]}"
        warnings.warn(f"{old} is deprecated: it is {new} now", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)


def install() -> None:
    """Make old import paths work in this process."""
    sys.meta_path.insert(0, RenamedModules())  # before folders that only hold an old `__pycache__`
