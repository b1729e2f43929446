"""FX graphs → the torch dialect."""

from fx_importer.importing.hooks import FxImporterHooks, InputInfo
from fx_importer.importing.importer import FxImporter, import_program
from fx_importer.importing.node_builder import NodeBuilder, Refused

__all__ = ["FxImporter", "FxImporterHooks", "InputInfo", "NodeBuilder", "Refused", "import_program"]
