"""Models over eight devices, as whole programs with a plan and as the program of each rank, beside eager PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.export.experimental import _export_forward_backward
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
from transformers.modeling_outputs import CausalLMOutput

from fx_importer import Lowered, lower
from fx_importer.distributed import Mesh, Plan, export_on_mesh, fake_process_group
from fx_importer.llm.decoder import Decoder

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32,
}
BATCHED = {"experts_implementation": "batched_mm"}  # make_fx does not trace grouped products of float32
ATTENTION = {"*.q_proj.weight": {"tp": 0}, "*.k_proj.weight": {"tp": 0}, "*.v_proj.weight": {"tp": 0}}
CACHE = {"cache.*": {"dp": 0, "tp": 1}, "tokens": {"dp": 0}, "padding": {"dp": 0}, "output": {"dp": 0}}
LLAMA = {
    **ATTENTION,
    **CACHE,
    "*.o_proj.weight": {"tp": 1},
    "*.gate_proj.weight": {"tp": 0},
    "*.up_proj.weight": {"tp": 0},
    "*.down_proj.weight": {"tp": 1},
    "*lm_head.weight": {"tp": 0},
}
GPT2 = {
    **CACHE,
    "*.c_attn.weight": {"tp": 1},
    "*.c_attn.bias": {"tp": 0},
    "*.c_fc.weight": {"tp": 1},
    "*.c_fc.bias": {"tp": 0},
    "*.c_proj.weight": {"tp": 0},
}
MIXTRAL = {**ATTENTION, **CACHE, "*.o_proj.weight": {"tp": 1}, "*.experts.*": {"tp": 0}}


def tokens_of(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 64, (batch, length), generator=torch.manual_seed(1))


def decoding(model: Any, plan: dict[str, Any], mesh: str = "dp=2,tp=4") -> Lowered:
    """Return prefill of eight tokens and decode of one, of four sequences, with a cache of 16 positions."""
    decoder = Decoder(model, batch=4, context=16).eval()
    zero, padding = torch.tensor(0), torch.zeros(4, dtype=torch.int64)
    with torch.no_grad():
        programs = {
            "prefill": torch.export.export(decoder, (tokens_of(4, 8), zero, padding, torch.tensor(7))),
            "decode": torch.export.export(decoder, (tokens_of(4, 1), zero, padding)),
        }
    return lower(programs, output_type="stablehlo", mutation="functional", weights="args", mesh=mesh, plan=plan)


def gpt2(use_cache: bool = False) -> Any:
    sizes: dict[str, Any] = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=use_cache))


@pytest.mark.slow_rows("mixtral|gpt2")
@pytest.mark.parametrize(
    "model, plan, mesh",
    [
        pytest.param(lambda: LlamaForCausalLM(LlamaConfig(**SIZES)), LLAMA, "dp=2,tp=4", id="llama"),
        pytest.param(
            lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4)), MIXTRAL, "dp=2,tp=4", id="mixtral"
        ),
        pytest.param(gpt2, GPT2, "dp=4,tp=2", id="gpt2"),
    ],
)
def test_prefill_and_decode_with_a_divided_cache(model: Any, plan: dict[str, Any], mesh: str):
    torch.manual_seed(0)
    eager = model().eval()
    caller = decoding(copy.deepcopy(eager), plan, mesh).caller(backend="xla")
    tokens, padding = tokens_of(4, 10), torch.zeros(4, dtype=torch.int64)
    steps = [caller["prefill"](tokens[:, :8], torch.tensor(0), padding, torch.tensor(7))]
    steps += [caller["decode"](tokens[:, at : at + 1], torch.tensor(at), padding) for at in (8, 9)]
    with torch.no_grad():
        expected = eager(input_ids=tokens).logits
    for at, logits in zip((7, 8, 9), steps, strict=True):
        torch.testing.assert_close(logits, expected[:, at], rtol=1e-4, atol=1e-5)
    parts = {each.data.shape for each in caller.state.held["cache.0.key"].array.addressable_shards}
    assert parts == {(1, 2, 16, 8) if mesh == "dp=4,tp=2" else (2, 1, 16, 8)}


def test_bytes_of_a_decoding_step():
    """Two all_reduces of [4 / dp, 1, 32] in the layer, and the gather of logits, [4 / dp, 64 / tp]."""
    communication = decoding(LlamaForCausalLM(LlamaConfig(**SIZES)), LLAMA).communication("decode")
    reduced = [each for each in communication.collectives if each.kind == "all_reduce"]
    assert sum(each.count * each.nbytes for each in reduced) == 2 * (2 * 32 * 4)
    assert {each.axes for each in reduced} == {("tp",)}
    (gathered,) = [each for each in communication.collectives if each.kind == "all_gather"]
    assert (gathered.count * gathered.nbytes, gathered.axes) == (2 * 16 * 4, ("tp",))
    assert communication.sent == 2 * 2 * 3 * 256 // 4 + 3 * 128


def training_step(model: torch.nn.Module, rate: float = 0.1) -> Any:
    """Return a function of tokens and parameters: the loss, and the parameters after a step of gradient descent."""
    names = [name for name, _ in model.named_parameters()]

    def step(tokens: torch.Tensor, *values: torch.Tensor) -> list[torch.Tensor]:
        given = [value.detach().requires_grad_() for value in values]
        loss = torch.func.functional_call(model, dict(zip(names, given, strict=True)), (tokens,))
        gradients = torch.autograd.grad(loss, given)
        return [loss.detach(), *[each.detach() - rate * by for each, by in zip(given, gradients, strict=True)]]

    return step


class LanguageLoss(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=tokens).logits[:, :-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Perceptron(torch.nn.Module):
    """A language model of one layer without attention, under the names of Llama's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens, self.lm_head = torch.nn.Embedding(64, 16), torch.nn.Linear(16, 64, bias=False)
        self.up_proj, self.down_proj = torch.nn.Linear(16, 32, bias=False), torch.nn.Linear(32, 16, bias=False)

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutput:
        x = self.embed_tokens(input_ids)
        logits = self.lm_head(x + self.down_proj(self.up_proj(x).tanh()))
        return CausalLMOutput(logits=logits)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make, plan, mesh",
    [
        pytest.param(lambda: LlamaForCausalLM(LlamaConfig(**SIZES)), LLAMA, "dp=2,tp=4", id="llama"),
        pytest.param(
            lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, **BATCHED)),
            MIXTRAL,
            "dp=2,tp=4",
            id="mixtral",
        ),
        pytest.param(lambda: gpt2(use_cache=True), GPT2, "dp=4,tp=2", id="gpt2"),
    ],
)
def test_a_training_step_of_the_whole_program(make: Any, plan: dict[str, Any], mesh: str):
    torch.manual_seed(0)
    model = LanguageLoss(make())
    values = [each.detach().clone() for each in model.parameters()]
    step, tokens = training_step(model), tokens_of(8, 16)
    whole = lower(make_fx(step)(tokens, *values), tokens, *values, output_type="stablehlo")
    names, read = ["tokens", *(name for name, _ in model.named_parameters())], Plan.get(plan, Mesh.get(mesh))
    arguments = whole.manifest.functions["main"].arguments
    entries = {each.name: read.entry(name) or {} for each, name in zip(arguments, names, strict=True)}
    divided = whole.on_mesh(mesh, entries)
    expected = step(tokens, *values)
    for found, each in zip(divided.caller(backend="xla")(tokens, *values), expected, strict=True):
        torch.testing.assert_close(found, each, rtol=1e-4, atol=1e-5)
    assert any("dp" in (each.axes or ()) for each in divided.communication().collectives)  # the gradients


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own
@pytest.mark.slow_rows("mixtral|llama")
@pytest.mark.parametrize(
    "make, plan",
    [
        pytest.param(
            Perceptron,
            {"*.up_proj.weight": {"tp": 0}, "*.down_proj.weight": {"tp": 1}, "*lm_head.weight": {"tp": 0}},
            id="perceptron",
        ),
        pytest.param(lambda: LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False)), LLAMA, id="llama"),
        pytest.param(
            lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, use_cache=False)),
            MIXTRAL,
            id="mixtral",
        ),
    ],
)
def test_gradients_of_the_whole_program_by_name(make: Any, plan: dict[str, Any]):
    """A joint graph has weights and gradients under the names of a plan."""
    torch.manual_seed(0)
    model, tokens = LanguageLoss(make()), tokens_of(4, 6)
    program = _export_forward_backward(torch.export.export(model, (tokens,)))
    plan = {f"*{name}": each for name, each in plan.items() if name not in CACHE} | {"tokens": {"dp": 0}}
    caller = lower(program, output_type="stablehlo", weights="args", mesh="dp=2,tp=4", plan=plan).caller(backend="xla")
    loss = model(tokens)
    torch.testing.assert_close(caller(tokens), loss.detach())
    loss.backward()
    expected = {name: each.grad for name, each in model.named_parameters()}
    assert caller.gradients.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(caller.gradients[name], each, rtol=1e-4, atol=1e-6, msg=name)


def test_a_training_step_of_each_rank_reduces_gradients():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    values, x = [each.detach() for each in model.parameters()], torch.randn(16, 8)

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().mean()

    step = training_step(Loss())
    with fake_process_group(8):
        mesh = init_device_mesh("cpu", (8,), mesh_dim_names=("dp",))

        def reduced(x: torch.Tensor, *values: torch.Tensor) -> list[torch.Tensor]:
            return [collectives.all_reduce(each, "avg", (mesh, 0)) for each in step(x, *values)]

        lowered = lower(make_fx(reduced)(x[:2], *values), x[:2], *values, output_type="stablehlo", mesh=mesh)
    found = lowered.caller_on_mesh()([(part, *values) for part in x.split(2)])
    for outputs in found:
        for each, expected in zip(outputs, step(x, *values), strict=True):
            torch.testing.assert_close(each, expected)
    sizes = [1, *(each.numel() for each in values)]
    assert lowered.communication().sent == sum(round(2 * 7 / 8 * 4 * size) for size in sizes)


@pytest.mark.slow
def test_llama_of_each_rank():
    torch.manual_seed(0)
    eager = LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False)).eval()
    tokens = tokens_of(2, 6)
    columns, rows = ColwiseParallel(), RowwiseParallel()
    layer: dict[str, Any] = dict.fromkeys(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], columns)
    layer |= {"mlp.gate_proj": columns, "mlp.up_proj": columns, "self_attn.o_proj": rows, "mlp.down_proj": rows}

    class Logits(torch.nn.Module):
        def __init__(self, model: torch.nn.Module):
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=tokens).logits

    def build(mesh: Any) -> Any:
        model = Logits(copy.deepcopy(eager))
        plan = {f"model.model.layers.*.{name}": style for name, style in layer.items()}
        return parallelize_module(model, mesh["tp"], plan), (tokens,)

    sharded = export_on_mesh(build, "tp=4")
    lowered = lower(sharded.program, output_type="stablehlo", mesh="tp=4", weights="args")
    weights = {name: each.detach() for name, each in Logits(eager).state_dict().items()}
    with torch.no_grad():
        expected = eager(input_ids=tokens).logits
    callers = [lowered.caller_on_mesh(sharded.states(weights), backend=each) for each in ("xla", "jit")]
    for logits in (logits for call in callers for logits in call([(tokens,)] * 4)):
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    (reduced,) = lowered.communication().collectives
    assert (reduced.kind, reduced.count, reduced.nbytes) == ("all_reduce", 2, 2 * 6 * 32 * 4)
