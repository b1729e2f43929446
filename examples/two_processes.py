"""A linear layer whose weight is divided among the devices of all processes.

Run it with ``torchrun --nproc-per-node 2 examples/two_processes.py``.
"""

from __future__ import annotations

import torch

from fx_importer import lower
from fx_importer.engines import join_processes

join_processes(devices=4, timeout=60)

torch.manual_seed(0)
model, x = torch.nn.Linear(16, 32), torch.randn(4, 16)
plan = {"weight": {"tp": 0}, "bias": {"tp": 0}}
lowered = lower(model, x, output_type="stablehlo", weights="args", mesh="tp=8", plan=plan)
torch.testing.assert_close(lowered.caller(backend="xla")(x), model(x))
