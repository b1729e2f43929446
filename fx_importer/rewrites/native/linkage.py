"""Linkage of functions: a library has one symbol for each entry point, which is not seen from outside of it."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.walk import rewrite

EXPORTED = "fx_importer.exported"
"""The attribute of a private function that the wrapper calls too."""


@rewrite("fx-importer-hide-functions")
def hide_functions(module: ir.Operation) -> None:
    """Give private functions that have a body internal linkage.

    Two libraries in one program have kernels of a name; and the JIT generates a wrapper of each function that has not.
    """
    with module.context:
        for function in functions_of(module).values():
            attributes = function.attributes
            private = "sym_visibility" in attributes and ir.StringAttr(attributes["sym_visibility"]).value == "private"
            if private and not function.is_external and EXPORTED not in attributes:
                attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
