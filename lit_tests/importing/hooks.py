# RUN: %PYTHON %s | FileCheck %s
"""Hooks resolve parameters to globals and store mutated buffers."""

import torch
from torch.export import export

from fx_importer import FxImporter, FxImporterHooks
from fx_importer.mlir.bindings import ir


class Globals(FxImporterHooks):
    def prepare_module(self, module_op):
        module_op.attributes["lit.prepared"] = ir.UnitAttr.get(module_op.context)

    def resolve_input(self, gni, value, info):
        name = ir.StringAttr.get(info.input_spec.target)
        return ir.Operation.create(
            "torch.operator", [info.ir_type], [], {"name": ir.StringAttr.get("load"), "of": name}
        ).result

    def store_produced_value(self, gni, py_value, produced_ir_value, info):
        attributes = {"name": ir.StringAttr.get("store"), "of": ir.StringAttr.get(info.input_spec.target)}
        ir.Operation.create("torch.operator", [], [produced_ir_value], attributes)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4))
        self.register_buffer("cache", torch.rand(4))

    def forward(self, x):
        self.cache.add_(x * self.weight)
        return self.cache * 2


importer = FxImporter(hooks=Globals())
importer.import_program(export(Model(), (torch.ones(4),)).run_decompositions({}))
print(importer.module)

# CHECK: module attributes {lit.prepared}
# CHECK: func.func @main(%arg0: !torch.vtensor<[4],f32>{{[^:>]*}}) -> !torch.vtensor<[4],f32>
# CHECK: %[[W:.*]] = torch.operator "load"() {of = "weight"}
# CHECK: %[[C:.*]] = torch.operator "load"() {of = "cache"}
# CHECK: %[[NEW:.*]] = torch.aten.add.Tensor %[[C]]
# CHECK: torch.operator "store"(%[[NEW]]) {of = "cache"}
# CHECK-NOT: dense_resource
