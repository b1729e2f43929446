# RUN: %PYTHON -W ignore %s | FileCheck %s
"""The type of a sparse input has its layout: COO, CSR, CSC, blocks."""

import torch

from fx_importer import UnsupportedProgramError, export_and_import, lower

X = torch.eye(4, 6)
INPUTS = {
    "coo": X.to_sparse(),
    "coo, unsorted": torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (4, 6)),
    "coo, dense columns": X.to_sparse(1),
    "csr": X.to_sparse_csr(),
    "csr, narrow": torch.sparse_csr_tensor(
        torch.tensor([0, 1, 1], dtype=torch.int32), torch.tensor([2], dtype=torch.int32), torch.ones(1), (2, 3)
    ),
    "csc": X.to_sparse_csc(),
    "bsr": X.to_sparse_bsr((2, 3)),
    "bsc": X.to_sparse_bsc((2, 3)),
    "batched csr": torch.stack([X, X]).to_sparse_csr(),
}


class Same(torch.nn.Module):
    def forward(self, x):
        return x


for name, tensor in INPUTS.items():
    module = str(export_and_import(Same(), tensor))
    print(name, next(line for line in module.splitlines() if "encoding" in line))


class Holds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("adjacency", X.to_sparse())

    def forward(self, x):
        return self.adjacency @ x


for attempt in (lambda: lower(Holds(), torch.ones(6, 2)), lambda: lower(Same(), X.to_sparse_csr(), output_type="tosa")):
    try:
        attempt()
    except UnsupportedProgramError as error:
        print(error)

# CHECK: coo {{.*}}(d0, d1) -> (d0 : compressed(nonunique), d1 : singleton(soa)), posWidth = 64, crdWidth = 64
# CHECK: coo, unsorted {{.*}}(d0, d1) -> (d0 : compressed(nonunique), d1 : singleton(nonunique, soa))
# CHECK: coo, dense columns {{.*}}(d0, d1) -> (d0 : compressed, d1 : dense)
# CHECK: csr {{.*}}(d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 64, crdWidth = 64
# CHECK: csr, narrow {{.*}}(d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 32
# CHECK: csc {{.*}}(d0, d1) -> (d1 : dense, d0 : compressed)
# CHECK: bsr {{.*}}(d0, d1) -> (d0 floordiv 2 : dense, d1 floordiv 3 : compressed, d0 mod 2 : dense, d1 mod 3 : dense)
# CHECK: bsc {{.*}}(d0, d1) -> (d1 floordiv 3 : dense, d0 floordiv 2 : compressed, d0 mod 2 : dense, d1 mod 3 : dense)
# CHECK: batched csr {{.*}}(d0, d1, d2) -> (d0 : batch, d1 : dense, d2 : compressed)
# CHECK: 'adjacency': a torch.sparse_coo tensor of torch.float32 cannot be a literal: densify it first
# CHECK: x: a tensor of torch.float32 stored as torch.sparse_csr, and TOSA has dense tensors only: give it as `to_dense()`
