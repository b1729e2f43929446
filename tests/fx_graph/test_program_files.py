"""``.pt2`` files from others: loading one runs no code that it names, unless it is trusted."""

from __future__ import annotations

import importlib
import io
import json
import operator
import pickle
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fx_importer import UsageError
from fx_importer.fx_graph import operator_libraries
from fx_importer.fx_graph.operator_libraries import LIBRARIES, import_libraries
from fx_importer.fx_graph.program_files import read_program

Parts = dict[str, bytes]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ModuleDict({"a-b c/d": torch.nn.Linear(4, 4)})
        self.constant = torch.arange(4.0)

    def forward(self, x, *rest, table, mode="fast"):
        y = self.inner["a-b c/d"](x) + self.constant * table["a b"]
        return {"y": torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,)), "rows": x.shape[0] * 2 + 1}


@dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="tests.fx_graph.Pair")


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Parts:
    path = tmp_path_factory.mktemp("saved") / "m.pt2"
    x, table = torch.ones(3, 4), {"a b": torch.ones(4)}
    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=9)}, "table": {"a b": None}, "mode": None}
    torch.export.save(
        torch.export.export(
            Model().requires_grad_(False), (x,), {"table": table, "mode": "fast"}, dynamic_shapes=shapes
        ),
        path,
    )
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(parts: Parts, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def at(*keys: Any) -> Callable[[Any], Any]:
    """Return a function that returns a part of nested containers."""
    return lambda found: at(*keys[1:])(operator.itemgetter(keys[0])(found)) if keys else found


def edited(name: str, change: Callable[[Any], object]) -> Callable[[Parts], None]:
    """Return a change of the JSON in an entry."""

    def edit(parts: Parts) -> None:
        (entry,) = (each for each in parts if each.endswith(name))
        found = json.loads(parts[entry])
        change(found)
        parts[entry] = json.dumps(found).encode()

    return edit


def everywhere(key: str, value: Any) -> Callable[[Parts], None]:
    """Return a change of all values of a key in the model."""

    def change(found: Any) -> None:
        if isinstance(found, dict):
            for name, each in found.items():
                if name == key:
                    found[name] = value
                else:
                    change(each)
        elif isinstance(found, list):
            for each in found:
                change(each)

    return edited("models/model.json", change)


def added(name: str, data: bytes) -> Callable[[Parts], None]:
    return lambda parts: parts.update(
        {name if name.startswith("./") else f"{next(iter(parts)).split('/')[0]}/{name}": data}
    )


class Runs:
    """An object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path("ran").touch, ()


def saved(value: object) -> bytes:
    torch.save(value, data := io.BytesIO())
    return data.getvalue()


def pickled(parts: Parts) -> None:
    edited("model_weights_config.json", lambda found: next(iter(found["config"].values())).update(use_pickle=True))(
        parts
    )
    added("data/weights/weight_0", saved(Runs()))(parts)


def opaque(parts: Parts) -> None:
    def change(found: Any) -> None:
        next(iter(found["config"].values())).update(path_name="opaque_obj_0", use_pickle=True)

    edited("model_constants_config.json", change)(parts)
    added("data/constants/opaque_obj_0", pickle.dumps(Runs()))(parts)


def named(name: str, size: str) -> Callable[[Parts], None]:
    """Return a change of the first tensor's name, and of its size."""

    def change(parts: Parts) -> None:
        (entry,) = (part for part in parts if part.endswith("models/model.json"))
        graph = json.loads(parts[entry])["graph_module"]["graph"]
        first = next(key for key, value in graph["tensor_values"].items() if "as_expr" in value["sizes"][0])
        parts[entry] = parts[entry].replace(f'"{first}"'.encode(), f'"{name}"'.encode())
        edited("models/model.json", sized)(parts)

    def sized(found: Any) -> None:
        value = found["graph_module"]["graph"]["tensor_values"][name]
        value["sizes"][0]["as_expr"]["expr_str"] = size

    return change


CODE = "__import__('pathlib').Path('ran').touch()"
ENUM = json.dumps([{"__enum__": True, "fqn": "untrusted:Colour", "name": "RED"}])
TREE = json.dumps([1, {"type": "builtins.dict", "context": ENUM, "children_spec": []}])
FACTORY = {"default_factory_module": "untrusted", "default_factory_name": "make", "dict_context": []}
DEFAULTS = json.dumps([1, {"type": "collections.defaultdict", "context": FACTORY, "children_spec": []}])
KEYS = json.dumps(["a', 1, 2); " + CODE + " #"])
ORDERED = json.dumps([1, {"type": "collections.OrderedDict", "context": KEYS, "children_spec": []}])
NODES = ("graph_module", "graph", "nodes", 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (everywhere("expr_str", CODE), "is more than the arithmetic of a size"),
        (everywhere("expr_str", "lambdify([], 'x')"), "is more than the arithmetic"),
        (everywhere("expr_str", "Symbol('x').func('y')"), "is more than the arithmetic"),
        (everywhere("expr_str", "9**9**9"), "is more than the arithmetic"),
        (everywhere("expr_str", "Pow(Integer(9), Integer(999999999))"), "is more than the arithmetic"),
        (everywhere("expr_str", "'x' + 'y'"), "is more than the arithmetic"),
        (everywhere("expr_str", "(" * 5000), "it is nested too deeply"),
        (everywhere("expr_str", "-" * 5000 + "1"), "it is nested too deeply"),
        (everywhere("expr_str", "2**10**10"), "whose exponent is unknown or large"),
        (everywhere("expr_str", "LShift(Integer(1), Symbol('s0'))"), "shifts by a number that is unknown"),
        (everywhere("expr_str", "factorial(Integer(999999999))"), "'factorial' is not a function of sizes"),
        (everywhere("expr_str", "sqrt(Float('2.0', precision=400000000))"), "a number of too many digits"),
        (everywhere("expr_str", "Pow(Add(a, b, c, d, e), Integer(30))"), "a polynomial of too many terms"),
        (named("metadata", CODE), "is more than the arithmetic of a size"),
        (named("as_string", CODE), "is more than the arithmetic of a size"),
        (named("torch_version", CODE), "is more than the arithmetic of a size"),
        (everywhere("target", "torch.ops.load_library.__call__"), "which is not an operator"),
        (everywhere("target", "torch.hub.load"), "which is not an operator"),
        (everywhere("target", "torch.os.system"), "which is not an operator"),
        (everywhere("target", "_operator.attrgetter"), "which is not an operator"),
        (everywhere("target", "math.__loader__"), "which is not an operator"),
        (everywhere("target", "torch.ops.aten.from_file.default"), "which opens a file"),
        (everywhere("target", "torch.ops.prim.Print.default"), "TorchScript's interpreter"),
        (everywhere("target", "torch.ops.absent.twice.default"), "is not registered in this process: import what"),
        (everywhere("in_spec", TREE), "names a class to import"),
        (everywhere("in_spec", TREE.replace("__enum__", r"\\u005f_enum__")), "names a class to import"),
        (everywhere("in_spec", ORDERED), "is not a name"),
        (everywhere("out_spec", DEFAULTS), "names a function to import"),
        (everywhere("in_spec", "no JSON"), "the structure of its inputs or outputs cannot be read"),
        (edited("models/model.json", lambda found: found.update(guards_code=[CODE])), "the arithmetic of a guard"),
        (
            edited("models/model.json", lambda found: at(*NODES)(found).update(name="x = 1; import os #")),
            "is not the name of a variable",
        ),
        (everywhere("forward_arg_names", ["x=print(1)"]), "is not the name of a variable"),
        (everywhere("parameter_name", 'a"; import os; "'), "is not a name"),
        (added("data/sample_inputs/model.pt", saved(((Runs(),), {}))), "its example inputs are not tensors"),
        (added("data/aotinductor/model/code.so", b"ELF"), "which is not plain data"),
        (added("data/weights/model.pt", saved(Runs())), "which is not plain data"),
        (added("data/constants/custom_obj_0", pickle.dumps(Runs())), "which is not plain data"),
        (added("./serialized_state_dict.pt", saved(Runs())), "are not those of one folder"),
        (pickled, "is pickled, as tensor subclasses and script objects are"),
        (opaque, "which is not plain data"),
    ],
)
def test_untrusted_file_runs_nothing(parts, tmp_path, monkeypatch, change, sentence):
    (tmp_path / "untrusted.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    change(given := dict(parts))
    with pytest.raises(UsageError, match=sentence) as caught:
        read_program(written(given, tmp_path / "m.pt2"))
    assert str(caught.value).endswith("If you trust who made it: --trust, or trust=True")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (edited("models/model.json", lambda found: found.update(more=1)), "ExportedProgram has 'more'"),
        (edited("models/model.json", lambda found: found.pop("opset_version")), "ExportedProgram lacks opset_version"),
        (edited("models/model.json", lambda found: at(*NODES)(found).update(inputs={})), "Node.inputs is not a list"),
        (everywhere("kind", 77), "NamedArgument.kind is '77'"),
        (everywhere("requires_grad", 0), "TensorMeta.requires_grad is '0', which is not a bool"),
        (
            everywhere("range_constraints", {"u99999999999": {"min_val": 0, "max_val": 1}}),
            "is not the name of a symbol",
        ),
        (everywhere("as_tensor", {"name": "x", "more": 1}), "TensorArgument has 'more'"),
        (edited("model_weights_config.json", lambda found: enlarge(found)), "is not within its 64 bytes"),
    ],
)
def test_structure_is_checked(parts, tmp_path, change, sentence):
    change(given := dict(parts))
    with pytest.raises(UsageError, match=sentence):
        read_program(written(given, tmp_path / "m.pt2"))


def enlarge(listed: Any) -> None:
    next(iter(listed["config"].values()))["tensor_meta"]["sizes"][0]["as_int"] = 2**40


def test_compressed_archive_is_bounded(parts, tmp_path):
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    assert read_program(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(next(iter(parts)).split("/")[0] + "/extra/zeros", bytes(2**28))
    with pytest.raises(UsageError, match="bytes would expand to 268"):
        read_program(path)


def test_plain_file_is_read(parts, tmp_path):
    program = read_program(written(parts, tmp_path / "m.pt2"))
    x, table = torch.ones(3, 4), {"a b": torch.ones(4)}
    assert program.module()(x, table=table, mode="fast")["rows"] == 7


def test_trusted_file_may_have_pickled_objects(tmp_path):
    class Sum(torch.nn.Module):
        def forward(self, pair):
            return pair.first + pair.second

    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Sum(), (Pair(torch.ones(2), torch.ones(2)),)), path)
    with pytest.raises(UsageError, match="its example inputs are not tensors, numbers and containers"):
        read_program(path)
    assert len(list(read_program(path, trust=True).graph.nodes)) == 4


def test_damaged_weights_are_named(parts, tmp_path):
    """torch does not check the checksums of a zip archive: a flipped bit would be a wrong number."""
    path = written(parts, tmp_path / "m.pt2")
    (name,) = (each for each in parts if each.endswith("weights/weight_0"))
    data = bytearray(path.read_bytes())
    data[data.index(parts[name])] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="is damaged: the checksum of '.*/weights/weight_0' differs"):
        read_program(path, trust=True)


def test_known_libraries_of_operators_are_imported(tmp_path, monkeypatch):
    """`fx-importer quantize -o q.pt2` names operators that a new process has not registered."""
    for name in ("known_operators", "other_operators"):
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(operator_libraries, "LIBRARIES", {"known": "known_operators", "lacking": "not_installed_here"})
    import_libraries(b'"torch.ops.known.add.default", "torch.ops.lacking.add.default", "torch.ops.other_operators.add"')
    assert "known_operators" in sys.modules
    assert "other_operators" not in sys.modules
    assert all(importlib.import_module(module) for module in LIBRARIES.values() if "torchvision" not in module)
