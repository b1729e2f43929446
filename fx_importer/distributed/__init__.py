"""Programs of several devices: meshes, process groups and the collective operators between them."""

from fx_importer.distributed.export import MeshProgram, export_on_mesh
from fx_importer.distributed.fake_process_group import fake_process_group
from fx_importer.distributed.mesh import Mesh

__all__ = ["Mesh", "MeshProgram", "export_on_mesh", "fake_process_group"]
