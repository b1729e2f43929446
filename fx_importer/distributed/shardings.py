"""Shardings as attributes of functions, in the notations of XLA's two partitioners, GSPMD and Shardy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from fx_importer.distributed.mesh import Mesh
from fx_importer.fx_graph.function_signature import Function, Sharding
from fx_importer.mlir.bindings import func_d, ir

_GSPMD, _FRONTEND, _SHARDY, _MESHES = "mhlo.sharding", "mhlo.frontend_attributes", "xla.sdy.sharding", "xla.sdy.meshes"
_DIMENSION, _AXIS = re.compile(r"\{([^{}]*)\}"), re.compile(r'"(\w+)"')


def set_shardings(module: ir.Module, mesh: Mesh, functions: Mapping[str, Function]) -> None:
    """Write the shardings of arguments and results to the ``functions`` of ``module``, in place of others.

    Both partitioners read the shardings of arguments, and GSPMD reads the results'; Shardy has an operation for them.
    A tensor without a sharding gets no attribute.
    """
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    _update(module.operation.attributes, {_MESHES: f"{{mesh = #sdy.mesh<[{axes}]>}}"}, module.context)
    for function in _functions(module):
        signature = functions.get(function.name.value)
        if signature is not None:
            arguments = [argument.sharding for argument in signature.arguments]
            results = [result.sharding for result in signature.results]
            _set(function, mesh, {"arg_attrs": arguments, "res_attrs": results})


def is_sharded(module: ir.Module) -> bool:
    """Return whether ``module`` is a program of whole tensors, which a partitioner divides among devices."""
    return _MESHES in _frontend(module.operation.attributes)


def take_shardings(module: ir.Module) -> Mapping[str, tuple[list[Sharding | None], list[Sharding | None]]]:
    """Remove the shardings from ``module``; return the shardings of arguments and results by function."""
    _update(module.operation.attributes, {_MESHES: None}, module.context)
    shardings: dict[str, tuple[list[Sharding | None], list[Sharding | None]]] = {}
    for function in _functions(module):
        arguments, results = (_read(function, key) for key in ("arg_attrs", "res_attrs"))
        shardings[function.name.value] = arguments, results
        _set(function, None, {"arg_attrs": [None] * len(arguments), "res_attrs": [None] * len(results)})
    return shardings


# --- notations ------------------------------------------------------------------------------------------------------


def gspmd(sharding: Sharding, mesh: Mesh) -> str:
    """Return a sharding as XLA's ``HloSharding`` prints it: ``{devices=[2,1,4]<=[8] last_tile_dim_replicate}``."""
    sizes = dict(mesh.axes)
    tiles = [math.prod(sizes[axis] for axis in axes) for axes in sharding]
    repeated = mesh.size // math.prod(tiles)
    if repeated == mesh.size:
        return "{replicated}"
    names = [name for name, size in mesh.axes if size > 1]
    order = [names.index(axis) for axes in sharding for axis in axes]
    order += [at for at in range(len(names)) if at not in order]
    starts = [dim for before, dim in zip((-2, *order), order, strict=False) if dim != before + 1]
    ends = [*sorted(starts)[1:], len(names)]  # axes that stay behind each other are one
    merged = [math.prod(sizes[name] for name in names[at:end]) for at, end in zip(sorted(starts), ends, strict=True)]
    turned = [sorted(starts).index(start) for start in starts]
    tiles += [repeated] if repeated > 1 else []
    transposed = f"T({_listed(turned)})" if len(turned) > 1 else ""
    replicated = " last_tile_dim_replicate" if repeated > 1 else ""
    return f"{{devices=[{_listed(tiles)}]<=[{_listed(merged)}]{transposed}{replicated}}}"


def _listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _shardy(sharding: Sharding) -> str:
    dimensions = ["{" + ", ".join(f'"{axis}"' for axis in axes) + "}" for axes in sharding]
    return f"#sdy.sharding<@mesh, [{', '.join(dimensions)}]>"


def _of_shardy(text: str) -> Sharding:
    return tuple(tuple(_AXIS.findall(dimension)) for dimension in _DIMENSION.findall(text))


# --- attributes -----------------------------------------------------------------------------------------------------


def _functions(module: ir.Module) -> Iterator[func_d.FuncOp]:
    return (op for op in module.body if isinstance(op, func_d.FuncOp))


def _types(function: func_d.FuncOp, key: str) -> list[ir.Type]:
    return list(function.type.inputs if key == "arg_attrs" else function.type.results)


def _dictionaries(function: func_d.FuncOp, key: str) -> list[dict[str, ir.Attribute]]:
    if key not in function.attributes:
        return [{} for _ in _types(function, key)]
    return [
        {attribute.name: attribute.attr for attribute in ir.DictAttr(dictionary)}
        for dictionary in ir.ArrayAttr(function.attributes[key])
    ]


def _set(function: func_d.FuncOp, mesh: Mesh | None, shardings: Mapping[str, list[Sharding | None]]) -> None:
    context = function.context
    for key, values in shardings.items():
        made = _dictionaries(function, key)
        for attributes, type_, sharding in zip(made, _types(function, key), values, strict=True):
            attributes.pop(_GSPMD, None)
            if sharding is not None and mesh is not None:
                rank = ir.RankedTensorType(type_).rank  # a complex tensor has an axis of two parts
                whole = sharding + ((),) * (rank - len(sharding))
                attributes[_GSPMD] = ir.StringAttr.get(gspmd(whole, mesh), context)
                _update(attributes, {_SHARDY: _shardy(whole)}, context)
            else:
                _update(attributes, {_SHARDY: None}, context)
        function.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(entries, context) for entries in made], context)


def _read(function: func_d.FuncOp, key: str) -> list[Sharding | None]:
    texts = [_frontend(dictionary).get(_SHARDY) for dictionary in _dictionaries(function, key)]
    return [None if attribute is None else _of_shardy(ir.StringAttr(attribute).value) for attribute in texts]


def _frontend(attributes: Mapping[str, ir.Attribute]) -> dict[str, ir.Attribute]:
    if _FRONTEND not in attributes:
        return {}
    return {entry.name: entry.attr for entry in ir.DictAttr(attributes[_FRONTEND])}


def _update(
    attributes: ir.OpAttributeMap | dict[str, ir.Attribute], changes: Mapping[str, str | None], context: ir.Context
) -> None:
    """Set frontend attributes to texts, and remove those that are None."""
    frontend = _frontend(attributes)
    for name, text in changes.items():
        if text is None:
            frontend.pop(name, None)
        else:
            frontend[name] = ir.StringAttr.get(text, context)
    if frontend:
        attributes[_FRONTEND] = ir.DictAttr.get(frontend, context)
    elif _FRONTEND in attributes:
        del attributes[_FRONTEND]
