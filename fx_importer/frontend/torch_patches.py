"""Patches of torch, triton and the interpreter, and the lock under which torch traces. No other file patches anything.

`PATCHES` lists what is replaced, why, and until which release. A patch is process-wide, so it is applied only while
this thread has the lock of `tracing`. Overlapping scopes restore the original when the last one ends, in any order.
"""

from __future__ import annotations

import functools
import gc
import os
import pkgutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

_ABSENT: Any = object()


@dataclass(frozen=True, eq=False)
class Patch:
    """An attribute that is replaced for a while, or an item of a mapping."""

    target: str
    """The module, a colon, and the path of the attribute in it: ``"torch.fx.proxy:TracerBase.create_node"``."""
    why: str
    until: str
    """What makes the patch unnecessary, with the releases that were checked."""
    owner: Any = None
    """The object whose attribute is replaced, if it is not the one that ``target`` names."""
    creates: bool = False
    """Whether torch may lack the attribute."""

    @property
    def name(self) -> str:
        """The name of the attribute in its owner."""
        return self.target.rpartition(":")[2].rpartition(".")[2]

    def on(self, owner: object) -> Patch:
        """Return the patch of ``owner``, an instance of the class that ``target`` names."""
        return replace(self, owner=owner)

    def resolved(self) -> Patch:
        """Return the patch with its owner, which is imported if necessary."""
        if self.owner is not None:
            return self
        module, _, path = self.target.partition(":")
        return self.on(pkgutil.resolve_name(f"{module}:{path.rpartition('.')[0]}"))

    def exists(self) -> bool:
        """Return whether the installed release has the attribute."""
        try:
            return self.resolved().read() is not _ABSENT
        except (ImportError, AttributeError):
            return False

    def read(self) -> Any:
        """Return the value, or a sentinel if the owner itself has none."""
        items = self.owner if isinstance(self.owner, Mapping) else vars(self.owner)
        return items.get(self.name, _ABSENT)

    def write(self, value: Any) -> None:
        """Set what `read` returned, or another value."""
        if isinstance(self.owner, Mapping):
            self.owner.pop(self.name, None)  # type: ignore[attr-defined]
            self.owner.update({} if value is _ABSENT else {self.name: value})  # type: ignore[attr-defined]
        elif value is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, value)


class _CollectorSwitch(Patch):
    def read(self) -> Any:
        return gc.isenabled()

    def write(self, value: Any) -> None:
        (gc.enable if value else gc.disable)()


class _Setting(Patch):
    """A setting of a configuration module of torch, which computes its attributes."""

    def read(self) -> Any:
        return getattr(self.owner, self.name)


_NO_OPTION = "torch has an option for it; torch 2.12 to 2.15 have none"
_WITHOUT_DEVICE = "torch traces launches of Triton kernels without a device; torch 2.12 to 2.15 do not"
_NO_INTERPRETER_SWITCH = (
    "triton switches to its interpreter after a kernel was defined; triton 3.9 reads TRITON_INTERPRET then"
)

FRAME_FILTER = Patch(
    "torch.fx.proxy:TracerBase._filter_traceback_frames",
    "torch.export only keeps frames named forward: functions would have no source lines",
    _NO_OPTION,
)
LSTM_LAYER = Patch(
    "torch._decomp.decompositions:one_layer_lstm",
    "torch 2.12 squeezes axis 1 of the states of an LSTM instead of axis 0; not patched where it is right",
    "torch 2.12 is not supported: torch 2.13 is right",
)
LSTM_SELECTION = Patch(
    "torch._decomp.decompositions:select_one_layer_lstm_function",
    "it chooses mkldnn_rnn_layer while oneDNN is enabled, and no output type has this operator",
    _NO_OPTION,
)
TENSOR_METADATA = Patch(
    "torch.fx.experimental.proxy_tensor:_extract_tensor_metadata",
    "a check of memory formats adds guards on sizes, on which no rule depends",
    _NO_OPTION,
)
COMPOSITES = Patch(
    "torch.export.exported_program:_collect_all_valid_cia_ops",
    "run_decompositions overrides about 800 composite operators, which takes longer than to trace a small program",
    _NO_OPTION,
)
IS_COMPOSITE = Patch(
    "torch.export.exported_program:_is_preservable_cia_op", "it is computed anew for each operator", _NO_OPTION
)
OVERRIDDEN_KEYS = Patch(
    "torch.export.exported_program:_BACKEND_KEYS_TO_OVERRIDE",
    "composites are overridden for the dispatch keys of devices that the program does not use",
    _NO_OPTION,
)
OVERRIDDEN_AUTOGRAD_KEYS = Patch(
    "torch.export.exported_program:_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE", OVERRIDDEN_KEYS.why, _NO_OPTION
)
GUARD_CHECK = Patch(
    "torch.fx.experimental.symbolic_shapes:ShapeEnv._check_frozen",
    "a guard that a decomposition adds must be refused before torch adds it; patched in one instance",
    _NO_OPTION,
)
SIZE_CONDITION = Patch(
    "torch.fx.experimental.sym_node:SymNode.guard_bool",
    "torch.export assumes sizes of at least 2, and records no guard for a branch that smaller sizes would not take",
    "torch.export records them; torch 2.12 to 2.15 do not",
)
SIZE_COMPARISONS = tuple(
    Patch(f"torch:SymInt.{relation}", "SymPy simplifies n > 0: " + SIZE_CONDITION.why, SIZE_CONDITION.until)
    for relation in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__sym_max__", "__sym_min__")
)
FIXED_SIZE = Patch(
    "torch.fx.experimental.symbolic_shapes:ShapeEnv._set_replacement",
    "torch.export does not say which line fixes a dynamic size to a number",
    "its error has the line; torch 2.12 to 2.15 have it with strict=True only",
)
GUARD_SOURCES = Patch(
    "torch.fx.experimental.symbolic_shapes:uninteresting_files",
    "the source of a guard would be the function that replaces SymNode.guard_bool",
    SIZE_CONDITION.until,
)
REAL_TENSORS = _Setting(
    "torch._functorch.config:fake_tensor_propagate_real_tensors",
    "torch.export.draft_export sets it, but makes dynamic sizes static, writes a log file and prints",
    "torch.export has an option for it; torch 2.12 to 2.15 have none",
)
ASSERT_REWRITE = _Setting(
    "torch._dynamo.config:rewrite_assert_with_torch_assert",
    "strict export turns an assert of the model's code into an assertion that is removed, or loses it",
    "strict export keeps each of them; torch 2.12 to 2.15 lose those on numbers",
)
REAL_TENSOR_LOG = Patch(
    "torch.fx.experimental.symbolic_shapes:ShapeEnv._log_real_tensor_propagation",
    "torch logs each answer that it takes from the values of real tensors, and does not return where it was asked",
    _NO_OPTION,
)
ARGUMENT_CHECKS = Patch(
    "torch.distributions:Distribution._validate_args",
    "TorchDynamo turns the checks of distributions off for the process, which strict export runs; put back",
    "TorchDynamo puts the setting back; torch 2.12 to 2.15 do not",
)
META_LOG = Patch(
    "logging:Logger.filters",
    "torch logs a traceback for each operator that refuses its sizes; patched in its logger of fake tensors",
    _NO_OPTION,
)
GUARD_LOG = replace(
    META_LOG, why="torch logs a traceback for each guard that is refused; patched in its logger of symbolic shapes"
)
NUMBER_LOG = replace(
    META_LOG, why="torch logs each number that it cannot compute; patched in its logger of SymPy's expressions"
)
DEFERRED_ASSERTION = Patch(
    "torch.fx.experimental.symbolic_shapes:ShapeEnv.guard_or_defer_runtime_assert",
    "torch.export merges or drops assertions of single bounds, n <= 3",
    _NO_OPTION,
)
REAL_COPY = Patch(
    "torch._subclasses.meta_utils:_safe_copy",
    "it copies plain tensors only, so that the real tensor of a parameter is uninitialized memory",
    "torch copies parameters too; torch 2.12 to 2.15 do not",
)
REAL_CLONE = Patch("torch._subclasses.meta_utils:_safe_clone", REAL_COPY.why, REAL_COPY.until)
SIGN_BIT = Patch("torch._prims:signbit", "its fake results are not boolean", "they are; in torch 2.12 to 2.15 not")
HIGHER_ORDER_CALL = Patch(
    "torch._ops:HigherOrderOperator.__call__",
    "real tensors of its results are uninitialized memory, which would answer questions",
    "torch gives the results no real tensors; torch 2.12 to 2.15 give torch.empty",
)
MODULE_CONVERSION = Patch(
    "torch.nn:Module._apply",
    "it swaps the memory of fake parameters, which fails",
    "torch.export traces conversions of modules; torch 2.12 to 2.15 do not",
)
SUBMODULE = Patch(
    "torch.nn.utils._named_member_accessor:NamedMemberAccessor.get_submodule", "methods hide submodules", _NO_OPTION
)
UNUSED_CONSTANT = Patch(
    "torch._export.passes.lift_constants_pass:_unused_constant", "it fails for constants without users", _NO_OPTION
)
REAL_CHECK = Patch(
    "torch._subclasses.fake_utils:_check_fake_real_tensors", "it fixes sizes that offsets depend on", _NO_OPTION
)
RECOMPILE = Patch(
    "torch.fx.graph_module:GraphModule.recompile", "it compiles each intermediate graph of torch.export", _NO_OPTION
)
EXPORT_PRINT = Patch(
    "torch.export._trace:print",
    "torch.export prints the graph of a model that it refuses to standard error, also where another way captures it",
    _NO_OPTION,
    creates=True,
)
EXPORT_LOG = Patch(
    "logging:Logger.filters",
    "torch.export.load prints tracebacks to standard error; patched in its loggers",
    "torch.export.load raises the first error; torch 2.12 to 2.15 log it",
)
_EVALUATES = "torch.export.load has a mode without code of the file; torch 2.12 to 2.15 have none"
SIZE_TEXT = Patch(
    "torch._export.serde.serialize:GraphModuleDeserializer._parse_sym_expr",
    "torch.export.load evaluates the text of sizes as Python",
    _EVALUATES,
)
SAVED_OBJECTS = Patch(
    "torch._export.serde.serialize:deserialize_torch_artifact",
    "torch.export.load unpickles any object where torch.load(weights_only=True) fails",
    _EVALUATES,
)
_ON_DEVICE = "torch.export.load takes a device, as torch.load takes map_location; torch 2.12 to 2.15 have none"
SAVED_DEVICES = Patch(
    "torch._export.serde.serialize:deserialize_device",
    "torch.export.load makes a program on the devices it was saved on, which this machine may lack",
    _ON_DEVICE,
)
ARCHIVE_DEVICES = Patch("torch.export.pt2_archive._package:deserialize_device", SAVED_DEVICES.why, _ON_DEVICE)
SAVED_STORAGES = Patch(
    "torch.serialization:default_restore_location",
    "torch.export.load reads pickled tensors to the devices they were saved on, which this machine may lack",
    _ON_DEVICE,
)
SIDE_EFFECTS = Patch(
    "torch.fx.node:_side_effectful_functions",
    "launches of Triton kernels are not listed, and would be removed as dead code",
    "torch lists triton_kernel_wrapper_mutation; torch 2.12 to 2.15 do not",
)
HAS_TRITON = Patch("torch.utils._triton:has_triton", "it is false without a device", _WITHOUT_DEVICE)
KERNEL_CLASS = Patch(
    "torch._higher_order_ops.triton_kernel_wrap:JITFunction",
    "torch defines a class without instances in its place if there was no device",
    _WITHOUT_DEVICE,
    creates=True,
)
TUNER_CLASS = replace(KERNEL_CLASS, target="torch._higher_order_ops.triton_kernel_wrap:Autotuner")
CONFIG_CLASS = replace(KERNEL_CLASS, target="torch._higher_order_ops.triton_kernel_wrap:TritonConfig")
TRITON_DRIVER = Patch(
    "triton.runtime:driver._active",
    "without a device there is no driver that knows the target of a kernel",
    "triton generates IR for a given target without a driver; triton 3.9 does not",
)
FP_FUSION = Patch(
    "os:environ.TRITON_DEFAULT_FP_FUSION",
    "triton warns once a process where it is not set; its IR does not depend on it",
    "triton does not warn; triton 3.9 does",
    os.environ,
)
KERNEL_RUN = Patch(
    "triton.runtime.jit:JITFunction.run", "the CPU runs kernels by interpretation", _NO_INTERPRETER_SWITCH
)
KERNEL_CALL = Patch("triton.runtime.jit:JITFunction.__call__", "kernels call device functions", _NO_INTERPRETER_SWITCH)
TUNER_RUN = Patch("triton.runtime.autotuner:Autotuner.run", "it measures on a device", _NO_INTERPRETER_SWITCH)
_WHOLE_NUMBERS = "triton's interpreter has bfloat16; triton 3.7 computes with its bits as whole numbers"
BFLOAT16_METHODS = {
    at: Patch(
        f"triton.runtime.interpreter:InterpreterBuilder.{at}", "bits of bfloat16 are not integers", _WHOLE_NUMBERS
    )
    for at in ("binary_op", "ternary_op", "unary_op", "create_fma", "create_dot", "cast_impl")
}
"""The methods of triton's interpreter that read elements of bfloat16."""
BFLOAT16_REDUCTIONS = Patch(
    "triton.runtime.interpreter:ReduceScanOpInterface.apply", "bits of bfloat16 are not integers", _WHOLE_NUMBERS
)
SHARD_SLICES = Patch(
    "torch.distributed.tensor.placement_types:Shard._replicate_to_shard",
    "DTensor writes the slice of the exporting rank into the program",
    "torch.export accepts compile_on_one_rank of torch.distributed.config; torch 2.12 to 2.15 do not",
)
MASKED_ROWS = Patch(
    "torch.distributed.tensor.placement_types:_MaskPartial._partition_value", SHARD_SLICES.why, SHARD_SLICES.until
)
FUNCTIONALIZED_VIEWS = _Setting(
    "torch._export.config:enable_auto_functionalized_v2_for_export",
    "torch-mlir's importer lacks auto_functionalized_v2, and has the operator that this switch replaced",
    "torch_mlir.extras.fx_importer imports auto_functionalized_v2; torch-mlir 20261001 with torch 2.13 does not",
)
STANCE = Patch(
    "torch._dynamo.eval_frame:_stance",
    "models are called for comparison without torch.compile, and may call compiled functions",
    "torch.compiler.set_stance is undone by threads in any order; torch 2.12 to 2.15 restore what the thread met",
)
COLLECTOR = _CollectorSwitch(
    "gc:isenabled",
    "each garbage collection visits every node of every live graph, and all of torch",
    "graphs are not made of Python objects, or gc.freeze can be undone for a part of them; Python 3.10 to 3.14 cannot",
    gc,
)

PATCHES = (
    *(FRAME_FILTER, LSTM_LAYER, LSTM_SELECTION, TENSOR_METADATA),
    *(COMPOSITES, IS_COMPOSITE, OVERRIDDEN_KEYS, OVERRIDDEN_AUTOGRAD_KEYS),
    *(GUARD_CHECK, SIZE_CONDITION, *SIZE_COMPARISONS, FIXED_SIZE, GUARD_SOURCES, META_LOG, ARGUMENT_CHECKS),
    *(ASSERT_REWRITE, REAL_TENSORS, REAL_TENSOR_LOG, REAL_COPY, REAL_CLONE, SIGN_BIT, HIGHER_ORDER_CALL),
    *(REAL_CHECK, DEFERRED_ASSERTION, MODULE_CONVERSION, SUBMODULE, UNUSED_CONSTANT, RECOMPILE, EXPORT_PRINT),
    *(GUARD_LOG, NUMBER_LOG, EXPORT_LOG, SIZE_TEXT, SAVED_OBJECTS, SAVED_DEVICES, ARCHIVE_DEVICES, SAVED_STORAGES),
    *(SIDE_EFFECTS, HAS_TRITON, KERNEL_CLASS, TUNER_CLASS, CONFIG_CLASS, TRITON_DRIVER, FP_FUSION),
    *(KERNEL_RUN, KERNEL_CALL, TUNER_RUN, *BFLOAT16_METHODS.values(), BFLOAT16_REDUCTIONS),
    *(SHARD_SLICES, MASKED_ROWS, FUNCTIONALIZED_VIEWS, STANCE, COLLECTOR),
)


# --- the lock ---------------------------------------------------------------------------------------------------------

_importing = threading.Lock()


@functools.cache
def _tracing_lock() -> Any:
    """Return TorchDynamo's lock: it calls our backend while holding it, so that a second lock could deadlock."""
    with _importing:
        from torch._dynamo import convert_frame

        return convert_frame.compile_lock


@contextmanager
def tracing() -> Iterator[None]:
    """Hold the lock under which torch traces: its tracers keep their state in globals. Re-entrant.

    Everything that exports, retraces or enters a mode of fake tensors is inside, and so are the patches. A graph that
    fails in a transform of `torch.func` leaves the transform active for the thread, so the stack of them is unwound.
    """
    with _tracing_lock():
        from torch._C._functorch import get_dynamic_layer_stack_depth, pop_dynamic_layer_stack_and_undo_to_depth

        depth = get_dynamic_layer_stack_depth()
        try:
            yield
        finally:
            pop_dynamic_layer_stack_and_undo_to_depth(depth)


@contextmanager
def patched(values: Mapping[Patch, Any]) -> Iterator[None]:
    """Replace the target of each patch by its value in the body, under the lock of `tracing`."""
    with tracing(), ExitStack() as scopes:
        for patch, value in values.items():
            scopes.enter_context(_replaced(patch.resolved(), value))
        yield


@contextmanager
def without_compilation() -> Iterator[None]:
    """Run functions of torch.compile in eager PyTorch in the body, under the lock of `tracing`."""
    from torch._dynamo.eval_frame import DynamoStance

    with patched({STANCE: DynamoStance("force_eager")}):
        yield


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable garbage collection in the body, without the lock of `tracing`."""
    with _replaced(COLLECTOR, False):
        yield


@contextmanager
def warnings_filtered(action: Any, message: str = "", category: type[Warning] = Warning) -> Iterator[None]:
    """Filter warnings in the body, under the lock of `tracing`: torch changes the filters of the process too."""
    with tracing(), warnings.catch_warnings():
        warnings.filterwarnings(action, message, category)
        yield


# --- how a patch is applied and undone --------------------------------------------------------------------------------


class _Replaced:
    """A patched attribute: its original, and the values of the open scopes; the last one counts."""

    def __init__(self, patch: Patch):
        self.patch, self.original = patch, patch.read()
        self.scopes: dict[object, Any] = {}

    def update(self) -> None:
        self.patch.write([self.original, *self.scopes.values()][-1])


_replacing = threading.RLock()
_active: dict[tuple[int, str], _Replaced] = {}


@contextmanager
def _replaced(patch: Patch, value: Any) -> Iterator[None]:
    key, scope = (id(patch.owner), patch.name), object()
    with _replacing:
        replaced = _active.get(key) or _Replaced(patch)
        _active[key] = replaced
        replaced.scopes[scope] = value
        replaced.update()
    try:
        yield
    finally:
        with _replacing:
            if _active.get(key) is replaced:  # else a fork has restored it
                del replaced.scopes[scope]
                replaced.update()
                if not replaced.scopes:
                    del _active[key]


def _restore_after_fork() -> None:
    """Undo in a child process what other threads of the parent had patched, and free their locks."""
    global _importing, _replacing
    _importing, _replacing = threading.Lock(), threading.RLock()
    if _tracing_lock.cache_info().currsize:
        if _tracing_lock()._is_owned():
            return
        _tracing_lock()._at_fork_reinit()
    for replaced in _active.values():
        replaced.patch.write(replaced.original)
    _active.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_after_fork)
