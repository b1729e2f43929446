# RUN: %PYTHON %s | FileCheck %s
"""Errors of a user's passes and output types have their name and line."""

import torch

from fx_importer import FxImporterError, OutputType, lower


def first_constant(module):
    raise KeyError("there is none")


def gives_a_copy(module):
    return module.clone()


def tried(pipeline):
    try:
        lower(torch.tanh, torch.ones(2), output_type="tosa", pipeline=pipeline)
    except FxImporterError as error:
        print(error)


tried(lambda pipeline: pipeline.after("tosa", first_constant))
# CHECK: stage 'first_constant' failed:
# CHECK-NEXT: the pass 'first_constant' ({{.*}}own_passes.py:9) raised KeyError: 'there is none'
# CHECK-NEXT: at {{.*}}own_passes.py:10: raise KeyError("there is none")
# CHECK-NEXT: reproducer in

tried(lambda pipeline: pipeline.after("tosa", gives_a_copy))
# CHECK: stage 'gives_a_copy' failed:
# CHECK-NEXT: the pass 'gives_a_copy' ({{.*}}own_passes.py:13) returned a value of type ModuleOp: a pass changes the module that it is given, and returns nothing

tried(lambda pipeline: pipeline.after("tossa", "cse"))
# CHECK: pipeline 'tosa' has no stage 'tossa'; its stages are: torch-backend, control-flow, tosa, tosa-simplify, backend-types, tosa-integers, tosa-regions, contract

tried(lambda pipeline: pipeline.after("tosa", "csee"))
# CHECK: 'csee' does not name passes of MLIR: 'csee' does not refer to a registered pass or pass pipeline

tried(lambda pipeline: pipeline.after("tosa", "cse", name="contract"))
# CHECK: pipeline 'tosa' has a stage 'contract' already: pass another name=

tried(first_constant.__name__)
# CHECK: pipeline='first_constant' is str: it is a Pipeline, or a function that takes one and returns one, such as lambda

OutputType.define("npu", base="tosa")
try:
    OutputType.define("NPU", base="linalg")
except FxImporterError as error:
    print(error)
# CHECK: output type 'NPU', at {{.*}}own_passes.py:48: there is 'npu' already, defined at {{.*}}own_passes.py:46; OutputType.forget('npu') takes it away
