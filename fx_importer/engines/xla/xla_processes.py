"""Several processes whose XLA devices form one mesh, by ``jax.distributed``."""

from __future__ import annotations

import importlib
import math
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from fx_importer.engines.xla.engine import XLA_ENGINE
from fx_importer.errors import UsageError

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def join_processes(devices: int = 1, *, timeout: float = 60.0) -> None:
    """Make this process one of those that ``torchrun`` or ``fx-importer launch`` has started, for meshes over all.

    It is called before anything runs on XLA. Then a mesh has the devices of all processes, in the order of
    their ranks, and each process calls the same functions in the same order.

    Args:
        devices: devices of the host that this process adds; the same in all.
        timeout: seconds to wait for the other processes; and without a sign of life of one, until XLA ends this one.

    Raises:
        NotInstalledError: without the extra ``xla``.
        UsageError: if the process was not started by a launcher, XLA has started already, or others do not come.
    """
    XLA_ENGINE.check_installed()
    if missing := [name for name in _ENVIRONMENT if name not in os.environ]:
        raise UsageError(
            f"{', '.join(missing)} are not set: start the script with 'torchrun --nproc-per-node 2 SCRIPT' or "
            "'fx-importer launch --processes 2 SCRIPT'"
        )
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = _coordinator(rank, size, timeout)
    jax = XLA_ENGINE.imported("jax")
    try:
        jax.config.update("jax_num_cpu_devices", devices)
        seconds = math.ceil(timeout)
        jax.distributed.initialize(
            address, size, rank, initialization_timeout=seconds, heartbeat_timeout_seconds=max(seconds, 10)
        )
    except RuntimeError as error:
        raise UsageError(f"process {rank} cannot join the others: {error}") from error


def _coordinator(rank: int, size: int, timeout: float) -> str:
    """Wait for all processes, and return the address that the first one has chosen for ``jax.distributed``."""
    distributed: Any = importlib.import_module("torch.distributed")
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    prefix = f"fx_importer/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        store: Any = distributed.TCPStore(
            host,
            port,
            is_master=rank == 0 and not of_launcher,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
        )
    except RuntimeError as error:
        raise UsageError(
            f"process {rank} of {size} has waited {timeout:g} s for the first one, at {host}:{port}, in vain"
        ) from error
    keys = [f"{prefix}/{number}" for number in range(size)]
    if rank == 0:
        with socket.create_server((host, 0)) as server:
            free = server.getsockname()[1]
        store.set(keys[0], f"{host}:{free}")
    else:
        store.set(keys[rank], "")
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError as error:
        late = [str(number) for number, key in enumerate(keys) if not store.check([key])]
        raise UsageError(
            f"process {rank} of {size} has waited {timeout:g} s for {', '.join(late)} in vain: they have not called "
            "join_processes"
        ) from error
    _HELD.append(store)  # the service of the first process has to outlive the others' questions
    return store.get(keys[0]).decode()


_HELD: list[Any] = []


@contextmanager
def among_processes() -> Iterator[None]:
    """Say in a sentence what fails because of other processes: one that has ended, or passes other values."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:  # jax's own are RuntimeErrors
        jax = XLA_ENGINE.imported("jax")
        if not jax.distributed.is_initialized():
            raise
        reason = str(error).strip().splitlines()[0]
        if isinstance(error, AssertionError):
            raise UsageError(f"the processes of the mesh pass different values: {reason}") from error
        raise UsageError(f"a process of the mesh does not take part any more: {reason}") from error
