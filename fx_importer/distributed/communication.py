"""The bytes that the collectives of a program move, counted from its operations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from fx_importer.distributed.mesh import Groups, Mesh
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.walk import operations

_BITS = re.compile(r"\d+")
_PER_OPERAND = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "collective_broadcast": lambda n: 1.0 if n > 1 else 0.0,
    "collective_permute": lambda n: 1.0 if n > 1 else 0.0,
}
"""What each device of a group of ``n`` sends, in sizes of its operand: the ring algorithms of Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009). A broadcast passes all on once."""

_Found = tuple[str, str, Groups, int]
"""The kind, the type of the result, the groups, and the bytes of the operand."""


@dataclass(frozen=True)
class Collective:
    """Collectives of one kind, type and groups, and the bytes that each device sends."""

    kind: str
    """``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``collective_broadcast`` or
    ``collective_permute``."""
    type: str
    """Of the result on each device: ``f32[4,8]``; several of one that XLA has combined."""
    devices: int
    """How many devices a group has."""
    axes: tuple[str, ...] | None
    """The axes of the mesh along which the devices of a group differ; None if they are no axes, or not known."""
    count: int
    """How often it is in the program; one in the body of a loop counts once."""
    nbytes: int
    """The bytes of the operand on each device."""

    @property
    def sent(self) -> int:
        """The bytes that each device sends, in all ``count`` of them."""
        return round(self.count * self.nbytes * _PER_OPERAND[self.kind](self.devices))


@dataclass(frozen=True)
class Communication:
    """The collectives of a program."""

    collectives: tuple[Collective, ...]

    @property
    def sent(self) -> int:
        """The bytes that each device sends in a call."""
        return sum(collective.sent for collective in self.collectives)

    def __str__(self) -> str:
        """Return a table."""
        head = ("collective", "result", "along", "devices", "count", "bytes", "sent by each device")
        rows = [
            (
                collective.kind,
                _shortened(collective.type),
                "·".join(collective.axes or ("?",)),
                collective.devices,
                collective.count,
                collective.nbytes,
                collective.sent,
            )
            for collective in self.collectives
        ]
        table = [
            head,
            *rows,
            ("in all", "", "", "", sum(collective.count for collective in self.collectives), "", self.sent),
        ]
        text = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in table]
        widths = [max(len(row[at]) for row in text) for at in range(len(head))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if at < 3 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in text
        )


def _shortened(types: str) -> str:
    first, *others = types.split(" ")
    return f"{first} and {len(others)} more" if others else first


def of_function(module: ir.Module, name: str, mesh: Mesh) -> Communication:
    """Return the collectives of a function in StableHLO, the program of each device of ``mesh``.

    Those of a function that is called several times are counted as often. A dynamic size counts as 1.
    """
    functions = {op.name.value: op for op in module.body if isinstance(op, func_d.FuncOp)}
    return _counted(_in_function(functions[name].operation, functions), mesh)


def _in_function(function: ir.Operation, functions: Mapping[str, func_d.FuncOp]) -> Iterator[_Found]:
    for op in operations(function, ("func.call", *(f"stablehlo.{kind}" for kind in _PER_OPERAND))):
        if op.name == "func.call":
            yield from _in_function(functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].operation, functions)
            continue
        shape, element = _shape_and_element(op.operands[0])
        shown = ",".join(map(str, _shape_and_element(op.results[0])[0]))
        yield (
            op.name.removeprefix("stablehlo."),
            f"{element}[{shown}]",
            groups_of(op),
            math.prod(shape) * _bytes(element),
        )


def _shape_and_element(value: ir.Value) -> tuple[list[int], str]:
    type_ = ir.RankedTensorType(value.type)
    shape = [1 if type_.is_dynamic_dim(at) else type_.get_dim_size(at) for at in range(type_.rank)]
    return shape, str(type_.element_type)


def of_hlo(text: str, mesh: Mesh) -> Communication:
    """Return the collectives of a program that XLA has compiled for ``mesh``, as it prints it."""
    return _counted(_in_hlo(text, mesh), mesh)


def _counted(communication: Iterable[_Found], mesh: Mesh) -> Communication:
    rows = Counter(communication)
    made = [
        Collective(kind, type_, max(map(len, groups)), _axes(kind, groups, mesh), count, nbytes)
        for (kind, type_, groups, nbytes), count in rows.items()
    ]
    return Communication(tuple(sorted(made, key=lambda collective: -collective.sent)))


def _axes(kind: str, groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    if kind == "collective_permute":  # pairs, and no groups
        return None
    axes = mesh.axes_of(sorted(groups[0]))
    return axes if axes is not None and {*map(frozenset, groups)} == {*map(frozenset, mesh.groups(axes))} else None


def groups_of(op: ir.Operation) -> Groups:
    """Return the groups of devices of a collective in StableHLO; of a permutation, pairs of source and target."""
    name = "source_target_pairs" if op.name == "stablehlo.collective_permute" else "replica_groups"
    columns = ir.ShapedType(op.attributes[name].type).shape[1]
    flat = list(ir.DenseIntElementsAttr(op.attributes[name]))
    return tuple(tuple(flat[at : at + columns]) for at in range(0, len(flat), columns))


def _bytes(element: str) -> int:
    """Return the bytes of an element, of MLIR's spelling or XLA's: ``i1`` and ``pred`` have one."""
    bits = 8 if element in ("i1", "pred") else int(_BITS.findall(element)[0])
    return bits * (2 if element.startswith("complex<") else 1) // 8


# --- HLO ------------------------------------------------------------------------------------------------------------

_CALL = re.compile(
    r"= (?P<types>.*?) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-broadcast|"
    r"collective-permute)(?:-start)?\((?P<rest>.*)"
)
_TYPE = re.compile(r"(?P<element>[a-z]+\d*(?:e\d+m\d+\w*)?)\[(?P<shape>[\d,]*)\]")
_LISTED = re.compile(r"(?:replica_groups|source_target_pairs)=\{(?P<groups>\{[\d,{} ]*\})\}")
_IOTA = re.compile(r"replica_groups=\[(?P<shape>[\d,]+)\]<=\[(?P<sizes>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[(?P<axes>[^\]]*)\](?:, device_ids=\(\[(?P<sizes>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?\))? "
    r"\{(?P<along>[^}]*)\}"
)


def _in_hlo(text: str, mesh: Mesh) -> Iterator[_Found]:
    for line in text.splitlines():
        call = _CALL.search(line)
        if call is None:
            continue
        kind = call["kind"].replace("-", "_")
        groups = _groups_of_hlo(call["rest"], mesh)
        types = _TYPE.findall(call["types"])
        if "-start(" in line and kind != "all_reduce":  # results of starts are operands and results
            types = types[len(types) // 2 :]
        count = len(groups[0])
        nbytes = sum(math.prod(_numbers(shape)) * _bytes(element) for element, shape in types)
        if kind == "all_gather":
            nbytes //= count
        elif kind == "reduce_scatter":
            nbytes *= count
        yield kind, " ".join(f"{element}[{shape}]" for element, shape in types), groups, nbytes


def _numbers(text: str) -> list[int]:
    return [int(digits) for digits in text.split(",") if digits]


def _groups_of_hlo(text: str, mesh: Mesh) -> Groups:
    """Return groups, which XLA lists, writes as a transposed range, or as axes of a mesh of its own."""
    if match_ := _LISTED.search(text):
        return tuple(tuple(_numbers(group)) for group in re.findall(r"\{([\d,]*)\}", match_["groups"]))
    if match_ := _IOTA.search(text):
        shape = _numbers(match_["shape"])
        flat = _range(_numbers(match_["sizes"]), _numbers(match_["order"] or ""))
        return tuple(tuple(flat[at : at + shape[-1]]) for at in range(0, len(flat), shape[-1]))
    if match_ := _MESH.search(text):
        axes = tuple((name, int(size)) for name, size in re.findall(r"'(\w+)'=(\d+)", match_["axes"]))
        devices = _range(_numbers(match_["sizes"] or "") or [mesh.size], _numbers(match_["order"] or ""))
        along = re.findall(r"'(\w+)'", match_["along"])
        return tuple(tuple(devices[at] for at in group) for group in Mesh(axes).groups(along))
    if (match_ := re.search(r"replica_groups=(?!\{\})\S*", text)) is not None:
        raise UsageError(f"XLA writes groups of devices as '{match_[0]}', which is not known here")
    return (tuple(range(mesh.size)),)


def _range(sizes: list[int], order: list[int]) -> list[int]:
    """Return the numbers of a row-major array of ``sizes`` whose axes are put in another ``order``."""
    whole = torch.arange(math.prod(sizes)).reshape(sizes)
    return (whole.permute(order) if order else whole).flatten().tolist()
