"""Weights outside of the module: lowering does not depend on their values, and results agree once they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import export
from transformers import LlamaConfig, LlamaForCausalLM

from fx_importer import (
    FxImporterHooks,
    InputInfo,
    Lowered,
    NodeBuilder,
    StageFailed,
    UnsupportedProgramError,
    UsageError,
    link,
    lower,
)
from fx_importer.dynamo import import_function
from fx_importer.mlir.bindings import ir

TYPES = ("raw", "torch", "linalg-on-tensors", "tosa", "stablehlo")
RUN = TYPES[2:]
POLICIES = ("external", "args")


class Small(torch.nn.Module):
    """All kinds of weights: tied, transposed, splat, two equal ones, integers, bools."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.first = torch.nn.Linear(16, 16)
        self.second = torch.nn.Linear(16, 16)
        self.tied = torch.nn.Linear(16, 16, bias=False)
        self.tied.weight = self.first.weight
        self.strided = torch.nn.Parameter(torch.rand(16, 16).t())
        self.register_buffer("order", torch.randperm(16))
        self.register_buffer("mask", torch.rand(16) > 0.5)
        self.register_buffer("shift", torch.rand(16), persistent=False)

    def forward(self, x):
        y = self.norm(self.conv(x)).flatten(1)
        y = self.tied(torch.relu(self.second(self.first(y)))) @ self.strided
        return torch.where(self.mask, y[:, self.order], self.shift)  # pyright: ignore


X = torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))


def small(fill: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor) -> Small:
    torch.manual_seed(0)
    model = Small().eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(fill(tensor))
    return model


def text(model: torch.nn.Module, output_type: str, policy: str) -> str:
    return str(lower(model, X, output_type=output_type, weights=policy).module)


@pytest.mark.slow_rows(
    "^linalg-on-tensors-args$",
    "^tosa-external$",
    "^tosa-args$",
    "^stablehlo-external$",
    "^torch-external$",
    "^linalg-on-tensors-external$",
    "^torch-args$",
)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("output_type", TYPES)
def test_module_does_not_depend_on_values(output_type, policy):
    lowered = text(small(), output_type, policy)
    assert "mask" in lowered
    assert text(small(torch.zeros_like), output_type, policy) == lowered
    assert text(small(torch.ones_like), output_type, policy) == lowered


@pytest.mark.slow_rows(
    "^stablehlo-external$",
    "^linalg-on-tensors-external$",
    "^tosa-external$",
    "^tosa-args$",
    "^raw-external$",
    "^stablehlo-args$",
    "^torch-(external|args)$",
)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("output_type", TYPES)
def test_meta_model_lowers_like_a_real_one(output_type, policy):
    """Except for tensors that are not in the state dict, which now have to be given as well."""
    with torch.device("meta"):
        meta = Small().eval()
    with FakeTensorMode():
        fake = Small().eval()
    meta.shift = fake.shift = small().shift
    lowered = text(small(), output_type, policy)
    assert text(meta, output_type, policy) == lowered
    assert text(fake, output_type, policy) == lowered
    assert str(lower(meta, X.to("meta"), output_type=output_type, weights=policy).module) == lowered


@pytest.mark.slow_rows("^tosa-args$", "^tosa-external$", "^stablehlo-args$", "^stablehlo-external$")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("output_type", RUN)
def test_weights_are_replaced_without_lowering_again(output_type, policy):
    model, other = small(), small(torch.rand_like)
    lowered = lower(model, X, output_type=output_type, weights=policy)
    torch.testing.assert_close(lowered.caller(backend="jit")(X), model(X))
    changed = lowered.with_weights(other)
    assert changed.module is lowered.module
    torch.testing.assert_close(changed.caller(backend="jit")(X), other(X))
    torch.testing.assert_close(changed.caller(backend="eager")(X), other(X))
    assert changed.verify(backends=["jit"], isolate=False).passed


def test_bisecting():
    lowered = lower(small(), X, output_type="linalg-on-tensors", weights="external")
    assert lowered.bisect(isolate=False) is None


def config(**given: object) -> LlamaConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 50}
    return LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, use_cache=False, **given)


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(config(tie_word_embeddings=True)).eval()


@pytest.fixture(scope="module")
def meta_llama() -> LlamaForCausalLM:
    with torch.device("meta"):
        return LlamaForCausalLM(config(tie_word_embeddings=True)).eval()


IDS = torch.arange(8).reshape(1, 8)


@pytest.mark.slow_rows("^linalg-on-tensors-args$", "^stablehlo-external$")
@pytest.mark.parametrize(
    "output_type, policy", [("linalg-on-tensors", "args"), ("stablehlo", "external"), ("tosa", "external")]
)
def test_llama_on_the_meta_device(llama, meta_llama, output_type, policy):
    lowered = lower(meta_llama, output_type=output_type, weights=policy, kwargs={"input_ids": IDS})
    with pytest.raises(UsageError, match="no values for 'model.rotary_emb.inv_freq', .*with_weights"):
        lowered.run(input_ids=IDS)
    with pytest.raises(UsageError, match="no values"):
        lowered.verify()
    # As users without such a model do: materialize it, and load values.
    filled = LlamaForCausalLM(config(tie_word_embeddings=True)).eval()
    filled.load_state_dict(llama.state_dict())
    weights = filled if policy == "args" else [llama.state_dict(), dict(llama.named_buffers())]
    found = lowered.with_weights(weights).caller(backend="jit")(input_ids=IDS)
    torch.testing.assert_close(found["logits"], llama(IDS).logits)


@pytest.mark.slow_rows("^stablehlo$", "^linalg-on-tensors$")
@pytest.mark.parametrize("output_type", RUN)
def test_saved_and_linked(llama, meta_llama, output_type, tmp_path):
    """The module in one file, the weights in transformers' shards, and in one file of this package."""
    lowered = lower(meta_llama, output_type=output_type, weights="external", kwargs={"input_ids": IDS})
    llama.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert (tmp_path / "parts" / "model.safetensors.index.json").is_file()
    parts = lowered.with_weights([tmp_path / "parts", dict(llama.named_buffers())])
    parts.save(tmp_path / "model.mlirbc", weights=tmp_path / "model.safetensors")
    assert (tmp_path / "model.mlirbc").stat().st_size < 20_000
    linked = link(tmp_path / "model.mlirbc")
    assert str(linked) == str(parts.linked) == str(link(tmp_path / "model.mlirbc", llama))
    assert linked.context is not lowered.module.context
    torch.testing.assert_close(parts.caller(backend="jit")(input_ids=IDS)["logits"], llama(IDS).logits)


def test_mixed_devices(tmp_path):
    """A real buffer and a parameter on the meta device, in one sum."""

    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("real", torch.arange(4.0))
            self.register_buffer("table", torch.arange(8.0), persistent=False)
            self.weight = torch.nn.Parameter(torch.empty(4, device="meta"))

        def forward(self, x):
            table = self.get_buffer("table")[4:]
            return x * self.weight + self.real + table + torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)

    lowered = lower(Mixed(), torch.empty(2, 4, device="meta"), output_type="tosa", weights="external")
    assert set(lowered.manifest.weights) == {"weight", "real"}
    weight = torch.rand(4)
    filled = lowered.with_weights({"weight": weight, "real": torch.arange(4.0)})
    expected = weight + torch.arange(4.0) + torch.arange(4.0, 8.0) + torch.arange(1.0, 5.0)
    torch.testing.assert_close(filled.caller(backend="jit")(torch.ones(2, 4)), expected.expand(2, 4))


class Difference(torch.nn.Module):
    def forward(self, x, y):
        return x - y


class Views(torch.nn.Module):
    """Mutates a buffer, and reads a view of it by another name."""

    def __init__(self):
        super().__init__()
        self.register_buffer("all", torch.zeros(8))
        self.register_buffer("part", self.get_buffer("all")[:4])

    def forward(self, x):
        self.get_buffer("all").add_(1)
        return self.get_buffer("part") + x


@pytest.mark.parametrize(
    "place", [torch.device("cpu"), torch.device("meta"), FakeTensorMode()], ids=["cpu", "meta", "fake"]
)
def test_shared_memory(place):
    """Inputs that are one tensor are two program inputs; a write to the base of another buffer is an error."""
    with place:
        x, model = torch.ones(4), Views()
    lowered = lower(Difference(), x, x, output_type="linalg-on-tensors", weights="external")
    torch.testing.assert_close(lowered.run(torch.full((4,), 3.0), torch.ones(4)), torch.full((4,), 2.0))
    with pytest.raises(
        UnsupportedProgramError, match="writes to the buffer 'all', which shares memory with the buffer 'part'"
    ):
        lower(model, x, output_type="linalg-on-tensors", weights="external", mutation="functional")


def test_program_exported_on_the_meta_device(llama, meta_llama):
    program = export(meta_llama, (), {"input_ids": IDS.to("meta")})
    assert "meta" in str(program.graph)
    before = str(program.graph)
    lowered = lower(program, output_type="stablehlo", weights="external")
    assert str(program.graph) == before
    assert "meta" not in str(lower(program, output_type="torch", weights="external").module)
    found = lowered.with_weights(llama).caller(backend="jit")(input_ids=IDS)
    torch.testing.assert_close(found["logits"], llama(IDS).logits)


@pytest.mark.slow_rows("^args$")
@pytest.mark.parametrize("policy", POLICIES)
def test_dynamic_shapes(policy):
    with torch.device("meta"):
        meta = Small().eval()
    shapes = ({0: torch.export.Dim("batch")},)
    lowered = lower(meta, X.to("meta"), output_type="linalg-on-tensors", weights=policy, dynamic_shapes=shapes)
    model = small()
    torch.testing.assert_close(lowered.with_weights(model).run(X[:2]), model(X[:2]))


def test_inline_meta_weights_are_an_error(meta_llama):
    with pytest.raises(UnsupportedProgramError, match="weights='external'"):
        lower(meta_llama, output_type="torch", kwargs={"input_ids": IDS})


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen += x
        return self.seen * self.weight


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mutation", ["functional", "mutable"])
def test_state_is_not_an_external_weight(policy, mutation):
    model = Counter()
    lowered = lower(model, torch.ones(3), output_type="linalg-on-tensors", weights=policy, mutation=mutation)
    assert set(lowered.manifest.weights) == {"weight"}
    kinds = {each.name: each.kind for each in lowered.manifest.functions["main"].arguments}
    assert kinds == {"seen": "state", "x": "input"} | ({"weight": "weight"} if policy == "args" else {})
    for times in (1.0, 2.0):
        torch.testing.assert_close(lowered.run(torch.ones(3)), model.weight.detach() * times)
    caller = lowered.caller({"seen": torch.full((3,), 5.0)})
    torch.testing.assert_close(caller(torch.ones(3)), model.weight.detach() * 6)


def test_meta_state_has_to_be_given():
    with torch.device("meta"):
        model = Counter()
    lowered = lower(model, torch.ones(3), output_type="linalg-on-tensors", weights="external", mutation="functional")
    filled = lowered.with_weights({"weight": torch.ones(3)})
    with pytest.raises(UsageError, match="the state 'seen' is on the meta device"):
        filled.run(torch.ones(3))
    torch.testing.assert_close(filled.caller({"seen": torch.zeros(3)})(torch.ones(3)), torch.ones(3))


@pytest.mark.parametrize("policy", POLICIES)
def test_programs_share_weights(policy):
    model = small()
    programs = {"one": export(model, (X,)), "two": export(model, (X[:1],))}
    lowered: Lowered = lower(programs, output_type="linalg-on-tensors", weights=policy)
    # torch.export chooses one of the two names of a tensor.
    names = [sorted((each.name, *each.also)) for each in lowered.manifest.weights.values()]
    expected = [["first.weight", "tied.weight"], *([name] for name in model.state_dict())]
    single = ("first.weight", "tied.weight", "norm.num_batches_tracked")
    assert sorted(names) == sorted(each for each in expected if len(each) == 2 or each[0] not in single)
    caller = lowered.caller()
    torch.testing.assert_close(caller["one"](X), model(X))
    torch.testing.assert_close(caller["two"](X[:1]), model(X[:1]))


def test_programs_of_different_models():
    programs = {"one": export(small(), (X,)), "two": export(small(torch.zeros_like), (X,))}
    with pytest.raises(UnsupportedProgramError, match="another program of this module has another tensor of that name"):
        lower(programs, output_type="raw", weights="external")


@pytest.mark.slow_rows(
    r"^raw-torch\.bfloat16$",
    r"^tosa-torch\.bfloat16$",
    r"^tosa-torch\.complex64$",
    r"^raw-torch\.float8_e4m3fn$",
    r"^raw-torch\.uint8$",
)
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.uint8, torch.complex64, torch.bool], ids=str
)
@pytest.mark.parametrize("output_type", ["raw", "tosa"])
def test_linked_module_equals_the_inline_one(dtype, output_type):
    """Bit for bit: the linked module prints as the one with inline weights."""

    class Holds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            values = torch.arange(1, 101).reshape(10, 10)
            self.register_buffer("held", (values % 2 == 0) if dtype == torch.bool else values.to(dtype))

        def forward(self):
            return self.get_buffer("held").t().clone()

    if dtype == torch.complex64 and output_type == "tosa":
        inline, external = (lower(Holds(), output_type=output_type, weights=each) for each in ("inline", "external"))
        return torch.testing.assert_close(external.caller(backend="jit")(), inline.caller(backend="jit")())
    external = lower(Holds(), output_type=output_type, weights="external")
    if output_type == "raw":
        assert str(external.linked) == str(lower(Holds(), output_type=output_type).module)
    else:
        torch.testing.assert_close(
            external.caller(backend="jit")().contiguous().view(torch.uint8), Holds()().contiguous().view(torch.uint8)
        )
    return None


def test_hooks_precede_external_weights():
    class Resolves(FxImporterHooks):
        def resolve_literal(self, gni: NodeBuilder, literal: Any, info: InputInfo | None) -> ir.Value | None:
            if info is None or info.input_spec.target != "strided":
                return None
            return gni.op("torch.operator", [info.ir_type], [], {"name": ir.StringAttr.get("torch.mine")}).result

    lowered = lower(small(), X, hooks=Resolves(), weights="external")
    assert 'torch.operator "torch.mine"' in str(lowered.module)
    assert "strided" not in lowered.manifest.weights
    assert lowered.manifest.weights.keys() < set(small().state_dict())


def test_report_without_weights(meta_llama, tmp_path):
    """The report reproduces the failure, though the model is on the meta device."""

    def fails(module: ir.Operation) -> None:
        raise RuntimeError("as it should")

    with pytest.raises(StageFailed, match="as it should") as error:
        lower(
            meta_llama,
            output_type="torch",
            weights="external",
            pipeline=lambda pipeline: pipeline.after("torch-backend", fails),
            dump_dir=tmp_path,
            kwargs={"input_ids": IDS},
        )
    assert error.value.report is not None
    report = Path(error.value.report)
    assert (report / "before.mlirbc").stat().st_size < 50_000
    text = (report / "before.mlir").read_text()
    assert "dense_resource<model.norm.weight>" in text
    assert "weights=" not in text
    assert '"weights": "external"' in (report / "report.json").read_text()


def test_functions_without_the_option_weights():
    compiled = torch.compile(small(), backend="fx_importer", options={"weights": "external"})
    with pytest.raises(BackendCompilerFailed, match="has no option 'weights'"):
        compiled(X)
    with pytest.raises(UsageError, match="has no option 'weights'"):
        import_function(small(), X, weights="args")


def test_weights_that_change_after_loading_are_an_error():
    model, x = torch.nn.Linear(64, 64), torch.ones(2, 64)
    lowered = lower(model, x, output_type="linalg-on-tensors")
    torch.testing.assert_close(lowered.run(x), model(x))
    with torch.no_grad():
        model.weight.mul_(2)
    with pytest.raises(UsageError, match="changed in place since the backend loaded it: lower the model again"):
        lowered.run(x)
