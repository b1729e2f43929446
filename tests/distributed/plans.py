"""Plans that tests name on the command line."""

import torch
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

TABLE = {"0.*": {"tp": Shard(0)}, "2.weight": {"tp": 1}}
NO_PLAN = 3


def model():
    return two_layers(), (torch.randn(8, 16, generator=torch.manual_seed(0)),)


def two_layers() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))


def parallelized(mesh):
    return parallelize_module(two_layers(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()}), ()
