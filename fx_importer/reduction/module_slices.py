"""Slices of an MLIR module as text: some operations of a function, with the values of the others as arguments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fx_importer.mlir.bindings import ir, load_dialects, new_context, passmanager
from fx_importer.mlir.emit.emitter import Emitter, is_used, terminator, update_function_type


def parsed(text: str) -> ir.Module:
    """Return the module, parsed in a new context without threads, since this process may be forked."""
    context = new_context()
    context.enable_multithreading(False)
    load_dialects(context)
    return ir.Module.parse(text, context)


def generic_text(module: ir.Operation) -> str:
    """Return ``module`` in the generic form, without locations, so that it can be parsed again."""
    return module.get_asm(enable_debug_info=False)


def operations_in(text: str) -> int:
    """Return the number of operations in the first function, not counting its return."""
    module = parsed(text)  # keeps it alive; the function does not
    return len(_body(_function(module)))


def with_operations(text: str, kept: Collection[int]) -> str:
    """Return the module with only the operations of its first function at the positions ``kept``.

    The values that they use become arguments of the function; it returns the values that none of them uses. Functions
    without a reference are removed.
    """
    module = parsed(text)
    function = _function(module)
    block = function.regions[0].blocks[0]
    body = _body(function)
    staying = [operation for position, operation in enumerate(body) if position in kept]
    with module.context, ir.Location.unknown(module.context):
        _return(block, [result for each in staying if not _is_read(each, staying) for result in each.results])
        for operation in reversed([each for position, each in enumerate(body) if position not in kept]):
            for result in operation.results:
                if is_used(result):
                    result.replace_all_uses_with(block.add_argument(result.type, operation.location))
            operation.erase()
        for position in reversed(range(len(block.arguments))):
            if not is_used(block.arguments[position]):
                block.erase_argument(position)
        update_function_type(function)
    for name in ("arg_attrs", "res_attrs"):
        if name in function.attributes:
            del function.attributes[name]
    passmanager.PassManager.parse("builtin.module(symbol-dce)", module.context).run(module.operation)
    module.operation.verify()
    return generic_text(module.operation)


def _function(module: ir.Module) -> Any:
    return next(
        operation for operation in module.body.operations if operation.regions and len(operation.regions[0].blocks)
    )


def _body(function: Any) -> list[Any]:
    return list(function.regions[0].blocks[0].operations)[:-1]


def _is_read(operation: Any, others: Collection[Any]) -> bool:
    """Return whether one of ``others``, or an operation nested in one, uses a result of ``operation``."""
    wanted = {each.operation for each in others}
    return any(_outermost(use.owner, operation) in wanted for result in operation.results for use in result.uses)


def _outermost(user: Any, sibling: Any) -> Any:
    """Return the ancestor of ``user``, or ``user`` itself, in the block of ``sibling``."""
    user, parent = user.operation, sibling.operation.parent
    while user.parent != parent:
        user = user.parent.operation
    return user


def _return(block: Any, values: list[Any]) -> None:
    old = terminator(block)
    Emitter.before(old).op(old.name, [], values)
    old.erase()
