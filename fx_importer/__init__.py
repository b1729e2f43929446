"""Carry a PyTorch model to MLIR: ``export_and_import(model, x, output_type="tosa")``.

The public names are those of ``__init__.pyi``, and of the packages that the documentation imports from. Each is
imported when it is first used: ``fx-importer --help`` need not wait for torch.
"""

import lazy_loader

from fx_importer.process import load_time as load_time  # first: it records when the package was read

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
