# RUN: %PYTHON %s | FileCheck %s
"""Several programs in one module, each a function; a bare graph; a visibility; shared weights once."""

import torch
from torch.export import export

from fx_importer import FxImporter

model = torch.nn.Linear(3, 3, bias=False)
importer = FxImporter()
importer.import_frozen_program(export(model, (torch.ones(1, 3),)), func_name="decode")
importer.import_frozen_program(export(model, (torch.ones(5, 3),)), func_name="prefill", func_visibility="private")
importer.import_stateless_graph(export(torch.nn.ReLU(), (torch.ones(5, 3),)).graph, func_name="act")
print(importer.module)

# CHECK: func.func @decode(%arg0: !torch.vtensor<[1,3],f32>{{[^:>]*}})
# CHECK: dense_resource<weight>
# CHECK: func.func private @prefill(%arg0: !torch.vtensor<[5,3],f32>{{[^:>]*}})
# CHECK: dense_resource<weight>
# CHECK: func.func @act(%arg0: !torch.vtensor<[5,3],f32>{{[^:>]*}})
# CHECK: dialect_resources
# CHECK: weight:
# CHECK-NOT: weight_1
