"""Contents of modules: moved in place of another's, and copied."""

from __future__ import annotations

from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.module_contents import copy_module, replace_contents


def test_replaced_contents_and_attributes():
    context = new_context()
    old = ir.Module.parse("module @old { func.func private @a() func.func private @b() }", context)
    new = ir.Module.parse("module attributes {test.x} { func.func private @c() }", context)
    replace_contents(old, new.operation)
    assert [op.name.value for op in old.body.operations] == ["c"]
    assert list(old.operation.attributes) == ["test.x"]
    assert not list(new.body.operations)


def test_copy_is_independent_and_has_no_attributes():
    module = ir.Module.parse("module @named { func.func private @a() }", new_context())
    copy = copy_module(module.operation)
    next(iter(copy.body.operations)).erase()
    assert not list(copy.operation.attributes)
    assert [op.name.value for op in module.body.operations] == ["a"]
