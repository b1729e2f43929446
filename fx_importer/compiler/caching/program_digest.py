"""Digest of programs for a cache key: a hash of everything that affects the result."""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, CustomObjArgument, InputSpec
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from fx_importer.caching.uncacheable import NotCached
from fx_importer.compiler.caching.cached_weights import ElidedWeights
from fx_importer.fx_graph.programs import fake_mode_of, held_value, module_name, storage_view_key
from fx_importer.mlir.tensor_elements import as_array

PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None)))
_FAITHFUL = PLAIN | {torch.dtype, torch.device, torch.layout, torch.memory_format}
"""Types whose ``repr`` distinguishes all values."""

_KNOWN = frozenset(
    (
        *("val", "stack_trace", "nn_module_stack"),
        *(
            "tensor_meta",
            "torch_fn",
            "custom",
            "source_fn_stack",
            "original_aten",
            "from_node",
            "seq_nr",
            "eager_input_vals",
        ),
        *("fwd_nn_module_stack", "fwd_source_fn_stack", "partitioner_tag", "autograd_backward", "partition_names"),
    )
)
"""Node metadata in the key, followed by the metadata that no stage reads."""

LIBRARIES = frozenset(("aten", "prims", "higher_order", "quantized_decomposed", "fx_importer_integer"))
"""Namespaces of operators that the versions of torch and of this package identify. Others may be defined anywhere."""
_MODULES = ("_operator", "math", "torch")
_HIGHER_ORDER = frozenset(
    (
        *("cond", "while_loop", "scan", "associative_scan", "map_impl", "invoke_subgraph", "flex_attention"),
        *("wrap_with_set_grad_enabled", "wrap_with_autocast", "hints_wrapper", "with_effects"),
    )
)
"""Operators defined by their graphs. Others may index state of the process, such as Triton's kernels."""

_LARGEST_READ = 1 << 28
"""Limit in bytes for all tensors whose elements are in the key, and so in the entry."""

_ENVIRONMENT = (
    *("backed_var_to_val", "var_to_range", "var_to_hint_override", "replacements", "unbacked_renamings", "divisible"),
    *("size_like", "unbacked_symint_counter", "unbacked_symfloat_counter", "_unbacked_replacements"),
)


class Digest:
    """Hash of programs that are added one by one."""

    def __init__(self) -> None:
        self.elided = ElidedWeights()
        self._hash = hashlib.sha256()
        self._targets: dict[Any, str] = {}
        self._environments: dict[int, ShapeEnv] = {}
        self._read = 0
        self._storages: dict[int, int] = {}
        self._names: dict[str, Any] = {}

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def add(self, *values: Any) -> None:
        """Add values of types with a faithful ``repr``, and tuples and lists of them."""
        self._hash.update(repr(values).encode("utf-8", "surrogatepass"))

    def program(self, program: ExportedProgram) -> None:
        signature = program.graph_signature
        if signature.backward_signature is not None:
            raise NotCached("the program has gradients")
        self.graph(program.graph_module)
        self.add([self._spec(spec) for spec in (*signature.input_specs, *signature.output_specs)])
        self.add([(str(symbol), str(limits)) for symbol, limits in program.range_constraints.items()])
        self.add([verifier.dialect for verifier in program.verifiers])
        try:
            for spec in (program.call_spec.in_spec, program.call_spec.out_spec):
                self.add(None if spec is None else pytree.treespec_dumps(spec))
        except (NotImplementedError, TypeError) as error:
            raise NotCached(f"the model's inputs or outputs have types without names: {error}") from None
        for spec in signature.input_specs:
            if spec.target is not None:
                self._held(spec, held_value(program, spec))

    def graph(self, module: fx.GraphModule) -> None:
        """Add the nodes of a graph, in order, and the attributes that they read."""
        named: list[Any] = []
        for node in module.graph.nodes:
            target = self._target(node)
            if unknown := node.meta.keys() - _KNOWN:
                if unknown != {"unbacked_bindings"}:
                    raise NotCached(f"nodes have metadata of other kinds: {', '.join(sorted(unknown))}")
                self.add(str(node.meta["unbacked_bindings"]))
            _check(node.args)
            _check(node.kwargs)
            row = (
                *(node.op, node.name, target, node.args, node.kwargs, self._value(node.meta.get("val"))),
                *(node.meta.get("stack_trace"), module_name(node)),
            )
            self._hash.update(repr(row).encode("utf-8", "surrogatepass"))
            if node.op == "get_attr":
                named.append(operator.attrgetter(str(node.target))(module))
        mode = fake_mode_of(module.graph)
        if mode is not None and mode.shape_env is not None:
            self._environments.setdefault(id(mode.shape_env), mode.shape_env)
        for value in named:
            if isinstance(value, fx.GraphModule):
                self.graph(value)
            else:
                self._tensor(value, None)

    def _target(self, node: fx.Node) -> str:
        target: Any = node.target
        text = self._targets.get(target)
        if text is None:
            text = self._targets[target] = _target_text(target)
        return text

    def _value(self, value: Any) -> Any:
        """Return the part of the example value of a node that is in the key."""
        if type(value) is FakeTensor:
            shape, strided = tuple(value.shape), value.layout is torch.strided
            stride = value.stride() if strided else None
            flags = strided and (value.is_conj(), value.is_neg(), self._size(value.storage_offset()))
            if any(type(size) is not int for size in (*shape, *(stride or ()))):
                shape, stride = map(tuple, (map(self._size, shape), map(self._size, stride or ())))
            return value.dtype, shape, stride, value.layout, value.device, value.requires_grad, flags
        if isinstance(value, tuple | list):
            return type(value).__name__, [self._value(item) for item in value]
        if isinstance(value, SymInt | SymFloat | SymBool):
            return self._size(value)
        if type(value) in _FAITHFUL:
            return value
        raise NotCached(f"a node stands for a value of type {type(value).__name__}")

    def _size(self, size: Any) -> Any:
        if type(size) is int:
            return size
        self._environments.setdefault(id(size.node.shape_env), size.node.shape_env)
        return type(size).__name__, str(size.node.expr), str(size.node.hint) if size.node.has_hint() else None

    def environments(self) -> None:
        """Add the ranges and values of symbols, after all programs were added."""
        for environment in self._environments.values():
            for name in _ENVIRONMENT:
                value = getattr(environment, name)
                pairs = value.items() if isinstance(value, Mapping) else value if isinstance(value, set) else [value]
                self.add(name, sorted(map(str, pairs)))
            self.add([(str(guard.expr), guard.sloc.maybe_user_loc) for guard in environment.guards])
            asserts = itertools.chain.from_iterable(environment.deferred_runtime_asserts.values())
            self.add([str(assertion.expr) for assertion in asserts])

    def _spec(self, spec: Any) -> str:
        argument = spec.arg
        if isinstance(argument, CustomObjArgument):
            raise NotCached(f"the program takes an object of {argument.class_fqn}")
        if isinstance(argument, ConstantArgument) and type(argument.value) not in PLAIN:
            raise NotCached(f"the program takes or returns a constant of type {type(argument.value).__name__}")
        return repr(spec)

    def _held(self, spec: InputSpec, value: Any) -> None:
        known = self._names.setdefault(str(spec.target), value)
        if known is not value and not (
            _is_plain(known) and _is_plain(value) and storage_view_key(known) == storage_view_key(value)
        ):
            raise NotCached(f"'{spec.target}' is not the same tensor in all programs")
        self._tensor(value, spec)

    def _tensor(self, tensor: Any, spec: InputSpec | None) -> None:
        """Add a tensor, including its elements unless it is an elided weight."""
        if not _is_plain(tensor):
            raise NotCached(f"the program holds a {type(tensor).__name__} that is not a plain tensor")
        storage = self._storages.setdefault(tensor.untyped_storage().data_ptr(), len(self._storages))
        place = storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
        self.add(place, tensor.requires_grad, tensor.is_conj(), tensor.is_neg())
        if spec is not None and self.elided.elide(tensor, spec):
            self.add("elided")
            if self.elided.is_unread(spec):
                return
        self._read += tensor.nbytes
        if self._read > _LARGEST_READ:
            raise NotCached(f"constants, buffers and integers take more than {_LARGEST_READ:,} bytes")
        self._hash.update(as_array(tensor.detach()).view("u1").data)


def _is_plain(value: Any) -> bool:
    """Return whether ``value`` is a tensor with memory on the CPU, not of a subclass."""
    if type(value) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return False
    return value.layout is torch.strided and value.device.type == "cpu" and not value.is_quantized


def _target_text(target: Any) -> str:
    if isinstance(target, OpOverload):
        if target.namespace not in LIBRARIES:
            raise NotCached(f"{target} is not torch's own: it may be defined in Python")
        return str(target)
    if isinstance(target, HigherOrderOperator):
        if not type(target).__module__.startswith("torch.") or target.name() not in _HIGHER_ORDER:
            raise NotCached(f"{target} may be more than its graphs")
        return f"{type(target).__module__}.{target.name()}"
    if isinstance(target, str):
        return repr(target)
    if getattr(target, "__module__", "").split(".")[0] in _MODULES:
        return f"{target.__module__}.{target.__qualname__}"
    raise NotCached(f"the program calls {target!r}")


def _check(argument: Any) -> None:
    """Raise `NotCached` unless the ``repr`` of an argument of a node is faithful."""
    kind = type(argument)
    if kind is fx.Node or kind in _FAITHFUL:
        return
    if isinstance(argument, OpOverload):
        _target_text(argument)
        return
    if isinstance(argument, tuple | list):
        for item in argument:
            _check(item)
    elif isinstance(argument, Mapping):
        _check(list(argument.items()))
    elif kind is slice:
        _check((argument.start, argument.stop, argument.step))
    else:
        raise NotCached(f"a node takes a value of type {kind.__name__}")
