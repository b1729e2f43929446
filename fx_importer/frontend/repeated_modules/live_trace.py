"""The graph that torch.export is tracing: its nodes by tensor, and results of nodes that are added to it."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.utils._python_dispatch import _disable_current_modes

from fx_importer.frontend.repeated_modules.module_signature import NotComparable
from fx_importer.frontend.stack_traces import model_frames

ModuleStack = dict[str, tuple[str, str]]


class LiveTrace:
    """The state of torch's trace of one graph."""

    def __init__(self, tracer: Any):
        self.tracer = tracer
        self.graph: fx.Graph = tracer.graph

    @classmethod
    def current(cls) -> LiveTrace | None:
        """Return the trace that this thread is in; None if torch is not tracing."""
        mode = get_proxy_mode()
        return None if mode is None else cls(mode.tracer)

    def node(self, tensor: Tensor) -> fx.Node | None:
        """Return the node whose value ``tensor`` is; None for a constant."""
        slot = get_proxy_slot(tensor, self.tracer, None)
        return None if slot is None or slot.constant is not None else slot.proxy.node

    def last(self) -> fx.Node:
        return self.graph._root.prev

    def path(self, module: nn.Module) -> str:
        return self.tracer.path_of_module(module)

    def stack(self) -> ModuleStack:
        """Return the modules whose calls this is in, as nodes record them."""
        return {
            key: (path, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}")
            for key, (path, kind) in self.tracer.module_stack.items()
        }

    def key_of_call(self, path: str) -> str:
        """Return the key of a new call of the module at ``path``, as the module stacks of nodes have it."""
        calls = self.tracer.num_calls.get(path, 0)
        self.tracer.num_calls[path] = calls + 1
        return f"{path}@{calls}" if calls else path

    def result(self, node: fx.Node, like: Tensor) -> Tensor:
        """Return a tensor as ``like`` that is the value of ``node``."""
        with disable_proxy_modes_tracing():
            made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            if like.requires_grad:  # and not a leaf, which the model could not write to
                made.add_(torch.ones((), dtype=like.dtype, device=like.device, requires_grad=True))
        self.set_node(made, node)
        return made

    def set_node(self, tensor: Tensor, node: fx.Node) -> None:
        """Let ``tensor`` be the value of ``node``."""
        track_tensor_tree(tensor, fx.Proxy(node, self.tracer), constant=None, tracer=self.tracer)


def check_has_no_attributes(tensor: Tensor) -> None:
    """Raise `NotComparable` if ``tensor`` has attributes that are not torch's."""
    if isinstance(tensor, FakeTensor) and not vars(tensor).keys() <= _of_fakes():
        raise NotComparable("a tensor has attributes of the model's code")


@functools.cache
def _of_fakes() -> frozenset[str]:
    with _disable_current_modes():  # the trace takes no notice
        return frozenset(vars(FakeTensorMode().from_tensor(nn.Parameter(torch.empty(0)))))


def check_result(tensor: Tensor) -> None:
    """Raise `NotComparable` if `LiveTrace.result` cannot make a tensor as this one."""
    check_has_no_attributes(tensor)
    if type(tensor).__name__ != "FakeTensor" or tensor.layout is not torch.strided or tensor.is_inference():
        raise NotComparable("a result is not a plain tensor")
    if not isinstance(tensor.storage_offset(), int) or tensor.storage_offset() != 0:
        raise NotComparable("a result is a slice")
    if any(isinstance(stride, int) and stride == 0 for stride in tensor.stride()):
        raise NotComparable("a result is an expanded tensor")


class CallSite:
    """The Python frames that call a module, from the innermost one."""

    def __init__(self, frame: FrameType):
        self.lines: tuple[tuple[CodeType, int], ...] = tuple(_lines(frame))

    def texts(self) -> tuple[str, str]:
        """Return the frames that nodes of the call have: with the innermost one of the user, and without."""
        frames = traceback.StackSummary.from_list(
            [
                traceback.FrameSummary(code.co_filename, line, code.co_name, lookup_line=False)
                for code, line in reversed(self.lines)
            ]
        )
        kept = model_frames(frames)
        inner = traceback.StackSummary.from_list([frame for frame in kept if frame.name == "forward"])
        return "".join(kept.format()).strip(), "".join(inner.format()).strip()


def _lines(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def moved(trace: str, before: Sequence[str], after: Sequence[str]) -> str:
    """Return a stack trace with the call site ``after`` in place of ``before``, as `CallSite.texts` has them."""
    for old, new in zip(before, after, strict=True):
        if trace == old or trace.startswith(f"{old}\n") or not old:
            rest = trace[len(old) :].strip()
            return "\n  ".join(filter(None, (new, rest)))
    return trace


def here() -> FrameType:
    """Return the frame that called the caller."""
    return sys._getframe(2)
