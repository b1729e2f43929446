"""Exceptions and warnings of this package."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_importer.diagnostics.causes import Cause
    from fx_importer.diagnostics.mlir_diagnostics import Diagnostic
    from fx_importer.frontend.export_changes import ExportChange


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that move the cursor, command a terminal, change the direction of text, or have no encoding; a line feed
and a tabulator are not among them."""


def printable(text: str, *, newlines: bool = False) -> str:
    """Return ``text``, as which names of a file may stand, with control characters escaped as in Python's literals.

    With ``newlines``, line feeds are escaped too, for a name in a cell of a table.
    """
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    return text.replace("\n", "\\n") if newlines else text


class FxImporterError(Exception):
    """Base class of the package's exceptions, which can be pickled with their attributes.

    Their text has no control characters, whatever names of files stand in it.
    """

    def __str__(self) -> str:
        return printable(super().__str__())

    def __reduce__(self) -> tuple[Callable[..., Exception], tuple[type, tuple[object, ...], dict[str, object]]]:
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[Exception], arguments: tuple[object, ...], carried: dict[str, object]) -> Exception:
    """Rebuild a pickled error, whose class takes other arguments than the message."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(carried)
    return error


class ContractWarning(UserWarning):
    """Warning about an operation that the output type does not allow, with ``contract="warn"``."""


class EagerFallbackWarning(UserWarning):
    """Warning about operators of a graph of `torch.compile` that run in eager PyTorch: the output type has none."""


class QuantizationWarning(UserWarning):
    """Warning about a model that `quantize` left as it is, or about scales that fit few inputs."""


class RandomNumbersWarning(UserWarning):
    """Warning about random numbers that are drawn when the program is lowered, or whose seed is not in the program."""


class KeptOperatorWarning(UserWarning):
    """Warning about an operator that an option keeps for a C++ lowering whose results differ from eager's."""


class MisspeltOptionWarning(UserWarning):
    """Warning about a keyword that resembles an option, and is passed to a model that takes any keyword."""


class FrozenStateWarning(UserWarning):
    """Warning about tensors that a model changes from call to call, and whose values are constants of the program."""


class AssumptionWarning(UserWarning):
    """Warning about values of the example inputs that a captured program assumes, and checks at each call."""


class SpecializedNumberWarning(UserWarning):
    """Warning about numbers of Python that a function of `import_function` has as constants."""


class UnverifiedCodeWarning(UserWarning):
    """Warning about code for a device of a kind of program that has computed wrong numbers there."""


class UsageError(FxImporterError, ValueError):
    """Invalid use of the package: an option, name, path or input."""


class AssumptionError(UsageError):
    """Call with inputs for which an assumption of the captured program does not hold.

    Attributes:
        assumption: the expression, the value that the program assumes, and the place in the model.
    """

    def __init__(self, function: str, assumption: str):
        self.assumption = assumption
        opposite = {"True": "it is False", "False": "it is True"}
        value = re.search(r"` is (True|False)(, at|$)", assumption)
        actual = opposite[value[1]] if value else "it is not"
        advice = "" if OTHERWISE in assumption else _OTHER_BRANCH
        super().__init__(f"'{function}' assumes that {assumption}: {actual} for these inputs{advice}")


OTHERWISE = "(otherwise the model raises"
"""Part of the text of an assumption without which the model raises, too."""
_OTHER_BRANCH = ". Capture the model with these inputs, or write the branch with torch.where or torch.cond"


class MisfitError(UsageError, ImportError):
    """Required package that is missing, or of a version that does not fit."""


class DiskFullError(FxImporterError):
    """Temporary files that cannot be written: the disk is full, or files have a limit of their size."""


class ExportError(FxImporterError):
    """Failure of torch.export to capture the model. The original exception is the ``__cause__``.

    Attributes:
        where: ``file:line`` of the model's code that torch refused; empty if unknown.
        changes: what may be changed to capture it, not tried yet; not pickled, since they hold inputs.
    """

    def __init__(self, message: str, where: str = ""):
        self.where = where
        self.changes: tuple[ExportChange, ...] = ()
        super().__init__(message)

    def __reduce__(self) -> tuple[Callable[..., Exception], tuple[type, tuple[object, ...], dict[str, object]]]:
        return _again, (type(self), self.args, {**vars(self), "changes": ()})


@dataclass(frozen=True)
class UnsupportedNode:
    """A node, weight or argument of a program that cannot be imported."""

    subject: str
    """The name of the FX node, weight or argument."""
    reason: str
    where: str | None = None
    """``file:line`` in the user's code."""
    source: str | None = None
    """The text of that line."""
    node: str | None = None
    """The name of the FX node, if the subject is one."""

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.reason}"]
        if self.where:
            lines.append(f"    at {self.where}" + (f": {self.source}" if self.source else ""))
        return "\n".join(lines)


def described(causes: Sequence[Cause]) -> str:
    """Return a text of all causes, with the suggestions that they share once, at the end."""
    if len(causes) < 2 or any(cause.suggestions != causes[0].suggestions for cause in causes):
        return "\n".join(map(str, causes))
    texts = [str(replace(cause, suggestions=())) for cause in causes]
    return "\n".join([*texts, *(f"try: {suggestion}" for suggestion in causes[0].suggestions)])


class UnsupportedProgramError(FxImporterError):
    """A program with nodes, weights or arguments that cannot be imported; ``unsupported_nodes`` lists all of them.

    ``causes`` lists the operators that can be imported but would fail to lower.
    """

    def __init__(
        self,
        headline: str,
        unsupported_nodes: Sequence[UnsupportedNode],
        causes: Sequence[Cause] = (),
        remark: str = "",
    ):
        self.headline = headline
        self.unsupported_nodes = tuple(unsupported_nodes)
        self.causes = tuple(causes)
        lines = [headline, *(f"  {node}".replace("\n", "\n  ") for node in self.unsupported_nodes)]
        if causes:
            lines += ["the lowering would then fail at", f"  {described(causes)}".replace("\n", "\n  ")]
        super().__init__("\n".join([*lines, *filter(None, [remark])]))


class MutatedStateError(UnsupportedProgramError):
    """A program mutates state or inputs, and no option says what becomes of them."""


class KeptOperatorError(UnsupportedProgramError):
    """A call of an operator that ``keep=``, or a rule that does not match, leaves to a C++ lowering that is wrong.

    Attributes:
        operator: the name of the operator, ``aten.index.Tensor``.
    """

    def __init__(self, call: UnsupportedNode, operator: str, remark: str = ""):
        self.operator = operator
        super().__init__("1 operator is kept for a lowering that is wrong:", (call,), remark=remark)


def not_imported(count: int) -> str:
    """Return the first line of the message for ``count`` unsupported nodes, weights or arguments."""
    things = "1 thing" if count == 1 else f"{count} things"
    return f"{things} in the program cannot be imported:"


class StageFailed(FxImporterError):
    """Failure of a stage of the compilation.

    Attributes:
        stage: the stage's name, as ``fx-importer pipelines`` lists it.
        causes: each unsupported operator with its source lines; empty if none fails alone.
        diagnostics: MLIR's diagnostics with locations; empty if the failure is not MLIR's.
        report: the directory that reproduces the failure, if one could be written.
    """

    def __init__(
        self,
        stage: str,
        message: str,
        *,
        causes: Sequence[Cause] = (),
        diagnostics: Sequence[Diagnostic] = (),
        report: Path | None = None,
    ):
        self.stage = stage
        self.causes = tuple(causes)
        self.diagnostics = tuple(diagnostics)
        self.report = report
        super().__init__(message)


class NotInstalledError(UsageError):
    """Missing optional package. ``extra`` is the extra to install: ``pip install 'fx-importer[extra]'``."""

    def __init__(self, what: str, packages: str, extra: str):
        self.extra = extra
        super().__init__(f"{what} needs {packages}, which is not installed: pip install 'fx-importer[{extra}]'")


_FAULT = "Fatal Python error: "
"""What faulthandler's report of a crash begins with."""
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_INSTALLED = (str(Path(__file__).parent), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))


def _python_line(output: str) -> str | None:
    """Return the innermost line of the crashed thread that is outside of installed packages, if ``output`` has it."""
    thread = output.partition(_FAULT)[2].partition("Current thread")[2].partition("\n\n")[0]
    frames = (f"{file}:{line} in {name}" for file, line, name in _FRAME.findall(thread) if file[0] != "<")
    return next((frame for frame in frames if not frame.startswith(_INSTALLED)), None)


def _definition(pass_name: str) -> str | None:
    """Return the line that defines a function of the user, whose module and name are in ``pass_name``."""
    match_ = re.fullmatch(r"fx-importer-call\{([\w.]+):(\w+)\}", pass_name)
    function = getattr(sys.modules.get(match_[1]), match_[2], None) if match_ else None
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


class CrashedError(FxImporterError):
    """Crash or forced termination of another process that ran a request.

    Attributes:
        signal: the name of the signal, such as ``"SIGABRT"``; None if it ended with an exit code or at a limit.
        limit: the exceeded limit, such as ``"time limit of 2 s"``, or None.
        output: the end of its standard error; of a worker process, also of its standard output.
        stage: the stage of the compilation that ran, if any.
        pass_name: the pass of the stage that ran, in MLIR's syntax, if one had started.
        where: the line of Python that ran, outside of installed packages: "file:line in function"; None if there is
            none, or the process did not write it. After a pass of the user, which may leave a module that crashes
            what follows, it is the line that defines the pass.
        causes: the operators that fail alone, for a stage of a lowering; none for a function of the user.
        report: the directory that reproduces the crash, if there is one.
    """

    def __init__(
        self,
        what: str,
        signal: str | None,
        output: str,
        *,
        limit: str | None = None,
        stage: str | None = None,
        pass_name: str | None = None,
    ):
        self.signal = signal
        self.limit = limit
        self.output = output
        self.stage = stage
        self.pass_name = pass_name
        self.causes: tuple[Cause, ...] = ()
        self.report: Path | None = None
        how = f"was ended by the signal {signal}" if signal else f"was ended at its {limit}" if limit else "failed"
        self.where = _python_line(output) or _definition(pass_name or "")
        shown = output.partition(_FAULT)[0]
        lines = [line for line in shown.splitlines() if line and not line.startswith((" ", "Traceback"))][-5:]
        at = [f"at {self.where}"] if self.where else []
        super().__init__("\n  ".join([f"{what} {how}" + (", with the output:" if lines else ""), *lines, *at]))

    def __str__(self) -> str:
        lines = [super().__str__(), *(f"  {line}" for cause in self.causes for line in str(cause).splitlines())]
        return printable("\n".join([*lines, *([f"reproducer in {self.report}"] if self.report else ())]))


def first_line(error: BaseException) -> str:
    """Return the type of ``error`` and the first line of its message, which may be empty."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
