"""Carry a PyTorch model to MLIR: ``export_and_import(model, x, output_type="tosa")``.

The public names are those of ``__init__.pyi``, and of the packages that the documentation imports from. Each is
imported when it is first used: ``fx-importer --help`` need not wait for torch.
"""

from typing import Any

import lazy_loader

from fx_importer.process import load_time as load_time  # it records when the package was read

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _attribute(name)
    except ImportError as error:
        from fx_importer.installation.misfits import explained

        raise explained(error) from error
