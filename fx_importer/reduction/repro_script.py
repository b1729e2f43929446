"""A stand-alone Python script that reproduces a failure without the original model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from fx_importer.mlir.output_files import file_for_torch
from fx_importer.options import ImportOptions, Mutation, Options
from fx_importer.reduction.program_source import Listing
from fx_importer.reduction.symptom import Kind, Symptom
from fx_importer.verification import Tolerance
from fx_importer.verification.definitions import Definitions
from fx_importer.verification.function_source import NotPythonError
from fx_importer.verification.python_source import lower_arguments

_ENDS = {
    Kind.FAILED: "with 1 while it fails",
    Kind.MISMATCH: "with 1 while it does not match eager PyTorch",
    Kind.CRASHED: "with 1 while that ends its process",
    Kind.TIMED_OUT: "with 1 while that takes longer than {seconds} seconds",
}

_IN_PROCESS = """\
try:
{body}
except fx_importer.FxImporterError as error:
    print(error)
    sys.exit(1)
"""

_IN_CHILD_PROCESS = """\
if "here" in sys.argv[1:]:
{body}
    sys.exit()

# In a process of its own, whose end this one lives to tell, and which ends with this one.
child = subprocess.Popen(ending_with_parent([sys.executable, __file__, "here"]), stdin=subprocess.PIPE)
try:
    code = child.wait({seconds})
except subprocess.TimeoutExpired:
    child.kill()
    sys.exit("it had not ended after {seconds} seconds")
if code < 0:
    sys.exit(f"it was ended by the signal {{signal.Signals(-code).name}}")
if code:
    sys.exit(f"it ended with exit code {{code}}")
"""


_LIFELINE = "from fx_importer.process.parent_watchdog import ending_with_parent"


@dataclass(frozen=True)
class Setting:
    """Everything a failure depends on except the program."""

    options: Options
    backend: str | None
    """The backend that the lowered program fails on, if it fails there."""
    tolerance: Tolerance
    definitions: Definitions = field(default_factory=Definitions)
    """What defines the rules, the passes and the custom operators, for the script."""


def script_of(program: Listing | ExportedProgram, setting: Setting, symptom: Symptom, seconds: float) -> str:
    """Return a Python script that lowers ``program``, and runs it if the failure occurs at run time.

    Data too large for the script goes to files next to it: tensors to ``saved.pt``, a program without Python source to
    ``reduced.pt2``. ``seconds`` is the time limit of a stage, or of the crash of one.
    """
    definitions = setting.definitions
    listing = program if isinstance(program, Listing) else None
    rules, remarks = _defined(program, setting)
    files = "Path(__file__).with_name"
    if listing is None:
        defined = [f'model = torch.export.load({files}("reduced.pt2"))']
    else:
        saved = [f'saved = torch.load({files}("saved.pt"))'] if listing.saved else []
        defined = [*saved, str(listing)]
    text = "\n".join(defined)
    body = "\n".join(f"    {line}" for line in _calls(listing, setting, rules))
    limit = f"{seconds:.0f}"
    form = _IN_PROCESS if symptom.kind in (Kind.FAILED, Kind.MISMATCH) else _IN_CHILD_PROCESS
    used = {
        "import math": "math." in text,
        "import operator": "operator." in text,
        "import signal": form is _IN_CHILD_PROCESS,
        "import subprocess": form is _IN_CHILD_PROCESS,
        "from pathlib import Path": files in text,
    }
    return "\n".join(
        [
            f'"""{_title(symptom)}',
            "",
            f"Exits with 0 if all is well, and {_ENDS[symptom.kind].format(seconds=limit)}.",
            '"""',
            "",
            *(line for line, wanted in used.items() if wanted),
            definitions.text,
            *([_LIFELINE] if form is _IN_CHILD_PROCESS else []),
            *(["", *remarks] if remarks else []),
            "",
            text,
            "",
            form.format(body=body, seconds=limit),
        ]
    )


def _title(symptom: Symptom) -> str:
    return str(symptom).replace("\\", "/").replace('"""', "'''")[:110]


def _defined(program: Listing | ExportedProgram, setting: Setting) -> tuple[list[str], list[str]]:
    """Return the keyword arguments of `lower`, and comments on what has no definition outside of this process."""
    remarks: list[str] = []
    for operator in _operators(program):
        try:
            setting.definitions.operator(operator)
        except NotPythonError as error:
            remarks.append(f"# {error}")
    try:
        return lower_arguments(setting.options, setting.definitions), list(dict.fromkeys(remarks))
    except NotPythonError as error:
        return [f"output_type={setting.options.output_type.value!r}"], [*dict.fromkeys(remarks), f"# {error}"]


def _operators(program: Listing | ExportedProgram) -> list[OpOverload]:
    lines = program.lines if isinstance(program, Listing) else program.graph.nodes
    return [line.target for line in lines if isinstance(line.target, OpOverload)]


def _calls(listing: Listing | None, setting: Setting, rules: list[str]) -> list[str]:
    options = setting.options
    keywords = [*rules]
    if listing is not None and listing.dynamic_shapes:
        keywords.append("dynamic_shapes=dynamic_shapes")
    keywords += import_arguments(options.importing)
    what = "model" if listing is None else "Model(), *inputs"
    call = f"fx_importer.lower({what}, {', '.join(keywords)})"
    if setting.backend is None:
        return [call]
    first = "" if listing is None else "*inputs, "
    limits = {"rtol": setting.tolerance.rtol, "atol": setting.tolerance.atol}
    tolerance = "".join(f", {key}={value!r}" for key, value in limits.items() if value is not None)
    return [
        f"lowered = {call}",
        f"verdict = lowered.verify({first}backends=[{setting.backend!r}], isolate=False{tolerance})",
        "verdict.raise_if_failed()",
    ]


def import_arguments(options: ImportOptions) -> list[str]:
    """Return the keyword arguments of `lower` that differ from the defaults."""
    default = ImportOptions()
    keywords: dict[str, Any] = {}
    if options.mutation is not Mutation.ERROR:
        keywords["mutation"] = options.mutation.value
    if options.func_name != default.func_name:
        keywords["func_name"] = options.func_name
    if options.symbolic_shapes:
        keywords["import_symbolic_shape_expressions"] = True
    if options.runtime_asserts:
        keywords["runtime_asserts"] = True
    if options.weights is not default.weights:
        keywords["weights"] = options.weights.value
    if options.outline_layers:
        keywords["outline_layers"] = True
    if options.mesh is not None:
        keywords["mesh"] = options.mesh
    if options.plan is not None:
        keywords["plan"] = options.plan
    return [f"{name}={value!r}" for name, value in keywords.items()]


def save_beside(program: Listing | ExportedProgram, directory: Path) -> None:
    """Write the files that the script reads to ``directory``."""
    if isinstance(program, ExportedProgram):
        with file_for_torch(directory / "reduced.pt2") as file:
            torch.export.save(program, file)
    elif program.saved:
        with file_for_torch(directory / "saved.pt") as file:
            torch.save(program.saved, file)
