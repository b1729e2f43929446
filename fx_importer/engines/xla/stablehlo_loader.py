"""Runs a StableHLO artifact that fx_importer saved: this file, jax and numpy are all that it takes.

    import stablehlo_loader

    program = stablehlo_loader.load("model.stablehlo", device="cuda")
    outputs = program(x, y)            # the tensors of the model, flat; program["decode"](...) for other functions

Inputs are arrays of jax or numpy, or tensors of PyTorch on the device, which are read in place by DLPack. Outputs are
tensors of PyTorch if an input is one, else arrays of jax. State stays on the device between calls: ``program.state``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import math
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fx_importer.engines.xla.torch_arrays import TorchReader, to_torch, torch_device, wait_for_torch


class ArtifactError(ValueError):
    """The artifact, its weights, its inputs or the device do not fit each other."""


def load(
    path: str | os.PathLike[str], device: str = "cpu", weights: Mapping[str, Any] | None = None
) -> ArtifactProgram:
    """Compile the artifact ``path`` for ``device``, with its manifest next to it.

    Args:
        path: the ``.stablehlo`` file.
        device: jax's name of a platform, with an index: ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
        weights: arrays or tensors by name, those of PyTorch on the device shared with it; by default the files that
            the manifest names.

    Raises:
        ArtifactError: if a file is missing or of another format, sizes are dynamic, a weight is missing or of another
            shape, the device does not exist, or its memory does not suffice for the weights.
    """
    path = Path(path)
    manifest = path.with_suffix(".manifest.json")
    if missing := next((file for file in (path, manifest) if not file.is_file()), None):
        raise ArtifactError(f"there is no file '{missing}'")
    facts, platform = json.loads(manifest.read_text()), device.partition(":")[0]
    if facts.get("platform", platform) != platform:
        raise ArtifactError(
            f"the bundle is for '{facts['platform']}', not '{device}': save it with platform='{platform}'"
        )
    return ArtifactProgram(path.read_bytes(), facts, path.parent, device_named(device), weights)


class ArtifactProgram:
    """The functions of an artifact on a device."""

    def __init__(
        self, artifact: bytes, manifest: Any, folder: Path, device: Any, weights: Mapping[str, Any] | None = None
    ):
        if manifest.get("format") != 1:
            raise ArtifactError("the manifest is of another format")
        self.device = device
        self._torch: Any = None  # once it shares memory with the program
        self._artifact, self._manifest = artifact, manifest
        self._names = _constants_of(artifact)
        self.weights = _weights(self, folder, weights)
        """The weights on the device, by the names in the manifest."""
        self.state: dict[str, Any] = {}
        """The state on the device, by name in the state dict."""
        self.turn = threading.Lock() if manifest["state"] else contextlib.nullcontext()
        self._functions = {name: ArtifactFunction(self, name, record) for name, record in manifest["functions"].items()}
        self.reset(_initial_state(manifest, folder, weights))

    def reset(self, state: Mapping[str, Any]) -> None:
        """Copy ``state`` to the device: arrays or tensors by name in the state dict."""
        import jax

        if missing := sorted(set(self._manifest["state"]) - set(state)):
            raise ArtifactError(f"no state is passed for {', '.join(missing)}: program.reset(state)")
        self.order_after_torch(state.values())
        for name, record in self._manifest["state"].items():
            take = taker(f"the state '{name}'", *shape_of(record["type"]), self.device)
            with self.turn, jax.enable_x64(True):
                self.state[name] = jax.numpy.array(take(state[name], True), copy=True).block_until_ready()

    def order_after_torch(self, values: Iterable[Any]) -> tuple[Any, bool]:
        """Make the device wait for what PyTorch's current stream has to do, if it may touch memory of the program.

        Returns:
            The module ``torch`` if one of ``values`` is a tensor of it, and whether to take one with ``ordered=True``.
        """
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(value, torch.Tensor) for value in values):
            self._torch = torch
            return torch, wait_for_torch(torch, self.device)
        if self._torch is not None and self.device.platform != "cpu":
            self._torch.cuda.current_stream(self.device.local_hardware_id).synchronize()
        return None, False

    def __getitem__(self, name: str) -> ArtifactFunction:
        """Return the function ``name``."""
        if name not in self._functions:
            raise ArtifactError(f"there is no function '{name}': there are {', '.join(self._functions)}")
        return self._functions[name]

    def __call__(self, *inputs: Any) -> Any:
        """Call the only function."""
        if len(self._functions) > 1:
            raise ArtifactError(f"there are several functions, program[name](...): {', '.join(self._functions)}")
        return next(iter(self._functions.values()))(*inputs)


class ArtifactFunction:
    """A compiled function, with the weights that it reads."""

    def __init__(self, program: ArtifactProgram, name: str, record: Any):
        self._program, self._name, self.arguments, self.results = program, name, record["arguments"], record["results"]
        if dynamic := [one["name"] for one in self.arguments if any(type(n) is not int for n in one["type"]["shape"])]:
            raise ArtifactError(
                f"'{name}' takes any sizes of {', '.join(dynamic)}, and XLA compiles for one: lower the model with the "
                "sizes to run"
            )
        self._kinds = [(one["kind"], one["name"]) for one in self.results]
        self._only_outputs = all(kind == "output" for kind, _ in self._kinds)
        leaves = [leaf["type"] and leaf["type"]["shape"] for leaf in record["outputs"]["leaves"]]
        self._shapes = [leaves[one["leaf"]] if one["kind"] == "output" else () for one in self.results]
        new = {kind: {name for other, name in self._kinds if other == kind} for kind in ("state", "check")}
        replaced = set() if new["check"] else new["state"]  # a call that fails leaves the state as it is
        donated = [at for at, one in enumerate(self.arguments) if one["kind"] == "state" and one["name"] in replaced]
        self._inputs = [
            taker(one["name"], *shape_of(one["type"], one.get("passed_as")), program.device)
            for one in self.arguments
            if one["kind"] == "input"
        ]
        values = {"state": program.state, "weight": program.weights}
        self._held = [(values[one["kind"]], one["name"]) if one["kind"] in values else None for one in self.arguments]
        """Where each argument is that is not an input."""
        self._weights = [program.weights[weight] for weight in program._names[name]]
        shapes = [shape_of(one["type"], one.get("passed_as")) for one in self.arguments]
        weights = [(weight.shape, weight.dtype) for weight in self._weights]
        results = [shape_of(one["type"], one.get("passed_as")) for one in self.results]
        self.compiled = compile_artifact(program._artifact, name, (*shapes, *weights), results, program.device, donated)
        """jax's ``Compiled``."""
        if (memory := self.compiled.memory_analysis()) is not None:
            needed = memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
            check_memory(program.device, needed, f"the buffers of '{name}'")
        self._execute = self.compiled.runtime_executable().execute_sharded  # without the checks of jax's own call

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs: one, or a tuple."""
        program = self._program
        if len(inputs) != len(self._inputs):
            raise ArtifactError(f"'{self._name}' takes {len(self._inputs)} tensors, and {len(inputs)} are passed")
        torch, ordered = program.order_after_torch(inputs)
        passed = list[Any]()
        for take, value in zip(self._inputs, inputs, strict=True):
            passed.append(take(value, ordered))
            ordered = ordered and not isinstance(value, torch.Tensor)  # one that waits is enough
        with program.turn:  # of the old state, whose memory the new one takes
            values = [passed.pop(0) if entry is None else entry[0][entry[1]] for entry in self._held]
            shards = self._execute([*values, *self._weights]).disassemble_into_single_device_arrays()
            arrays = [array for (array,) in shards]
            if not self._only_outputs:
                results, arrays = arrays, self._outputs_of(arrays)
                if torch and results and not arrays:  # nothing else waits until the inputs are read
                    results[0].block_until_ready()
        outputs = [to_torch(torch, one, program.device) for one in arrays] if torch else arrays
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _outputs_of(self, arrays: Sequence[Any]) -> list[Any]:
        """Check the assumptions, keep the new state, and return the outputs, without the elements that do not count."""
        results = [(kind, name, value) for (kind, name), value in zip(self._kinds, arrays, strict=True)]
        if broken := [name for kind, name, value in results if kind == "check" and not value]:
            raise ArtifactError(f"'{self._name}' was captured under assumptions that do not hold: {broken[0]}")
        self._program.state.update((name, value) for kind, name, value in results if kind == "state")
        sizes = {name: int(value) for kind, name, value in results if kind == "size"}
        return [
            value[tuple(slice(sizes.get(size)) for size in shape)] if sizes and shape else value
            for (kind, _, value), shape in zip(results, self._shapes, strict=True)
            if kind not in ("state", "check", "size")
        ]


# --- devices --------------------------------------------------------------------------------------------------------


def device_named(name: str) -> Any:
    """Return jax's device by the name of a platform, with or without an index. Raises `ArtifactError` if there is none.

    XLA leaves PyTorch the memory of a GPU that it does not need yet, unless the environment says otherwise.
    """
    platform, _, index = name.partition(":")
    if not platform or (index and not index.isdecimal()):
        raise ArtifactError(f"'{name}' names no device: accepted are 'cpu', 'cuda' and 'cuda:1'")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    backends = importlib.import_module("jax.extend.backend")
    try:
        devices = backends.get_backend(platform).local_devices()
    except RuntimeError as error:  # no such plug-in, no driver, or one that is too old for the plug-in
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ArtifactError(
            f"jax has no platform '{platform}' here: {reason}. Its plug-ins bring others: pip install 'jax[cuda13]' "
            "for 'cuda', with NVIDIA's driver; 'cpu' is always there"
        ) from error
    if int(index or 0) >= len(devices):
        raise ArtifactError(f"there is no device '{name}': jax has {len(devices)} of '{platform}', numbered from 0")
    return devices[int(index or 0)]


def check_memory(device: Any, needed: int, what: str) -> None:
    """Raise `ArtifactError` if ``device`` has fewer than ``needed`` bytes left, as far as it says how many it has."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats and needed > (left := stats["bytes_limit"] - stats["bytes_in_use"]):
        raise ArtifactError(f"{what} take {needed:,} bytes, and the device {device} has {left:,} left")


# --- artifacts ------------------------------------------------------------------------------------------------------


def compile_artifact(
    artifact: bytes,
    name: str,
    arguments: Sequence[tuple[Any, Any]],
    results: Sequence[tuple[Any, Any]],
    device: Any,
    donated: Collection[int] = (),
) -> Any:
    """Compile the function ``name`` of an artifact for one device; return jax's ``Compiled``.

    ``arguments``, weights among them, and ``results`` are shapes and numpy's dtypes. ``donated`` are the positions of
    arguments whose memory results may take.
    """
    import jax

    place = jax.sharding.SingleDeviceSharding(device)
    with jax.enable_x64(True):
        function = jax.jit(
            artifact_call(artifact, results, name),
            keep_unused=True,
            donate_argnums=tuple(donated),
            in_shardings=(place,) * len(arguments),
            out_shardings=[place] * len(results),
        )
        return function.lower(*(jax.ShapeDtypeStruct(*argument) for argument in arguments)).compile()


def artifact_call(artifact: bytes, results: Sequence[tuple[Any, Any]], name: str = "main") -> Callable[..., Any]:
    """Return the function ``name`` of an artifact, with results of these shapes and dtypes, as one that jax traces."""
    return lambda *arrays: _call().bind(*arrays, artifact=artifact, function=name, results=tuple(results))


@functools.cache
def _call() -> Any:
    """Return jax's primitive that calls a function of an artifact."""
    core, mlir = importlib.import_module("jax.extend.core"), importlib.import_module("jax.interpreters.mlir")
    shaped = importlib.import_module("jax.core").ShapedArray
    primitive = core.Primitive("fx_importer_call")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *_, results, **__: [shaped(*result) for result in results])
    mlir.register_lowering(primitive, _lowered)
    return primitive


def _lowered(context: Any, *operands: Any, artifact: bytes, function: str, results: Any) -> Any:
    """Emit the call in the module that jax makes, with the bindings of jax."""
    del results
    ir, func, stablehlo = _bindings()
    mlir = importlib.import_module("jax.interpreters.mlir")
    outer = context.module_context
    inner = stablehlo.deserialize_portable_artifact(outer.context, artifact)
    table = ir.SymbolTable(inner.operation)
    for other in [op for op in inner.body.operations if op.name.value != function and function != "main"]:
        if "sym_visibility" not in other.attributes:
            table.erase(other)
    types = table[function].type.results
    table.set_symbol_name(table[function], "main")  # as jax expects
    name = mlir.merge_mlir_modules(outer.module, "fx_importer_main", inner)
    return func.CallOp(types, ir.FlatSymbolRefAttr.get(name), operands).results


def _constants_of(artifact: bytes) -> dict[str, list[str]]:
    """Return the names of the weights that each function takes as last arguments."""
    ir, _, stablehlo = _bindings()
    names: dict[str, list[str]] = {}
    context = importlib.import_module("jax.interpreters.mlir").make_ir_context()
    with context:
        try:
            module = stablehlo.deserialize_portable_artifact(context, artifact)
        except ValueError as error:
            raise ArtifactError(f"this release of jax does not read the artifact: {error}") from error
        for op in module.body.operations:
            names[op.name.value] = []
            if "arg_attrs" in op.attributes:
                dicts = [ir.DictAttr(attributes) for attributes in op.attributes["arg_attrs"]]
                read = [
                    attributes["fx_importer.constant"] for attributes in dicts if "fx_importer.constant" in attributes
                ]
                names[op.name.value] = [ir.StringAttr(attribute).value for attribute in read]
    return names


def _bindings() -> Any:
    names = "jaxlib.mlir.ir", "jaxlib.mlir.dialects.func", "jaxlib.mlir.dialects.stablehlo"
    return tuple(map(importlib.import_module, names))


# --- arrays ---------------------------------------------------------------------------------------------------------


def shape_of(kind: Any, passed_as: str | None = None) -> tuple[tuple[int, ...], Any]:
    """Return the shape of a type in the manifest, and numpy's dtype."""
    name = passed_as or kind["dtype"]
    try:
        return tuple(kind["shape"]), np.dtype(name)
    except TypeError:  # one of those that numpy lacks
        return tuple(kind["shape"]), np.dtype(getattr(importlib.import_module("ml_dtypes"), name))


def taker(what: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Callable[[Any, bool], Any]:
    """Return what makes an array on ``device`` of a tensor or an array. It raises `ArtifactError` if it does not fit.

    Tensors of PyTorch on the device are read in place; ``ordered`` says whether after `wait_for_torch`.
    """
    import jax

    @functools.cache
    def of_torch() -> tuple[Any, Any, Any, TorchReader]:
        torch = sys.modules["torch"]
        return torch.Tensor, torch_device(torch, device), getattr(torch, dtype.name), TorchReader(torch, device)

    def take(value: Any, ordered: bool) -> Any:
        if "torch" in sys.modules and isinstance(value, (of := of_torch())[0]):
            if value.device != of[1]:
                raise ArtifactError(f"{what} is on {value.device}, the program on {of[1]}: pass {what}.to('{of[1]}')")
            if value.shape == shape and value.dtype is of[2]:
                return of[3](value, ordered)
            array = value
        else:
            array = value if isinstance(value, jax.Array) else np.asarray(value)
            if array.shape == shape and array.dtype == dtype:
                if isinstance(array, np.ndarray) and array.flags.writeable:
                    array = array.copy()  # it may change after the call, when jax still reads it, on the CPU in place
                with jax.enable_x64(True):
                    return jax.device_put(array, device)
        raise ArtifactError(f"{what} is {array.dtype} {list(array.shape)}, and has to be {dtype.name} {list(shape)}")

    return take


# --- weights --------------------------------------------------------------------------------------------------------


def _weights(program: ArtifactProgram, folder: Path, passed: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the weights of the manifest on the device."""
    records, passed = program._manifest["weights"], dict(passed) if passed is not None else None
    needed = sum(math.prod(one["type"]["shape"]) * shape_of(one["type"])[1].itemsize for one in records.values())
    if program.order_after_torch((passed or {}).values())[0] is None:
        check_memory(program.device, needed, "the weights")
    weights: dict[str, Any] = {}
    for key, one in records.items():
        value = _of_file(folder, one) if passed is None else passed.get(one["name"], passed.get(key))
        if value is None:
            raise ArtifactError(f"no weight is passed for '{one['name']}'")
        what = f"the weight '{one['name']}'"
        weights[key] = taker(what, *shape_of(one["type"], one.get("passed_as")), program.device)(value, True)
    return weights


def _of_file(folder: Path, record: Any) -> Any:
    """Return the tensor of a record of the manifest, mapped from its file."""
    if record.get("file") is None:
        raise ArtifactError(f"the manifest names no file for '{record['name']}': pass weights=")
    shape, dtype = shape_of(record["type"], record.get("passed_as"))
    path = folder / record["file"]["path"]
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ArtifactError(f"the manifest names the file '{path}', outside of '{folder}': pass weights=")
    if not path.is_file():
        raise ArtifactError(f"there is no file '{path}', which has the weight '{record['name']}'")
    if path.stat().st_size < record["file"]["offset"] + record["file"]["nbytes"]:
        raise ArtifactError(f"'{path}' is too short for the weight '{record['name']}'")
    if not (count := record["file"]["nbytes"]):
        return np.zeros(shape, dtype)
    return np.memmap(path, np.uint8, "r", record["file"]["offset"], (count,)).view(dtype).reshape(shape)


def _initial_state(manifest: Any, folder: Path, passed: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the state to begin with: what is passed, else what the file next to the manifest has."""
    path = folder / "state.npz"
    if passed is not None or not manifest["state"] or not path.is_file():
        return dict(passed or {})
    with np.load(path) as file:
        return {
            name: file[name].view(shape_of(record["type"])[1]).reshape(record["type"]["shape"])
            for name, record in manifest["state"].items()
        }
