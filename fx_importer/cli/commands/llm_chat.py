"""``fx-importer llm chat``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fx_importer.cli.commands.llm import quiet_llm
from fx_importer.cli.terminal import echo
from fx_importer.errors import UsageError


def chat(folder: Path, engine: str | None, device: str, system: str | None, lora: Path | None, **options: Any) -> None:
    """Answer lines of standard input with the options of `Chat.say`, until ``/exit`` or its end."""
    llm = quiet_llm()
    conversation = llm.Chat(llm.load(folder, engine=engine, lora=lora, device=device), system=system)
    prompt = "> " if sys.stdin.isatty() else ""
    while (line := _line(prompt)) not in (None, "/exit"):
        if line == "/reset":
            conversation.reset()
        elif line:
            try:
                conversation.say(line, **options, on_text=lambda text: echo(text, end="", flush=True))
            except UsageError as error:
                echo(f"{error} (/reset)", file=sys.stderr)
            echo()


def _line(prompt: str) -> str | None:
    try:
        return input(prompt).strip()
    except EOFError:
        return None
