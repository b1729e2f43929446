"""Run StableHLO's shape refinement per function: the pass requires a module with one entry point."""

from __future__ import annotations

from fx_importer.mlir.bindings import func_d, ir, passmanager
from fx_importer.mlir.walk import operations, rewrite


@rewrite("fx-importer-refine-stablehlo-shapes")
def refine_stablehlo_shapes(module: ir.Operation) -> None:
    """Run ``stablehlo-refine-shapes`` on every function of ``module`` without calls, which the pass would enter."""
    block = module.regions[0].blocks[0]
    for function in [op for op in block.operations if isinstance(op, func_d.FuncOp) and _is_leaf(op.operation)]:
        alone = ir.Module.create(ir.Location.unknown(module.context))
        alone.body.append(function)
        passes = passmanager.PassManager.parse("builtin.module(stablehlo-refine-shapes)", module.context)
        try:
            passes.run(alone.operation)
        except ir.MLIRError as error:
            for diagnostic in error.error_diagnostics:
                diagnostic.location.emit_error(diagnostic.message)
        for refined in list(alone.body.operations):
            block.append(refined)


def _is_leaf(function: ir.Operation) -> bool:
    """Whether ``function`` has a body and no calls."""
    return bool(function.regions[0].blocks) and not operations(function, ("func.call",))
