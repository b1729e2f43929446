"""Compile PyTorch models to MLIR: ``export_and_import(model, x, output_type="tosa")``.

``__init__.pyi`` lists the public names. Each is imported when it is first used, so that ``fx-importer --help`` need
not wait for torch.
"""

from typing import Any

import lazy_loader

from fx_importer.diagnostics.installed_packages.explained_imports import imports_explained
from fx_importer.process import load_time as load_time  # it records when the package was read

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fx-importer")
    with imports_explained():
        return _attribute(name)
