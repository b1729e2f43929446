"""Prefill and decode of each rank, which holds its part of the cache, beside the whole model in eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from fx_importer import lower
from fx_importer.distributed import Mesh, MeshProgram, export_on_mesh
from fx_importer.llm.decoder import Decoder
from tests.distributed.parallel_layers import parallel_gpt2, parallelized, unfused
from tests.distributed.test_models import SIZES, gpt2, tokens_of

MESH = "dp=2,tp=4"


def exported(eager: Any, divided: Any, axes: str, length: int, *rest: torch.Tensor) -> MeshProgram:
    """Return the program for ``length`` tokens of the sequences, of four, that each rank along dp has."""
    batch = 4 // Mesh.get(axes).axes[0][1]

    def build(mesh: Any) -> Any:
        decoder = Decoder(divided(eager, mesh), batch=batch, context=16).eval()
        return decoder, (tokens_of(batch, length), torch.tensor(0), torch.zeros(batch, dtype=torch.int64), *rest)

    with torch.no_grad():
        return export_on_mesh(build, axes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make, divided, mesh",
    [
        pytest.param(lambda: LlamaForCausalLM(LlamaConfig(**SIZES)), parallelized, MESH, id="llama"),
        pytest.param(
            lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=8)), parallelized, MESH, id="mixtral"
        ),
        pytest.param(gpt2, parallel_gpt2, "dp=4,tp=2", id="gpt2"),
    ],
)
def test_prefill_and_decode(make: Any, divided: Any, mesh: str):
    torch.manual_seed(0)
    eager, (replicas, shards) = make().eval(), (size for _, size in Mesh.get(mesh).axes)
    last, batch = torch.tensor(7), 4 // replicas
    sharded = {"prefill": exported(eager, divided, mesh, 8, last), "decode": exported(eager, divided, mesh, 1)}
    programs = {name: each.program for name, each in sharded.items()}
    lowered = lower(programs, output_type="stablehlo", mutation="functional", weights="args", mesh=mesh)
    held = [name for name in sharded["decode"].layouts if name.startswith("cache.")]
    caches = {name: torch.zeros(batch, 4 // shards, 16, 8) for name in held}
    caller = lowered.caller_on_mesh(sharded["decode"].states(unfused(eager.state_dict()) | caches))
    tokens, padding = tokens_of(4, 10), torch.zeros(batch, dtype=torch.int64)

    def step(name: str, start: int, end: int, *rest: torch.Tensor) -> torch.Tensor:
        given = [part[:, start:end] for part in tokens.split(batch) for _ in range(shards)]
        found = caller[name]([(each, torch.tensor(start), padding, *rest) for each in given])
        assert all(torch.equal(found[at - at % shards], each) for at, each in enumerate(found))
        return torch.cat(found[::shards])

    steps = [step("prefill", 0, 8, last), step("decode", 8, 9), step("decode", 9, 10)]
    with torch.no_grad():
        expected = eager(input_ids=tokens).logits
    for at, logits in zip((7, 8, 9), steps, strict=True):
        torch.testing.assert_close(logits, expected[:, at], rtol=1e-4, atol=1e-5)
    layers = eager.config.num_hidden_layers
    moved = lowered.communication("decode").collectives
    assert sum(each.count * each.nbytes for each in moved if each.kind == "all_reduce") == layers * 2 * (batch * 32 * 4)
    if divided is parallelized:  # the logits, of which GPT-2 has all on each rank
        assert sum(each.count * each.nbytes for each in moved if each.kind == "all_gather") == batch * 16 * 4
    assert {each.axes for each in moved} == {("tp",)}
