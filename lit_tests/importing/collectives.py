# RUN: %PYTHON %s | FileCheck %s
"""Collectives: operators of torch with the groups of the mesh's devices, and those of StableHLO."""

import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh

from fx_importer import lower
from fx_importer.distributed import fake_process_group


class Model(torch.nn.Module):
    def forward(self, x):
        x = collectives.all_reduce(x, "avg", (mesh, 1))
        x = collectives.all_gather_tensor(x, 0, (mesh, 0))
        x = collectives.reduce_scatter_tensor(x, "max", 0, (mesh, 1))
        x = collectives.all_to_all_single(x, None, None, (mesh, 0))
        x = collectives.broadcast(x, 1, (mesh, 1))
        return collectives.all_reduce_coalesced([x, x + 1], "sum", (mesh, 1))


with fake_process_group(6, rank=4):
    mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
    program = torch.export.export(Model(), (torch.ones(6, 5),))
    for output_type in ("torch", "stablehlo"):
        print(lower(program, output_type=output_type, mesh=mesh).module)

# CHECK-LABEL: module attributes {fx_importer.mesh = "dp=2,tp=3"} {
# CHECK: torch.operator "torch._c10d_functional.all_reduce"
# CHECK-SAME: fx_importer.channel = 1 : i64, fx_importer.mesh_axes = ["tp"]
# CHECK-SAME: fx_importer.replica_groups = dense<{{\[\[0, 1, 2\], \[3, 4, 5\]\]}}> : tensor<2x3xi64>
# CHECK: torch.operator "torch._c10d_functional.wait_tensor"
# CHECK: torch.operator "torch._c10d_functional.all_gather_into_tensor"
# CHECK-SAME: dense<{{\[\[0, 3\], \[1, 4\], \[2, 5\]\]}}> : tensor<3x2xi64>
# CHECK: torch.operator "torch._c10d_functional.all_reduce_coalesced"
# CHECK-SAME: fx_importer.replica_groups

# CHECK-LABEL: module attributes
# CHECK-SAME: mhlo.num_partitions = 6 : i32, mhlo.num_replicas = 1 : i32
# CHECK-NOT: torch.operator
# CHECK: "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>
# CHECK-SAME: dense<{{\[\[0, 1, 2\], \[3, 4, 5\]\]}}> : tensor<2x3xi64>, use_global_device_ids}>
# CHECK: stablehlo.add
# CHECK: stablehlo.divide
# CHECK: "stablehlo.all_gather"
# CHECK-SAME: all_gather_dim = 0 : i64
# CHECK-SAME: dense<{{\[\[0, 3\], \[1, 4\], \[2, 5\]\]}}>
# CHECK-SAME: -> tensor<12x5xf32>
# CHECK: "stablehlo.reduce_scatter"
# CHECK: stablehlo.maximum
# CHECK: (tensor<12x5xf32>) -> tensor<4x5xf32>
# CHECK: "stablehlo.all_to_all"
# CHECK-SAME: split_count = 2 : i64
# CHECK: "stablehlo.collective_broadcast"
# CHECK-SAME: dense<{{\[\[1, 0, 2\], \[4, 3, 5\]\]}}>
# CHECK-COUNT-2: stablehlo.all_reduce
