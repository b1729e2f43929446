"""Compare locally decomposed graphs with those of `run_decompositions`: OpInfo's operators, and the zoo's models.

    python -m benchmarks.decomposed_graphs                        # OpInfo's first samples, to every table
    python -m benchmarks.decomposed_graphs --models               # the zoo, as it is and with a dynamic batch
    python -m benchmarks.decomposed_graphs --tables tosa --shard 0/4

The local decomposer's graphs and `ExportedProgram.run_decompositions`'s are canonicalized, and compared node for node.
"""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from types import FrameType

import torch
from torch.export import ExportedProgram

from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.driver import CANONICAL
from fx_importer.decompositions import BASE, LINALG, STABLEHLO, TOSA, DecompositionTable
from fx_importer.decompositions.engine.decompose import prepare, retrace
from fx_importer.decompositions.engine.local import RetraceRequired, decompose_locally
from fx_importer.fx_passes.runner import run_fx_passes
from fx_importer.options import Options
from testing.op_cases import calls, dtype_for, operators
from testing.zoo import ZOO
from tests.decompositions.engine.same_graph import differences

TABLES = {"base": BASE, "linalg": LINALG, "tosa": TOSA, "stablehlo": STABLEHLO}


def canonicalize(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program`` in normal form."""
    context = Compilation.of(Options()).fx_context({"main": program})
    return run_fx_passes(CANONICAL, {"main": program}, context)["main"]


def outcome(program: ExportedProgram, table: DecompositionTable) -> tuple[str, str]:
    """Return a verdict on the two graphs in a word, and the reason if they differ."""
    try:
        ours = canonicalize(decompose_locally(prepare(program), {**table}))
    except RetraceRequired as reason:
        return "declined", str(reason)
    except TimeoutError:
        raise
    except Exception as error:
        return "fails", f"{type(error).__name__}: {error}"
    try:
        theirs = canonicalize(retrace(prepare(program), {**table}))
    except TimeoutError:
        raise
    except Exception as error:
        return "only ours", f"torch: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    found = differences(ours, theirs)
    return ("differs", "; ".join(found)) if found else ("same", "")


def operator_programs(names: Sequence[str]) -> Iterator[tuple[str, ExportedProgram]]:
    """Yield the first sample of each operator that torch.export accepts."""
    known = operators()
    for name in names:
        dtype = dtype_for(known[name])
        for call in calls(known[name], dtype, 1) if dtype is not None else ():
            try:
                yield name, torch.export.export(call, call.tensors())
            except Exception:
                break


def model_programs(names: Sequence[str]) -> Iterator[tuple[str, ExportedProgram]]:
    """Yield each model, and also with a dynamic batch if it can be exported so."""
    for name in names:
        for shapes in {id(each): each for each in (None, ZOO[name].dynamic_shapes)}.values():
            model, args, kwargs = ZOO[name].build()
            program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
            yield f"{name} (dynamic)" if shapes else name, program


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError("it takes too long")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print differences and counts; exit with 1 if one of our graphs differs or is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", action="store_true", help="the models of the zoo instead of operators")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"of {', '.join(TABLES)}")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th, from the i-th on")
    parser.add_argument("--seconds", type=int, default=120, help="time limit for one program and table")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(100_000)  # graphs are compared recursively from their results
    start, step = map(int, options.shard.split("/"))
    names = sorted(ZOO if options.models else operators())[start::step]
    counts: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, _too_long)
    for name, program in model_programs(names) if options.models else operator_programs(names):
        for table in options.tables.split(","):
            signal.alarm(options.seconds)
            try:
                word, reason = outcome(program, TABLES[table])
            except TimeoutError as error:
                word, reason = "too long", str(error)
            finally:
                signal.alarm(0)
            counts[word] += 1
            if word != "same":
                print(f"{name}, {table}: {word}: {reason[:200]}", flush=True)
    print(", ".join(f"{word}: {count}" for word, count in counts.most_common()))
    return int(bool(counts["differs"] or counts["fails"]))


if __name__ == "__main__":
    sys.exit(main())
