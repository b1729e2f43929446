"""Registry of operators in TOSA."""

from fx_importer.dynamo.ops.registry import OpsRegistry
from fx_importer.output_types import OutputType

ops_registry = OpsRegistry("tosa", OutputType.TOSA)
