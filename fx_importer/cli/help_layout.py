"""The layout of ``--help``: commands and options in groups, and an example of each command."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from fx_importer.cli.interruption import interruptible
from fx_importer.cli.terminal import writing
from fx_importer.errors import UsageError

SECTIONS = {
    "Lower": ("import", "llm", "quantize", "vela", "build", "opt", "link", "compile", "kernels", "demo"),
    "Check": ("verify", "matrix", "bench", "explain"),
    "Look": ("view", "serve", "show", "diff", "pipeline", "pipelines", "decompositions"),
    "Failures": ("reduce", "reproduce"),
    "Installation": ("doctor", "cache"),
}
"""The commands, in the order of the help."""

HANDLE_INTERRUPTS = ("serve", "llm serve", "llm chat")
"""Commands for which Ctrl-C is no failure."""

EXAMPLES = {
    "import": "fx-importer import examples.mlp:build --output-type linalg -o mlp.mlirbc",
    "llm import": "fx-importer llm import path/to/checkpoint --quantize int4 -o model",
    "llm run": "fx-importer llm run model --prompt 'Once upon a time' --engine iree",
    "llm chat": "fx-importer llm chat model --temperature 0.7",
    "llm serve": "fx-importer llm serve paged --port 8000",
    "llm build": "fx-importer llm build model -o lm --target aarch64",
    "llm score": "fx-importer llm score model --text 'Once upon a time'",
    "quantize": "fx-importer quantize examples.mlp:build --tries 2 -o quantized.pt2",
    "vela": "fx-importer vela examples.mlp:build --accelerator ethos-u85-256",
    "build": "fx-importer build examples.mlp:build -o mlp",
    "opt": "fx-importer opt mlp.mlirbc --pipeline canonicalize,cse,my_package.passes:fuse",
    "link": "fx-importer link mlp.mlirbc -o linked.mlirbc",
    "compile": "fx-importer compile mlp.mlirbc --target cuda:sm_90 -o mlp.vmfb",
    "kernels": "fx-importer kernels model.mlirbc --target cuda:sm_90 -o kernels",
    "demo": "fx-importer demo --out out",
    "verify": "fx-importer verify examples.mlp:build --backend jit --bisect",
    "matrix": "fx-importer matrix examples.mlp:build --output-type linalg --backend jit",
    "bench": "fx-importer bench examples.mlp:build --engines jit,iree --threads 1",
    "explain": "fx-importer explain examples.mlp:build --output-type tosa",
    "view": "fx-importer view examples.mlp:build --output-type tosa -o mlp.html",
    "serve": "fx-importer serve --output-type tosa --time-limit 30",
    "show": "fx-importer show mlp.mlirbc",
    "diff": "fx-importer diff old.mlirbc new.mlirbc",
    "pipeline": "fx-importer pipeline examples.mlp:build --engine jit --run",
    "pipelines": "fx-importer pipelines --output-type tosa",
    "decompositions": "fx-importer decompositions examples.mlp:build --output-type stablehlo",
    "reduce": "fx-importer reduce examples.mlp:build --output-type tosa -o reduced",
    "reproduce": "fx-importer reproduce reports/fx-importer-report-abc",
    "doctor": "fx-importer doctor",
    "cache": "fx-importer cache --clear",
}
"""An example of each command, by its words after ``fx-importer``."""


class Command(TyperCommand):
    """A command whose help has options in groups, and an example. Ctrl-C ends it, unless it handles that itself."""

    def invoke(self, ctx: Any) -> Any:
        _check_outputs(ctx.params)
        words = " ".join(ctx.command_path.split()[1:])
        if words in HANDLE_INTERRUPTS:
            return super().invoke(ctx)
        with interruptible(words):
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with writing(sys.stdout):  # --help prints
            return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            panel = parameter.rich_help_panel if isinstance(parameter, TyperOption) else "Arguments"
            if (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(panel or "Options", []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        example = EXAMPLES.get(" ".join(ctx.command_path.split()[1:]))
        if example:
            formatter.write(f"\nExample:\n  {example}\n")


def _check_outputs(values: Mapping[str, Any]) -> None:
    """Raise `UsageError` if two of the options that name output files name the same one."""
    files: dict[Path, str] = {}
    for option in ("output", "manifest", "weights_file", "report", "json"):
        value = values.get(option)
        if value is None or isinstance(value, (list, tuple)) or str(value) == "-":
            continue
        spelled = f"--{option.replace('_', '-')}"
        if (other := files.setdefault(Path(value).resolve(), spelled)) != spelled:
            raise UsageError(f"{other} and {spelled} are the same file '{value}': name two files")


class Group(TyperGroup):
    """A group of commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with writing(sys.stdout):  # --help prints
            return super().parse_args(ctx, args)


class Commands(Group):
    """Commands in sections."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in SECTIONS.values() for name in names if name in self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for section, names in SECTIONS.items():
            commands = [self.commands[name] for name in names if name in self.commands]
            rows = [
                (f"{command.name:<{width}}", command.get_short_help_str(formatter.width - width - 6))
                for command in commands
            ]
            with formatter.section(section):
                formatter.write_dl(rows)
