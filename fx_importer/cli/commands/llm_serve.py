"""``fx-importer llm serve``."""

from __future__ import annotations

import socket
from pathlib import Path

from fx_importer.cli.commands.llm import quiet_llm
from fx_importer.cli.terminal import echo
from fx_importer.errors import NotInstalledError, UsageError
from fx_importer.process.optional_packages import is_installed


def serve(
    folder: Path, engine: str | None, device: str, host: str, port: int, name: str | None, lora: Path | None
) -> None:
    """Serve the model in ``folder`` on HTTP, until the process is interrupted.

    Raises:
        NotInstalledError: naming the extra, without starlette or uvicorn.
        UsageError: for a folder whose cache is not in pages, or an address that cannot be listened on.
    """
    if missing := [package for package in ("starlette", "uvicorn") if not is_installed(package)]:
        raise NotInstalledError("fx-importer llm serve", " and ".join(missing), "serve")
    llm = quiet_llm()
    import uvicorn

    from fx_importer.llm.paged_model import PagedModel
    from fx_importer.llm.serving.app import Server
    from fx_importer.llm.serving.connections import server_config
    from fx_importer.llm.settings import Settings

    with _listening(host, port) as listening:
        if Settings.read(folder).page_size is None:
            raise UsageError(f"'{folder}' has a static cache: import the model with --cache paged to serve it")
        model = llm.load(folder, engine=engine, lora=lora, device=device)
        assert isinstance(model, PagedModel)
        server = Server(model, name or folder.resolve().name)
        address, port = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        echo(f"serving '{server.name}' on {llm.engine_for(device, engine)} at http://{shown}:{port}/v1", flush=True)
        hosts = ("localhost", address) if address == "127.0.0.1" else ("*",)
        uvicorn.Server(server_config(server.app(hosts))).run([listening])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}, port {port}: {error}") from None
