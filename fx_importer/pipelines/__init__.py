"""Pass pipelines as frozen values: passes, stages, the pipeline of each output type, and the runner of a stage."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.options import LoweringOptions
from fx_importer.pipelines.contracts import CONTRACT, ContractRules, Dialects, contract
from fx_importer.pipelines.linalg import linalg as LINALG
from fx_importer.pipelines.llvm import LLVM, llvm
from fx_importer.pipelines.pipeline import Change, Insertable, Pipeline, changed
from fx_importer.pipelines.pipeline_parser import parse_steps
from fx_importer.pipelines.runner import run_stage, run_text
from fx_importer.pipelines.stablehlo import stablehlo as STABLEHLO
from fx_importer.pipelines.stage import Nested, Pass, RewriteStep, Stage, Step
from fx_importer.pipelines.torch_backend import torch_backend as TORCH_BACKEND
from fx_importer.pipelines.torch_backend import torch_contract as TORCH_CONTRACT
from fx_importer.pipelines.tosa import tosa as TOSA
from fx_importer.rewrites import REWRITES

__all__ = [
    "CONTRACT",
    "LINALG",
    "LLVM",
    "PIPELINES",
    "REWRITES",
    "STABLEHLO",
    "TORCH_BACKEND",
    "TORCH_CONTRACT",
    "TOSA",
    "VERIFIERS",
    "Change",
    "ContractRules",
    "Dialects",
    "Insertable",
    "Nested",
    "Pass",
    "Pipeline",
    "RewriteStep",
    "Stage",
    "Step",
    "changed",
    "contract",
    "llvm",
    "parse_steps",
    "run_stage",
    "run_text",
]

VERIFIERS = tuple(f"torch-verify-{kind}-backend-contract" for kind in ("linalg-on-tensors", "tosa", "stablehlo"))
"""Verification passes of torch-mlir, which reject calls. The contracts of this package allow them."""


PIPELINES: Mapping[str, Pipeline] = {
    pipeline.name: pipeline
    for pipeline in (*(family(LoweringOptions()) for family in (TORCH_BACKEND, LINALG, TOSA, STABLEHLO)), llvm())
}
"""Every pipeline by name, with default options. linalg-on-tensors, tosa and stablehlo start where torch-backend ends;
llvm starts where linalg-on-tensors ends."""
