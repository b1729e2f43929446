"""Build a small classifier as the library that the callers in this folder use.

python build.py                          # libmlp.so and mlp.h, for main.c, main.rs and main.go
python build.py wasm32-simd static       # libmlp.a and mlp.h, for run.mjs
"""

import sys

import torch

from fx_importer import lower

target, kind = (sys.argv[1:] + [None, "shared"][len(sys.argv) - 1 :])[:2]
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4), torch.nn.Softmax(-1))
print(lower(model, torch.ones(2, 16), output_type="linalg-on-tensors").build("mlp", target=target, kind=kind))
print(*(f"{value:.4f}" for value in model(torch.ones(2, 16))[0].tolist()))
