"""The TorchDynamo frontend: the `torch.compile` backend, and import of functions that torch.export rejects."""

from fx_importer.dynamo.dynamo_compiler import DynamoCompiler
from fx_importer.dynamo.import_function import Imported, import_function
from fx_importer.dynamo.torch_compile import backend, register
from fx_importer.fx_graph.graph_break import GraphBreak

__all__ = ["DynamoCompiler", "GraphBreak", "Imported", "backend", "import_function"]

register()
