"""Import of FX graphs into the torch dialect."""

from fx_importer.errors import warn_renamed
from fx_importer.importing.hooks import FxImporterHooks, InputInfo
from fx_importer.importing.import_result import ImportedFunction, ImportResult
from fx_importer.importing.importer import FxImporter, import_program
from fx_importer.importing.node_builder import NodeBuilder, UnsupportedNodeError

__all__ = [
    "FxImporter",
    "FxImporterHooks",
    "ImportResult",
    "ImportedFunction",
    "InputInfo",
    "NodeBuilder",
    "UnsupportedNodeError",
    "import_program",
]


def __getattr__(name: str) -> object:
    """Return the object that a name of version 0.1 stands for now."""
    if name == "Refused":
        warn_renamed("fx_importer.importing.Refused", "UnsupportedNodeError")
        return UnsupportedNodeError
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
