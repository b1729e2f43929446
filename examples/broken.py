"""Programs and passes with one fault each, for the list of failures in docs/failures.md."""

from __future__ import annotations

import os
import time

import torch

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations


class Sampler(torch.nn.Module):
    """An operator that TOSA lacks."""

    def forward(self, x):
        return torch.ops.aten._standard_gamma(x.exp())


class Shifted(torch.nn.Module):
    """A program without a fault, for the passes below."""

    def forward(self, x):
        return torch.tanh(x + 1)


class Branch(torch.nn.Module):
    """A Python branch on the value of a tensor."""

    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class FixedRows(torch.nn.Module):
    """A constant whose size makes the dynamic size of the argument a number."""

    def forward(self, x):
        return x + torch.ones(2, 8)


class TwoRanges(torch.nn.Module):
    """A tensor of int8 that holds small and large values: the small ones are lost."""

    def forward(self, x):
        return torch.cat([torch.sigmoid(x), x * 640], 1)


class Mask(torch.nn.Module):
    """A mask of float32 for the longest sequence."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.rand(1024, 1024))

    def forward(self, x):
        return x @ self.mask


def second_smallest(x):
    return x.kthvalue(2).values


def subtract(module):
    """Replace additions with subtractions: wrong numbers."""
    for op in list(operations(module)):
        if op.name == "arith.addf":
            with ir.InsertionPoint(op), op.location:
                difference = ir.Operation.create("arith.subf", [op.results[0].type], list(op.operands))
            op.results[0].replace_all_uses_with(difference.results[0])
            op.erase()


def crash(module):
    """End the process, as a failing assertion of C++ does."""
    os.abort()


def wait(module):
    """Take long."""
    time.sleep(3)  # longer than any stage on a busy machine


def raise_error(module):
    """Raise, as a pass with a fault does."""
    raise ValueError("expected a vector of 16 lanes")
