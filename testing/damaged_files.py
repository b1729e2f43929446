"""Damaged and edited files for every reader of ``docs/security.md``: ``python -m testing.damaged_files --files 1000``.

Each file is read in a forked child with limits of CPU time and memory: a death, a traceback, or an opened file outside
of the folder is reported with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from fx_importer import UsageError
from tests.test_damaged_files import READERS, Reader, write_files

SECONDS, BYTES = 60, 16 << 30
_READ, _REFUSED, _TRACEBACK, _OUTSIDE = range(4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=20, help="files for each reader")
    parser.add_argument("--first", type=int, default=5000, help="the first seed")
    parser.add_argument("--reader", action="append", help="only these readers")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = write_files(Path(work))
        os.chdir(tempfile.mkdtemp(dir=work))
        wrong = [_sweep(name, folder, chosen) for name in chosen.reader or READERS]
    sys.exit(1 if any(wrong) else 0)


def _sweep(name: str, folder: Path, chosen: argparse.Namespace) -> int:
    """Print a line of counts for a reader, and return the number of files that did more than be read or refused."""
    reader, start = READERS[name], time.monotonic()
    path = folder / reader.file
    data, counts = path.read_bytes(), [0, 0, 0, 0]
    deaths: list[int] = []
    seed, end = chosen.first, chosen.first + chosen.files
    while seed < end:  # a child reads until the end, or until it dies
        child_read, child_write = os.pipe()
        child = os.fork()
        if not child:
            os.close(child_read)
            _read_files(reader, folder, data, range(seed, end), child_write)
        os.close(child_write)
        with os.fdopen(child_read, "rb") as stream:
            while outcome := stream.read(1):
                counts[outcome[0]] += 1
                if outcome[0] > _REFUSED:
                    print(f"{name}: seed {seed}: {('', '', 'traceback', 'outside')[outcome[0]]}", flush=True)
                seed += 1
        if os.waitpid(child, 0)[1]:
            deaths.append(seed)
            seed += 1
    path.write_bytes(data)
    print(
        f"{name}: {chosen.files} files, {counts[_READ]} read, {counts[_REFUSED]} refused, "
        f"{counts[_TRACEBACK]} tracebacks, {counts[_OUTSIDE]} outside, deaths at {deaths}, "
        f"{time.monotonic() - start:.0f} s",
        flush=True,
    )
    return len(deaths) + counts[_TRACEBACK] + counts[_OUTSIDE]


def _read_files(reader: Reader, folder: Path, data: bytes, seeds: range, pipe: int) -> None:
    """Read the files in a child, and write one byte for each to ``pipe``."""
    opened: list[str] = []
    sys.addaudithook(
        lambda event, arguments: (
            opened.append(f"{event} {arguments[0]!r}") if event in ("open", "os.system", "subprocess.Popen") else None
        )
    )
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    for seed in seeds:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        opened.clear()
        (folder / reader.file).write_bytes(reader.mutate(data, seed))
        try:
            reader.read(folder)
            outcome = _READ
        except UsageError:
            outcome = _REFUSED
        except BaseException:
            outcome = _TRACEBACK
        if Path("ran").exists() or any("etc/passwd" in event or "touch ran" in event for event in opened):
            outcome = _OUTSIDE
        os.write(pipe, bytes([outcome]))
    os._exit(0)


if __name__ == "__main__":
    main()
