from .export import MeshProgram as MeshProgram
from .export import export_on_mesh as export_on_mesh
from .export import plan_on_mesh as plan_on_mesh
from .mesh import Mesh as Mesh
from .mesh import fake_process_group as fake_process_group
from .plan import Plan as Plan
from .rank_operators import collective_permute as collective_permute
from .rank_operators import group_rank as group_rank
