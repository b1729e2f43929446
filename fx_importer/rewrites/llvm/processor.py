"""The processor that a module is compiled for, where that is not the one of this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.walk import rewrite_with_options
from fx_importer.rewrites.llvm.entry_point import read_fact, write_fact

_FACT = "processor"


@dataclass(frozen=True)
class Processor:
    """What passes ask of a processor."""

    lanes: int = 0
    """The float32 of a vector; 0 if loops do not use vectors."""
    registers: int = 0
    """The number of registers for vectors."""
    fma: bool = True
    """Whether a product and a sum are one instruction."""
    index_bits: int = 64
    """The bits of an address."""
    threads: bool = False
    """Whether loops run on the threads of an OpenMP library with GCC's interface."""


def processor_of(at: ir.Module | ir.Operation | Emitter) -> Processor | None:
    """Return the processor of the module around ``at``; None for this machine's."""
    op = at.point.block.owner if isinstance(at, Emitter) else at.operation
    while op.parent is not None:
        op = op.parent
    record = read_fact(op, _FACT)
    return None if record is None else Processor(**record)


@rewrite_with_options("fx-importer-set-processor")
def set_processor(
    module: ir.Operation,
    lanes: int = 0,
    registers: int = 0,
    fma: bool = True,
    index_bits: int = 64,
    threads: bool = False,
) -> None:
    """Compile ``module`` for another processor than the one of this machine: see `Processor`."""
    write_fact(module, _FACT, asdict(Processor(lanes, registers, fma, index_bits, threads)))
    if index_bits != 64:
        module.attributes["dlti.dl_spec"] = ir.Attribute.parse(
            f"#dlti.dl_spec<index = {index_bits} : i32>", module.context
        )
