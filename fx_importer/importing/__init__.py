"""Import of FX graphs into the torch dialect."""

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
