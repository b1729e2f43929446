"""StableHLO's shape refinement, function by function: the pass takes a module with one entry point."""

from __future__ import annotations

from fx_importer.mlir.bindings import func_d, ir, passmanager


def refine_shapes(module: ir.Operation) -> None:
    """Run ``stablehlo-refine-shapes`` on every function of ``module`` that calls none: the pass would enter it."""
    block = module.regions[0].blocks[0]
    for function in [op for op in block.operations if isinstance(op, func_d.FuncOp) and not _calls(op.operation)]:
        alone = ir.Module.create(ir.Location.unknown(module.context))
        alone.body.append(function)
        try:
            passmanager.PassManager.parse("builtin.module(stablehlo-refine-shapes)", module.context).run(
                alone.operation
            )
        except ir.MLIRError as error:
            for found in error.error_diagnostics:
                found.location.emit_error(found.message)
        for refined in list(alone.body.operations):
            block.append(refined)


def _calls(function: ir.Operation) -> bool:
    """Whether ``function`` calls another, or is only declared."""
    found: list[ir.Operation] = []

    def see(op: ir.Operation) -> ir.WalkResult:
        if op.name != "func.call":
            return ir.WalkResult.ADVANCE
        found.append(op)
        return ir.WalkResult.INTERRUPT

    function.walk(see)
    return bool(found) or not function.regions[0].blocks
