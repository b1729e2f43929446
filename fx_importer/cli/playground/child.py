"""Code of the processes of compilations: one prepares, and its forks run edited programs, and lower them."""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from pathlib import Path

MODULE = "playground_model"
"""The name of the module that is edited; its function ``build`` returns the model and its inputs."""


PREPARE, COMPILE = (f"{__name__}:{name}" for name in ("prepare", "compile_program"))
"""The functions of this module that `ForkingProcess` calls."""


def prepare() -> None:
    """Import what compilations need, and lower a model, so that forks are fast."""
    import torch

    from fx_importer.api.report import contents_of_models
    from fx_importer.cli.model_loading import silence_torch
    from fx_importer.options import Options
    from fx_importer.output_types import OutputType

    for module in ("fx_importer.cli.commands.import_model", "fx_importer.results.report"):  # of compile_program
        importlib.import_module(module)
    silence_torch()
    sys.dont_write_bytecode = True  # of programs that are imported once
    torch.set_num_threads(1)  # threads do not survive a fork
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Softmax(-1))
    for output_type in (OutputType.LINALG_ON_TENSORS, OutputType.TOSA, OutputType.STABLEHLO):
        contents_of_models("", {"main": (model, (torch.ones(2, 2),), {})}, Options(output_type=output_type))


def compile_program(output_type: str, contents_file: str, result: str) -> None:
    """Lower ``build`` of the module in the working directory, and write what the explorer shows to ``contents_file``.

    ``result`` gets the outcome as JSON: the message of an error, and whether there are contents.
    """
    from fx_importer.api.report import contents_of_models
    from fx_importer.cli.commands.import_model import load_call
    from fx_importer.cli.option_arguments import with_options
    from fx_importer.diagnostics.progress import reporting_progress
    from fx_importer.errors import FxImporterError
    from fx_importer.options import Options
    from fx_importer.output_types import OutputType
    from fx_importer.process.forking_child import NOTES
    from fx_importer.results.report import write_report

    def note(stage: str) -> None:
        os.write(NOTES, f"{stage}\n".encode())

    options = Options(output_type=OutputType.get(output_type))
    try:
        ast.parse(Path(f"{MODULE}.py").read_bytes())  # before the imports of the program
        with reporting_progress(lambda now: note(now.stage)):
            call = load_call(f"{MODULE}:build", trust=False)
            title = getattr(call[0], "__name__", type(call[0]).__name__)
            contents = contents_of_models(title, {"main": call}, options)
        note("the report")
    except SyntaxError as error:
        outcome = {"message": f"SyntaxError: {error.msg} ({MODULE}.py:{error.lineno})", "contents": False}
    except FxImporterError as error:
        outcome = {"message": with_options(str(error)), "contents": False}
    else:
        write_report(contents, contents_file)
        outcome = {"message": with_options(contents["error"] or ""), "contents": True}
    Path(result).write_text(json.dumps(outcome), encoding="utf-8")
