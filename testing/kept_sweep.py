"""Lower calls of operators that are kept, each alone, and compare them with eager: what the C++ lowerings get wrong.

python -m testing.kept_sweep --json verdicts.jsonl [--output-type tosa] [--only aten.gelu.default] [--part 0/2]
python -m testing.kept_sweep --json verdicts.jsonl --write   # writes the package's table
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fx_importer import FxImporterError, OutputType, StageFailed, lower
from fx_importer.decompositions import DecompositionTable
from fx_importer.decompositions.engine.kept.fault_table import write_fault_table
from fx_importer.targets import target_for
from testing.kept_calls import RecordedCall, recorded, value_sets, without_rows
from testing.op_cases import OUTPUT_TYPES

SECONDS = 60
"""Time limit of a call."""
TOLERANCES = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Relative to the element, and a tenth of it relative to the largest of the tensor."""


@dataclass(frozen=True)
class Verdict:
    """What came of a call on some values."""

    operator: str
    output_type: str
    key: str
    call: str
    values: str
    kind: str
    """``right``, ``off``, ``wrong`` (another shape or dtype), ``refused``, ``dies``, ``stops in the backend``."""
    by: float = 0.0
    """The largest relative difference; of integers, the largest absolute one."""
    why: str = ""


def swept_operators(output_type: str) -> dict[str, Any]:
    """Return the ATen operators that have a decomposition for an output type, by name."""
    table = target_for(OutputType.get(output_type)).decompositions
    return {
        str(operator): operator
        for operator in table
        if getattr(operator, "namespace", "") == "aten" and not operator._schema.is_mutable
    }


def verdicts(call: RecordedCall, output_type: str, *, dynamic: bool = False) -> Iterator[Verdict]:
    """Yield a verdict about each set of values of ``call``, with its operator kept."""
    named = str(call.operator), output_type, call.key + (" dynamic" if dynamic else ""), call.described
    yield Verdict(*named, "", "lowering")
    table: DecompositionTable = target_for(OutputType.get(output_type)).decompositions
    tensors = call.tensors()
    shapes = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in tensors)
    try:
        program = torch.export.export(call.module(), tuple(tensors), dynamic_shapes=(shapes,) if dynamic else None)
        if dynamic and not program.range_constraints:
            return
        if not any(node.target is call.operator for node in program.graph.nodes):
            yield Verdict(*named, "", "not kept", why="torch.export decomposes it")
            return
    except Exception as error:
        yield Verdict(*named, "", "not kept", why=f"export: {str(error)[:200]}")
        return
    try:
        lowered = lower(program, output_type=output_type, decomposition_table=table.keeping(call.operator))
    except FxImporterError as error:
        stage = error.stage if isinstance(error, StageFailed) else type(error).__name__
        yield Verdict(*named, "", "refused", why=f"{stage}: {' '.join(str(error).split())[:200]}")
        return
    yield Verdict(*named, "", "running")
    sets = [*value_sets(call)]
    if dynamic and (rows := without_rows(call, program)):
        sets.append(("no rows", rows))
    for name, values in sets:
        eager = call.module()(*(each.clone() for each in values))
        try:
            ours = lowered.run(*(each.clone() for each in values))
        except Exception as error:
            yield Verdict(*named, name, "stops in the backend", why=f"{' '.join(str(error).split())[:200]}")
            return
        yield Verdict(*named, name, *difference(ours, eager))


def difference(ours: Any, eager: Any) -> tuple[str, float, str]:
    """Return the kind of the worst difference between results, how large it is, and where."""
    got, wanted = pytree.tree_leaves(ours), pytree.tree_leaves(eager)
    if len(got) != len(wanted):
        return "wrong", 0.0, f"{len(got)} results where eager has {len(wanted)}"
    found = [_difference(torch.as_tensor(a), torch.as_tensor(e)) for a, e in zip(got, wanted, strict=True)]
    order = ("wrong", "off", "right")
    return min(found, key=lambda each: (order.index(each[0]), -each[1]), default=("right", 0.0, ""))


def _difference(ours: Tensor, eager: Tensor) -> tuple[str, float, str]:
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        return "wrong", 0.0, f"{ours.dtype} {list(ours.shape)} where eager has {eager.dtype} {list(eager.shape)}"
    if not eager.numel():
        return "right", 0.0, ""
    a, e = (x.reshape(-1) for x in (ours, eager))
    if eager.dtype.is_complex:
        a, e = (torch.view_as_real(x.resolve_conj()).reshape(-1) for x in (a, e))
    unit = TOLERANCES.get(e.dtype, 0.0)
    if e.is_floating_point():
        a, e = a.double(), e.double()
        finite = e.isfinite() & a.isfinite()
        largest = float(e[finite].abs().max()) if finite.any() else 1.0
        size = (a - e).abs()
        wrong = torch.where(finite, size > unit * e.abs() + unit / 10 * largest, ~((a == e) | (a.isnan() & e.isnan())))
        relative = torch.where(finite, size / e.abs().clamp(min=1e-30), torch.inf)
    else:
        wrong, relative = a != e, (a.double() - e.double()).abs()
    if not wrong.any():
        return "right", 0.0, ""
    place = int(torch.where(wrong, relative, -1.0).argmax())
    text = f"{int(wrong.sum())} of {wrong.numel()}, such as {a[place].item():.6g} where eager has {e[place].item():.6g}"
    return "off", float(relative[place]), text


def swept(calls: Sequence[RecordedCall], output_type: str, *, dynamic: bool = False) -> Iterator[Verdict]:
    """Yield the verdicts about ``calls``, in forks of this process: one that dies is the verdict of its call."""
    first = 0
    while first < len(calls):
        last: Verdict | None = None
        number = first
        for index, verdict in _forked(calls, first, output_type, dynamic):
            if last is not None and last.kind not in ("lowering", "running"):
                yield last
            last, number = verdict, index
            if isinstance(verdict, Verdict) and verdict.kind == "ended":
                break
        assert last is not None
        if last.kind == "ended":
            return
        status = _Forked.status
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status}"
        kind = "stops in the backend" if last.kind == "running" else "dies"
        named = (last.operator, last.output_type, last.key, last.call, last.values)
        yield Verdict(*named, "does not end" if how == "SIGALRM" else kind, why=how)
        first = number + 1


class _Forked:
    status = 0


def _forked(calls: Sequence[RecordedCall], first: int, output_type: str, dynamic: bool) -> Iterator[tuple[int, Any]]:
    """Yield verdicts with the index of the call from a fork, and one of kind ``ended`` if it did not die."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        with os.fdopen(write, "w") as pipe:
            for index in range(first, len(calls)):
                signal.alarm(SECONDS)
                for verdict in verdicts(calls[index], output_type, dynamic=dynamic):
                    pipe.write(json.dumps([index, asdict(verdict)]) + "\n")
                    pipe.flush()
            pipe.write(json.dumps([len(calls), asdict(Verdict("", "", "", "", "", "ended"))]) + "\n")
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        for line in pipe:
            index, fields = json.loads(line)
            yield index, Verdict(**fields)
    _Forked.status = os.waitpid(child, 0)[1]


def main() -> None:
    """Sweep, and append verdicts to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--output-type", choices=OUTPUT_TYPES, nargs="+", default=[*OUTPUT_TYPES])
    parser.add_argument("--only", nargs="+", help="names of operators")
    parser.add_argument("--part", default="0/1", help="a share of the operators")
    parser.add_argument("--write", action="store_true", help="write the package's table from the verdicts")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.write:
        from testing.kept_rows import table

        write_fault_table(table(map(json.loads, arguments.json.read_text().splitlines())))
        return
    part, parts = map(int, arguments.part.split("/"))
    names = {name: op for kind in arguments.output_type for name, op in swept_operators(kind).items()}
    chosen = [names[name] for name in sorted(names) if not arguments.only or name in arguments.only][part::parts]
    calls = recorded(chosen)
    torch.export.export(torch.nn.ReLU(), (torch.ones(2),))  # imports what forks need
    children = [_fork(arguments.json, calls, kind) for kind in arguments.output_type]
    for child in children:
        os.waitpid(child, 0)


def _fork(path: Path, calls: Sequence[RecordedCall], output_type: str) -> int:
    """Sweep ``calls`` for one output type in a fork; return its process."""
    if child := os.fork():
        return child
    with path.open("a", encoding="utf-8") as file:
        for verdict in phases(calls, output_type):
            file.write(json.dumps(asdict(verdict)) + "\n")
            file.flush()
    os._exit(0)


def phases(calls: Sequence[RecordedCall], output_type: str) -> Iterator[Verdict]:
    """Yield the verdicts about a call of each operator; then those about the calls of operators that are lowered.

    Those are the first call of each other dtype, the remaining calls of dtypes that are lowered, and one with dynamic
    sizes.
    """
    wanted = swept_operators(output_type)
    operators: dict[str, dict[str, list[RecordedCall]]] = {}
    for call in calls:
        if (name := str(call.operator)) in wanted:
            operators.setdefault(name, {}).setdefault(call.key.partition(" ")[0], []).append(call)
    taken: set[tuple[str, str]] = set()

    def noting(found: Iterable[Verdict]) -> Iterator[Verdict]:
        for verdict in found:
            if verdict.kind not in ("refused", "not kept"):
                taken.add((verdict.operator, verdict.key.partition(" ")[0]))
            yield verdict

    firsts = [next(iter(dtypes.values()))[0] for dtypes in operators.values()]
    yield from noting(swept(firsts, output_type))
    lowered = sorted({name for name, _ in taken})
    others = [group[0] for name in lowered for group in [*operators[name].values()][1:]]
    yield from noting(swept(others, output_type))
    rest = [call for name, dtype in sorted(taken) for call in operators[name][dtype][1:]]
    yield from swept(rest, output_type)
    dynamic = [operators[name]["float32"][0] for name, dtype in sorted(taken) if dtype == "float32"]
    yield from swept(dynamic, output_type, dynamic=True)


if __name__ == "__main__":
    sys.exit(main())
