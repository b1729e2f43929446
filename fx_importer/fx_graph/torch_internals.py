"""Differences between releases of torch: private names that this package uses, and operators that come and go.

`PRIVATE_NAMES` lists the names; `lacking` yields the ones that the installed torch lacks. Operators that a release
lacks are `MissingOperator`: `fx_importer.fx_graph.operators`. Nothing here or elsewhere reads torch's version number.
"""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from fx_importer.frontend.torch_patches import PATCHES
from fx_importer.fx_graph.operators import Namespace

with suppress(ImportError):  # it registers the operators of the fused loss, which torch 2.12 lacks
    importlib.import_module("torch.nn.modules.linear_cross_entropy")
torch_nn: Any = Namespace("torch_nn")

E4M3FN_SATURATES = math.isfinite(torch.tensor(1e6).to(torch.float8_e4m3fn).item())
"""Whether eager converts what is too large for float8_e4m3fn to the largest number; torch 2.12 converts it to NaN."""

UNSIGNED_BOUNDS_WRAP = torch.tensor(0, dtype=torch.uint8).clamp(min=-1).item() == 255
"""Whether eager clamps unsigned integers to -1 as to their largest number. Since torch 2.15, bounds that a dtype does
not have are ignored, or raise an error where they would leave nothing."""

_NO_HEAD = torch.ones(1, 1, 0)
EMPTY_HEADS_ATTEND = bool(scaled_dot_product_attention(_NO_HEAD, _NO_HEAD, torch.ones(1, 1, 1)).item())
"""Whether eager's attention over heads of no elements is the mean of the values; with torch 2.12 it is zero."""


@dataclass(frozen=True)
class PrivateNames:
    """Names of a private module of torch, or private names of a public one."""

    module: str
    names: tuple[str, ...]
    replacement: str
    """What this package would use if a release of torch dropped them."""


_NONE = "nothing public: follow the new place of the name"
PRIVATE_NAMES = (
    PrivateNames("torch", ("_check",), "torch._assert: torch documents it, in spite of its name"),
    PrivateNames("torch", ("_assert_async",), "the target of the nodes that TorchDynamo makes of assert, by its name"),
    PrivateNames("torch._logging", ("set_logs",), "logging.getLogger('torch').setLevel"),
    PrivateNames(
        "torch._C",
        ("_dispatch_get_all_op_names", "_dispatch_has_kernel_for_dispatch_key", "DispatchKey"),
        "OpOverload.has_kernel_for_dispatch_key, and the names of torch.ops",
    ),
    PrivateNames("torch._C", ("_dispatch_dump",), "no script for operators that torch.library.Library registers"),
    PrivateNames("torch._C", ("_AutoDispatchBelowAutograd",), "torch.no_grad, which keeps composites of views"),
    PrivateNames("torch._C", ("_get_dispatch_mode", "_TorchDispatchModeKey"), "a subclass of torch's FakeTensorMode"),
    PrivateNames("torch._C", ("_jit_get_all_schemas",), "OpOverloadPacket._schemas"),
    PrivateNames("torch._C", ("PyTorchFileReader",), "zipfile: a .pt2 file is a zip archive"),
    PrivateNames("torch._C", ("_clear_DTensor_sharding_propagator_cache",), "a process for each export on a mesh"),
    PrivateNames("torch._C", ("_set_grad_enabled",), "its node in the graph: torch makes it of torch.no_grad"),
    PrivateNames(
        "torch.overrides",
        ("_get_current_function_mode_stack",),
        "no reuse of traces in a TorchFunctionMode, if it shows",
    ),
    PrivateNames(
        "torch._C._functorch",
        ("get_dynamic_layer_stack_depth", "pop_dynamic_layer_stack_and_undo_to_depth"),
        "a process for each export",
    ),
    PrivateNames("torch._C._functorch", ("is_functorch_wrapped_tensor",), "an error of torch.export itself"),
    PrivateNames(
        "torch._C._dynamo.guards", ("TensorGuards", "_empty_strided_cpu"), "comparisons in Python; torch.empty"
    ),
    PrivateNames(
        "torch._decomp", ("core_aten_decompositions", "get_decompositions"), "torch.export.default_decompositions"
    ),
    PrivateNames(
        "torch._decomp.decompositions",
        ("upsample_compute_output_size", "one_layer_lstm"),
        "the sizes of a fake result, and nothing once torch 2.12 is not supported",
    ),
    PrivateNames("torch._dispatch.python", ("enable_python_dispatcher",), _NONE),
    PrivateNames("torch._dynamo", ("list_backends", "reset"), "torch.compiler.list_backends, torch.compiler.reset"),
    PrivateNames("torch._dynamo.backends.common", ("aot_autograd",), "functorch.compile.aot_module_simplified"),
    PrivateNames("torch._dynamo.backends.registry", ("register_backend",), "the entry point torch_dynamo_backends"),
    PrivateNames("torch._dynamo.convert_frame", ("compile_lock",), "a lock of ours, if Dynamo has none"),
    PrivateNames("torch._dynamo.eval_frame", ("DynamoStance",), "torch.compiler.set_stance, which is not thread-safe"),
    PrivateNames("torch._dynamo.exc", ("TorchDynamoException", "UserError"), "RuntimeError, which they derive from"),
    PrivateNames("torch._dynamo.config", ("patch",), "setting and resetting torch._dynamo.config.allow_rnn"),
    PrivateNames(
        "torch._export.serde.schema", ("ExportedProgram", "PayloadConfig", "SCHEMA_VERSION"), "a schema of ours"
    ),
    PrivateNames("torch._export.serde.union", ("_Union",), "a schema of ours"),
    PrivateNames(
        "torch._export.utils",
        ("_is_cia_op", "_is_preservable_cia_op"),
        "OpOverload.has_kernel_for_dispatch_key(CompositeImplicitAutograd), and the alias annotations of the schema",
    ),
    PrivateNames("torch._export.verifier", ("SpecViolationError", "Verifier"), "no check of the verifier's own"),
    PrivateNames("torch._functorch.config", ("get_hash",), "a hash of the module's settings"),
    PrivateNames(
        "torch._functorch.partitioners", ("min_cut_rematerialization_partition",), "functorch.compile's of that name"
    ),
    PrivateNames("torch._guards", ("ShapeGuard", "SLoc", "TracingContext", "detect_fake_mode", "tracing"), _NONE),
    PrivateNames("torch.export.experimental", ("_export_forward_backward",), "no option gradients"),
    PrivateNames("torch.export._trace", ("_export",), "no capture of models whose code computes gradients"),
    PrivateNames("torch._higher_order_ops.effects", ("_get_effect",), "the token arguments that torch.export inserts"),
    PrivateNames(
        "torch._higher_order_ops.triton_kernel_wrap",
        ("generate_ttir", "kernel_side_table", "triton_kernel_wrapper_functional", "triton_kernel_wrapper_mutation"),
        _NONE,
    ),
    PrivateNames("torch._higher_order_ops.while_loop", ("while_loop_op",), "torch.ops.higher_order.while_loop"),
    PrivateNames("torch._inductor.config", ("force_disable_caches",), "TORCHINDUCTOR_FORCE_DISABLE_CACHES"),
    PrivateNames("torch._inductor.cpp_builder", ("get_cpp_compiler",), "shutil.which of a C++ compiler"),
    PrivateNames("torch._inductor.exc", ("InvalidCxxCompiler",), "RuntimeError, which it derives from"),
    PrivateNames("torch._inductor.inductor_prims", (), "no decompositions of Inductor's own operators"),
    PrivateNames("torch._library.custom_ops", ("OPDEFS",), "no script for operators of torch.library.custom_op"),
    PrivateNames("torch._library.simple_registry", ("singleton",), "the place of the operator's other functions"),
    PrivateNames("torch._library.triton", ("triton_ops_to_kernels",), _NONE),
    PrivateNames(
        "torch._ops",
        ("HigherOrderOperator", "OpOverload", "OpOverloadPacket", "_OpNamespace"),
        "types of torch.ops' members",
    ),
    PrivateNames("torch._prims_common", ("ELEMENTWISE_TYPE_PROMOTION_KIND", "elementwise_dtypes"), "torch.result_type"),
    PrivateNames("torch._subclasses", ("FakeTensor", "FakeTensorMode"), "its public place, once there is one"),
    PrivateNames(
        "torch._subclasses.fake_tensor",
        (
            *("DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode"),
            "UnsupportedFakeTensorException",
        ),
        "their public place, once there is one",
    ),
    PrivateNames("torch._subclasses.functional_tensor", ("FunctionalTensor",), _NONE),
    PrivateNames("torch.distributed._functional_collectives", ("all_reduce",), "torch.ops._c10d_functional.all_reduce"),
    PrivateNames("torch.distributed.tensor", ("DTensor._op_dispatcher",), "a process for each export on a mesh"),
    PrivateNames("torch.distributed.tensor._dtensor_spec", ("DTensorSpec",), "its public place, once there is one"),
    PrivateNames(
        "torch.distributed.tensor._redistribute", ("_gen_transform_infos",), "a process for each export on a mesh"
    ),
    PrivateNames(
        "torch.distributed.tensor.placement_types",
        ("Shard._replicate_to_shard", "_MaskPartial"),
        "compile_on_one_rank of torch.distributed.config, once torch.export takes it",
    ),
    PrivateNames("torch.fx._lazy_graph_module", ("_LazyGraphModule",), "GraphModule.recompile"),
    PrivateNames("torch.fx.experimental._config", ("get_hash",), "a hash of the module's settings"),
    PrivateNames("torch.fx.node", ("_side_effectful_functions",), "torch.fx.node.has_side_effect"),
    PrivateNames("torch.fx.passes.shape_prop", ("_extract_tensor_metadata",), "no check of memory formats in a trace"),
    PrivateNames("torch.testing._internal.distributed.fake_pg", ("FakeStore",), "torch.distributed.HashStore"),
    PrivateNames(
        "torch.utils._python_dispatch",
        ("TorchDispatchMode", "_disable_current_modes", "is_traceable_wrapper_subclass"),
        _NONE,
    ),
    PrivateNames(
        "torch._C._autograd", ("_unsafe_set_version_counter",), "weights that verify restores would count as changed"
    ),
    PrivateNames(
        "torch.utils._pytree",
        (
            *(
                "MappingKey",
                "SequenceKey",
                "SERIALIZED_TYPE_TO_PYTHON_TYPE",
                "SUPPORTED_NODES",
                "SUPPORTED_SERIALIZED_TYPES",
                "TreeSpec",
                "is_constant_class",
            ),
            *("is_namedtuple_class", "keystr", "register_constant", "tree_flatten", "tree_flatten_with_path"),
            *(
                "tree_leaves",
                "tree_leaves_with_path",
                "tree_map",
                "tree_map_only",
                "tree_structure",
                "tree_unflatten",
                "treespec_dumps",
            ),
        ),
        "torch.utils.pytree, once all releases have it",
    ),
    PrivateNames("torch.utils._sympy.functions", ("CleanDiv", "FloorDiv", "Mod", "PythonMod"), _NONE),
    PrivateNames("torch.utils._sympy.interp", ("sympy_interp",), "sympy.lambdify"),
    PrivateNames("torch.utils._sympy.numbers", ("int_oo",), "sympy.oo"),
    PrivateNames("torch.utils._sympy.printers", ("PythonPrinter",), "sympy.pycode"),
    PrivateNames("torch.utils._sympy.reference", ("PythonReferenceAnalysis",), "sympy.lambdify"),
    PrivateNames("torch.utils._sympy.symbol", ("SymT", "symbol_is_type"), "free_unbacked_symbols of a SymInt"),
    PrivateNames(
        "torch.utils._sympy.value_ranges", ("ValueRanges", "bound_sympy"), "range_constraints that export has made"
    ),
    PrivateNames("torch.utils._triton", ("has_triton",), "triton.runtime.driver.active"),
)
"""Each private name of torch that the package's source imports or reads from a module. Patched ones: `PATCHES`."""


def lacking() -> Iterator[str]:
    """Yield a sentence for each name in `PRIVATE_NAMES`, and each patched one, that the installed torch lacks."""
    for private_name in PRIVATE_NAMES:
        try:
            module = importlib.import_module(private_name.module)
        except ImportError:
            yield f"torch has no {private_name.module}: use {private_name.replacement}"
            continue
        for name in private_name.names:
            try:
                operator.attrgetter(name)(module)
            except AttributeError:
                yield f"torch has no {private_name.module}.{name}: use {private_name.replacement}"
    for patch in PATCHES:
        if patch.target.startswith("torch.") and not patch.creates and not patch.exists():
            yield f"torch has no {patch.target.replace(':', '.')}, which is patched until {patch.until}"
