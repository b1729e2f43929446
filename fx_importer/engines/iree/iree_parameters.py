"""Weights as IREE parameters, which a compiled module loads from a file or from memory when it runs.

A parameter is an operation, ``util.global.load``: so resources are not replaced by attributes, as weight handles are.
"""

from __future__ import annotations

import errno
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fx_importer.errors import NotInstalledError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Emitter, replace
from fx_importer.mlir.module_io import copy_to_new_context
from fx_importer.mlir.resources import key_of, resources_in
from fx_importer.process.optional_packages import is_installed

SCOPE = "model"
"""The default scope of parameters."""


def with_parameters(module: ir.Module, names: Mapping[str, str], scope: str = SCOPE) -> str:
    """Return ``module`` as text for IREE, with its resources replaced by parameters of ``scope``.

    ``names`` maps names of resources to names of parameters. The module does not change.
    """
    new = copy_to_new_context(module.operation, unregistered=True)  # IREE's dialects are not in the wheel
    made: dict[tuple[str, ir.Type], ir.Attribute] = {}
    for op, _, value in resources_in(new.operation):
        if (key := key_of(value)) not in names:
            continue
        with new.context, op.location:
            in_torch = op.name == "torch.vtensor.literal"  # signed integers; the converted ones are signless
            kind = ir.Type.parse(re.sub(r"(x|<)[su]i(\d+)", r"\1i\2", str(value.type))) if in_torch else value.type
            if (key, kind) not in made:
                made[key, kind] = _declare_parameter(new, f"fx_importer.weight.{len(made)}", kind, scope, names[key])
        emit = Emitter.before(op)
        loaded = emit.op("util.global.load", [kind], (), {"global": made[key, kind]}).result
        replace(op, emit.value("torch_c.from_builtin_tensor", op.results[0].type, loaded) if in_torch else loaded)
    return new.operation.get_asm(print_generic_op_form=True)


def _declare_parameter(module: ir.Module, symbol: str, kind: ir.Type, scope: str, name: str) -> ir.Attribute:
    """Declare a parameter in ``module``, and return the reference to it."""
    spelled = [ir.StringAttr.get(each) for each in (scope, name)]
    Emitter(ir.InsertionPoint.at_block_begin(module.body), ir.Location.current).op(
        "util.global",
        [],
        attributes={
            "sym_name": ir.StringAttr.get(symbol),
            "sym_visibility": ir.StringAttr.get("private"),
            "type": ir.TypeAttr.get(kind),
            "initial_value": ir.Attribute.parse(f"#stream.parameter.named<{spelled[0]}::{spelled[1]}> : {kind}"),
        },
    )
    return ir.FlatSymbolRefAttr.get(symbol)


def write_archive(tensors: Mapping[str, np.ndarray[Any, Any]], path: Path) -> None:
    """Write a parameter archive with the bytes of tensors."""
    if not is_installed("iree.runtime"):
        raise NotInstalledError("an IREE parameter archive", "iree.runtime", "iree")
    index = importlib.import_module("iree.runtime").ParameterIndex()
    for name, data in tensors.items():
        index.add_buffer(name, data)
    try:
        index.create_archive_file(str(path))
    except (IndexError, RuntimeError, ValueError) as error:  # IREE's status, as out of range
        raise OSError(errno.ENOSPC, f"IREE could not write it: {error}") from error
