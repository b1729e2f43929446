"""Programs of several devices: meshes, process groups and the collective operators between them."""

from fx_importer.distributed.fake_process_group import fake_process_group
from fx_importer.distributed.mesh import Mesh

__all__ = ["Mesh", "fake_process_group"]
