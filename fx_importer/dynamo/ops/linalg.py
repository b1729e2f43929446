"""Registry of operators in linalg on tensors."""

from fx_importer.dynamo.ops.registry import OpsRegistry
from fx_importer.output_types import OutputType

ops_registry = OpsRegistry("linalg", OutputType.LINALG_ON_TENSORS)
