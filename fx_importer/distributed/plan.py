"""Plans: by name, the dimensions of weights, inputs and outputs that the axes of a mesh divide."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fx_importer.distributed.mesh import Mesh
from fx_importer.errors import UsageError
from fx_importer.fx_graph.function_signature import Argument, Function, Result, Sharding
from fx_importer.json_text import parse_json

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Plan:
    """The axes that divide dimensions, by names in which ``*`` stands for any text; the text form is JSON."""

    entries: Mapping[str, Mapping[str, int]]
    """For each name, the dimension that each axis divides. Of axes that divide the same one, the first has the largest
    parts. An axis that is not there divides none: along it, the tensor is repeated."""

    @classmethod
    def get(cls, plan: Any, mesh: Mesh) -> Self:
        """Return the plan of a mapping or of its JSON.

        Args:
            given: by name, an axis and a dimension as ``{"tp": 0}`` or ``{"tp": Shard(0)}``; or placements for the
                axes of ``mesh`` in order, as DTensor has them; or one placement, for a mesh of one axis.
            mesh: the mesh whose axes are named.

        Raises:
            UsageError: listing the entries that are none.
        """
        if isinstance(plan, cls):
            return plan
        if isinstance(plan, str):
            try:
                plan = parse_json(plan)
            except ValueError as error:
                raise UsageError(f"the plan is not JSON: {error}") from None
        if not isinstance(plan, Mapping):
            raise UsageError(f"plan={plan!r} is not a plan: pass a mapping from names to placements")
        entries: dict[str, Mapping[str, int]] = {}
        wrong: list[str] = []
        for name, placements in plan.items():
            try:
                entries[str(name)] = _dimensions(placements, mesh)
            except ValueError as error:
                wrong.append(f"'{name}' {error}")
        if wrong:
            raise UsageError(f"the plan for the mesh {mesh} cannot be read: {'; '.join(wrong)}")
        return cls(entries)

    @classmethod
    def of(cls, functions: Mapping[str, Function]) -> Self | None:
        """Return the plan that `sharded` made the shardings of ``functions`` from; None if they have none."""
        sided = [argument for function in functions.values() for argument in (*function.arguments, *function.results)]
        shardings = {argument.name: argument.sharding for argument in sided if argument.sharding is not None}
        entries = {
            name: {axis: dim for dim, axes in enumerate(sharding) for axis in axes}
            for name, sharding in shardings.items()
        }
        return cls(entries) if shardings else None

    def __str__(self) -> str:
        return json.dumps(self.entries)

    def entry(self, name: str) -> Mapping[str, int] | None:
        """Return the entry of ``name``: its own, or else the first whose ``*`` match; None if there is none."""
        if name in self.entries:
            return self.entries[name]
        return next((entry for pattern, entry in self.entries.items() if _matches(pattern, name)), None)

    def sharded(self, functions: Mapping[str, Function], mesh: Mesh) -> dict[str, Function]:
        """Return ``functions`` with shardings of their arguments and results.

        Arguments without an entry are repeated on all devices. New values and gradients of a tensor have its sharding;
        outputs without an entry have none, and the partitioner chooses.

        Raises:
            UsageError: listing entries that name nothing, and those that do not fit the tensor.
        """
        wrong: dict[str, None] = {}
        named = [argument for function in functions.values() for argument in (*function.arguments, *function.results)]
        for pattern in self.entries:
            if not any(_matches(pattern, weight.name) for weight in named):
                some = ", ".join(dict.fromkeys(f"'{weight.name}'" for weight in named[:4]))
                wrong[f"'{pattern}' names nothing: there are {some}" + (", ..." if len(named) > 4 else "")] = None

        def sharding(of: Argument | Result) -> Sharding | None:
            entry = self.entry(of.name)
            if entry is None and isinstance(of, Result):
                return None
            made, problems = _sharding(of, entry or {}, mesh)
            wrong.update(dict.fromkeys(problems))
            return made

        made: dict[str, Function] = {}
        for name, function in functions.items():
            arguments = tuple(
                dataclasses.replace(argument, sharding=sharding(argument)) for argument in function.arguments
            )
            of_arguments = {(argument.kind == "input", argument.name): argument.sharding for argument in arguments}
            shardings = [_of_result(result, of_arguments, sharding) for result in function.results]
            results = tuple(map(_with_sharding, function.results, shardings))
            made[name] = dataclasses.replace(function, arguments=arguments, results=results)
        if wrong:
            raise UsageError(f"the plan does not fit the program on the mesh {mesh}: {'; '.join(wrong)}")
        return made


def _with_sharding(result: Result, sharding: Sharding | None) -> Result:
    return dataclasses.replace(result, sharding=sharding)


def _of_result(result: Result, shardings: Mapping[tuple[bool, str], Sharding | None], sharding: Any) -> Sharding | None:
    """Return the sharding of the tensor whose new value or gradient ``result`` is; of an output, that of its entry."""
    if result.kind == "output":
        return sharding(result)
    of_input, other = (result.kind == "input", result.name), (result.kind != "input", result.name)
    return shardings.get(of_input, shardings.get(other))


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def _sharding(of: Argument | Result, entry: Mapping[str, int], mesh: Mesh) -> tuple[Sharding, list[str]]:
    """Return the sharding that ``entry`` gives a tensor, and the problems with it."""
    shape = of.type.shape or ()
    axes: list[list[str]] = [[] for _ in shape]
    wrong: list[str] = []
    for axis, dim in entry.items():
        if not -len(shape) <= dim < len(shape):
            wrong.append(f"'{of.name}' has {len(shape)} dimensions, and '{axis}' is to divide dimension {dim}")
        elif dict(mesh.axes)[axis] > 1:
            axes[dim].append(axis)
    for dim, (size, along) in enumerate(zip(shape, axes, strict=True)):
        parts = math.prod(dict(mesh.axes)[axis] for axis in along)
        if isinstance(size, str) and along:
            wrong.append(f"dimension {dim} of '{of.name}' is dynamic, and only static ones are divided")
        elif not isinstance(size, str) and size % parts:
            wrong.append(f"{'·'.join(along)} = {parts} does not divide dimension {dim} of '{of.name}', of size {size}")
    return tuple(map(tuple, axes)), wrong


# --- placements -----------------------------------------------------------------------------------------------------


def _dimensions(entry: Any, mesh: Mesh) -> dict[str, int]:
    """Return the dimension that each axis divides. Raises ValueError, with the end of a sentence, for other values."""
    names = [name for name, _ in mesh.axes]
    if isinstance(entry, Mapping):
        if unknown := [str(axis) for axis in entry if axis not in names]:
            raise ValueError(f"names {', '.join(unknown)}, which the mesh does not have")
        placements = list(entry.items())
    elif isinstance(entry, Sequence) and not isinstance(entry, str):
        if len(entry) != len(names):
            raise ValueError(f"has {len(entry)} placements, and the mesh {len(names)} axes")
        # DTensor's strided ones divide what the axes behind them have divided
        in_order = list(zip(names, entry, strict=True))
        placements = sorted(in_order, key=lambda item: type(item[1]).__name__ == "_StridedShard")
    else:
        larger = [name for name, size in mesh.axes if size > 1] or names
        if len(larger) != 1:
            raise ValueError(f"says not along which axis: write {{'{larger[0]}': {entry!r}}}")
        placements = [(larger[0], entry)]
    return dict(_divided(placements))


def _divided(placements: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, int]]:
    for axis, placement in placements:
        dim = getattr(placement, "dim", placement)
        if type(dim) is int:
            yield axis, dim
        elif type(dim).__name__.endswith("Partial"):
            raise ValueError(
                f"is {placement} along '{axis}': a program of whole tensors has no summands; export_on_mesh takes them"
            )
        elif dim is not None and type(dim).__name__ != "Replicate":
            raise ValueError(f"is {placement!r} along '{axis}': Shard(0) or 0 divides, Replicate() or None repeats")
