"""Tracing of equal modules once: a context in which torch.export copies the nodes of those that it has traced."""

from __future__ import annotations

import functools
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.frontend.repeated_modules.live_trace import CallSite, LiveTrace, here
from fx_importer.frontend.repeated_modules.module_signature import (
    Attribute,
    EqualModules,
    NotComparable,
    Repeated,
    equal_modules,
    signature,
)
from fx_importer.frontend.repeated_modules.python_state import PythonState
from fx_importer.frontend.repeated_modules.traced_call import ModuleCall, TracedCall
from fx_importer.frontend.repeated_modules.watched_number import WatchedNumber, read

_HERE = Path(__file__).parent

_MOST_DIFFERING = 6
"""Calls of equal modules that may differ in turn before no more are compared: layers of several kinds of masks."""


def exported_once(
    model: nn.Module, export: Callable[[], ExportedProgram], remark: Callable[[str], None] = lambda remark: None
) -> ExportedProgram:
    """Return the program of ``export``, which traces ``model``, with equal modules traced once.

    It is the program that ``export`` alone returns. ``remark`` is told which calls were copied, which not, and why.
    """
    repeated = RepeatedModules(model)
    while True:
        try:
            with repeated.traced_once():
                program = export()
            break
        except Exception as error:
            if not repeated.groups or not repeated.may_cause(error):
                raise
            repeated.leave_out(repeated.failed, error)
    for sentence in repeated.remarks():
        remark(sentence)
    return program


class RepeatedModules:
    """Groups of equal modules of a model, and how their calls were traced."""

    def __init__(self, model: nn.Module):
        self.groups, self.reasons = equal_modules(model)
        self.traced: Counter[str] = Counter()
        """How many calls were traced, by class."""
        self.copied: Counter[str] = Counter()
        self.failed: EqualModules | None = None
        """The group whose call was traced with watched numbers when torch.export failed."""
        self._incomparable: set[EqualModules] = set()
        """Groups with code that may depend on what cannot be compared, or with calls that all differ."""
        self._differing: Counter[EqualModules] = Counter()
        """How many calls were traced since one was copied, by group."""
        self._root: Any = None

    def may_cause(self, error: Exception) -> bool:
        """Return whether ``error`` of torch.export may come from copies: before the first one all code was traced."""
        if self.copied or self.failed is not None:
            return True
        reported: BaseException | None = error
        while reported is not None:
            frames = [*traceback.walk_tb(reported.__traceback__)]  # none of a cause that was never raised
            if frames and frames[-1][0].f_globals.get("__package__") == __package__:
                return True
            if any(Path(frame.filename).parent == _HERE for frame in getattr(reported, "real_stack", ())):
                return True  # TorchDynamo traced the code here, in a branch of control flow
            reported = reported.__cause__ or reported.__context__
        return False

    @contextmanager
    def traced_once(self) -> Iterator[None]:
        """Copy, in the body, the nodes of calls that equal a traced one."""
        replaced: list[nn.Module] = []
        try:
            for group in self.groups:
                calls: list[TracedCall] = []
                for member in group.modules:
                    run = self._forward(group, member, calls, member.module.forward)
                    run.traces_once = True  # type: ignore[attr-defined] - `module_signature` leaves it out
                    member.module.forward = run
                    replaced.append(member.module)
            yield
        finally:
            for module in replaced:
                del module.forward

    def leave_out(self, group: EqualModules | None, error: Exception) -> None:
        """Trace the modules of ``group`` one by one the next time; None for all modules."""
        reason = f"with one traced call for several, torch.export raised {type(error).__name__}"
        for removed in [*self.groups] if group is None else [group]:
            self.groups.remove(removed)
            names = sorted(name for _, name in removed.numbers)
            kind = type(removed.modules[0].module).__name__
            self.reasons[kind] = f"its code reads {' or '.join(names)}, which differs" if names else reason
        self.traced.clear()
        self.copied.clear()
        self._differing.clear()
        self.failed = self._root = None

    def remarks(self) -> Iterator[str]:
        """Yield a sentence for each class with calls that were copied, or could not be."""
        for kind in {**self.copied, **self.reasons}:
            if self.copied[kind]:
                yield f"{self.copied[kind]} calls of {kind} are copies of {self.traced[kind]} traced ones"
            if kind in self.reasons:
                yield f"calls of {kind} were traced one by one: {self.reasons[kind]}"

    def _forward(
        self, group: EqualModules, repeated: Repeated, calls: list[TracedCall], forward: Callable[..., Any]
    ) -> Callable[..., Any]:
        module = repeated.module

        @functools.wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            trace = LiveTrace.current()
            if trace is None or not self._is_root(trace) or group in self._incomparable:
                return forward(*args, **kwargs)
            try:
                call = _call(trace, group, repeated, (args, kwargs), CallSite(here()))
            except NotComparable as error:
                self._count_as_differing(group)
                return self._traced(module, str(error), lambda: forward(*args, **kwargs))
            equal = next((other for other in calls if other.stands_for(call)), None)
            if equal is not None:
                if (changed := equal.state.changed()) is None:
                    del self._differing[group]
                    self.copied[type(module).__name__] += 1
                    return equal.copied(call)
                return self._traced(module, f"{changed} changes between them", lambda: forward(*args, **kwargs))
            self._count_as_differing(group)
            return self._first(group, call, calls, forward, args, kwargs)

        return run

    def _is_root(self, trace: LiveTrace) -> bool:
        """Return whether ``trace`` is that of the model, and not of a branch of control flow in it."""
        if self._root is None:
            self._root = trace.tracer
        return self._root is trace.tracer

    def _count_as_differing(self, group: EqualModules) -> None:
        """Compare no further calls of ``group`` after several that all differ: it takes half as long as tracing."""
        self._differing[group] += 1
        if self._differing[group] == _MOST_DIFFERING:
            self._incomparable.add(group)
            self.reasons.setdefault(type(group.modules[0].module).__name__, "no two of the calls were equal")

    def _traced(self, module: nn.Module, reason: str, forward: Callable[[], Any]) -> Any:
        kind = type(module).__name__
        self.traced[kind] += 1
        self.reasons.setdefault(kind, reason)
        return forward()

    def _first(
        self,
        group: EqualModules,
        call: ModuleCall,
        calls: list[TracedCall],
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Trace a call, to copy it for others."""
        module, trace = call.module.module, call.trace
        run = functools.partial(forward, *args, **kwargs)
        try:
            state = PythonState(module, group.parts)
            if not state.read_with_types.isdisjoint(names := sorted(name for _, name in group.numbers)):
                raise NotComparable(f"its code may read the class of {' or '.join(names)}")
        except NotComparable as error:
            self._incomparable.add(group)
            return self._traced(module, str(error), run)
        self.traced[type(module).__name__] += 1
        last, depth = trace.last(), len(trace.tracer.module_stack)
        try:
            with _watched(group, call.module) as numbers:
                result = pytree.tree_map(read, run()) if numbers else run()
        except Exception:
            self.failed = self.failed or (group if group.numbers else None)
            raise
        body = []
        node = last.next
        while node.op != "root":
            body.append(node)
            node = node.next
        try:
            if (changed := state.changed()) is not None:
                raise NotComparable(f"it changes {changed}")
            if _call(trace, group, call.module, (args, kwargs), call.site).key != call.key:
                raise NotComparable("it changes its arguments")
            calls.append(TracedCall(call, state, body, result, numbers, depth))
        except NotComparable as error:
            self.reasons.setdefault(type(module).__name__, str(error))
        return result


def _call(trace: LiveTrace, group: EqualModules, module: Repeated, arguments: Any, site: CallSite) -> ModuleCall:
    numbers = {at: module.attribute(at) for at in group.numbers}
    call = ModuleCall(trace, module, arguments, site, numbers)
    call.key = call.key, tuple(signature(module.parts, group.numbers).items())
    return call


@contextmanager
def _watched(group: EqualModules, module: Repeated) -> Iterator[dict[Attribute, WatchedNumber]]:
    """Record in the body which numbers of ``module`` its code reads."""
    numbers = {at: WatchedNumber(module.attribute(at)) for at in group.numbers}
    for at, number in numbers.items():
        module.set_attribute(at, number)
    try:
        yield numbers
    finally:
        for at, number in numbers.items():
            module.set_attribute(at, number.value)
