"""A Llama of a 1B's widths, random weights in float32, divided among eight host devices of XLA, beside eager.

``python -m benchmarks.mesh_llama [--form plan|ranks] [--program decode|training] [--layers 16]``: as a whole program
with a plan, or as the program of each rank; prefill of eight tokens and decode of two with a divided cache, or a loss
and its gradients. Prints seconds, the most memory of the process and the largest differences.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.export.experimental import _export_forward_backward
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from fx_importer import lower
from fx_importer.distributed import export_on_mesh
from fx_importer.llm.decoder import Decoder

DIMENSIONS = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "o_proj": 1, "gate_proj": 0, "up_proj": 0, "down_proj": 1}
"""By projection, the dimension of its weight that tp divides."""
RANKS = 8
MESH, CONTEXT = f"tp={RANKS}", 16
TOKENS = torch.randint(0, 32768, (1, 10), generator=torch.manual_seed(1))
PADDING = torch.zeros(1, dtype=torch.int64)


class Loss(torch.nn.Module):
    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=tokens, use_cache=False).logits[:, :-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def llama(layers: int, *, empty: bool = False) -> Any:
    """Return the model; if it is ``empty``, without values, in memory that nobody has touched."""
    sizes: dict[str, Any] = {"vocab_size": 32768, "hidden_size": 2048, "intermediate_size": 8192}
    config = LlamaConfig(**sizes, num_attention_heads=32, num_key_value_heads=8, num_hidden_layers=layers)
    with torch.device("meta") if empty else nullcontext():
        model = LlamaForCausalLM(config)
    if empty:
        model.to_empty(device="cpu")  # its table of frequencies is in no state dict
        model.model.rotary_emb = LlamaRotaryEmbedding(config)
    return model


def parallelized(layers: int, mesh: Any) -> Any:
    """Return a rank's part of the model, without values."""
    model = llama(layers, empty=True)
    styles: dict[str, Any] = {
        f"model.layers.*.{part}.{name}": RowwiseParallel() if dim else ColwiseParallel()
        for name, dim in DIMENSIONS.items()
        for part in (("self_attn",) if name[0] in "qkvo" else ("mlp",))
    }
    styles["lm_head"] = ColwiseParallel(output_layouts=Replicate())
    return parallelize_module(model, mesh["tp"], styles)


def plan(names: Mapping[str, int]) -> dict[str, Any]:
    dims = {f"*.{name}.weight": dim for name, dim in DIMENSIONS.items()} | {"*lm_head.weight": 0, **names}
    return {name: {"tp": dim} for name, dim in dims.items()}


# --- prefill and decode ---------------------------------------------------------------------------------------------

Step = Callable[..., torch.Tensor]
"""From the name of a function and its inputs to logits."""


def decoder(model: Any) -> torch.nn.Module:
    return Decoder(model, batch=1, context=CONTEXT).eval()


def decode_by_plan(model: Any, layers: int) -> Step:
    eager = decoder(model)
    programs = {name: torch.export.export(eager, inputs) for name, inputs in inputs_of_steps().items()}
    lowered = lower(
        programs, output_type="stablehlo", mutation="functional", weights="args", mesh=MESH, plan=plan({"cache.*": 1})
    )
    caller = lowered.caller(backend="xla")
    return lambda name, *inputs: caller[name](*inputs)


def decode_of_ranks(model: Any, layers: int) -> Step:
    exported = {
        name: export_on_mesh(lambda axes, inputs=inputs: (decoder(parallelized(layers, axes)), inputs), MESH)
        for name, inputs in inputs_of_steps().items()
    }
    programs = {name: each.program for name, each in exported.items()}
    lowered = lower(programs, output_type="stablehlo", mutation="functional", weights="args", mesh=MESH)
    kept = {f"cache.{at}.{name}": torch.zeros(1, 1, CONTEXT, 64) for at in range(layers) for name in ("key", "value")}
    caller = lowered.caller_on_mesh(exported["decode"].states(model.state_dict() | kept))
    return lambda name, *inputs: caller[name]([inputs] * RANKS)[-1]


def inputs_of_steps() -> dict[str, tuple[torch.Tensor, ...]]:
    zero = torch.tensor(0)
    return {"prefill": (TOKENS[:, :8], zero, PADDING, torch.tensor(7)), "decode": (TOKENS[:, :1], zero, PADDING)}


@torch.no_grad()
def decode(make: Callable[..., Step], model: Any, layers: int) -> None:
    expected = model.eval()(input_ids=TOKENS, use_cache=False).logits[0, 7:]
    start = time.perf_counter()
    step = make(model, layers)
    print(f"lowered in {time.perf_counter() - start:.1f} s")
    for at, wanted in zip((7, 8, 9), expected, strict=True):
        start = time.perf_counter()
        if at == 7:
            logits = step("prefill", *inputs_of_steps()["prefill"])
        else:
            logits = step("decode", TOKENS[:, at : at + 1], torch.tensor(at), PADDING)
        report(f"logits after token {at}", [(logits[0], wanted)], time.perf_counter() - start)


# --- training -------------------------------------------------------------------------------------------------------

Pairs = Iterable[tuple[torch.Tensor, torch.Tensor]]
"""Found and expected tensors."""


def training_by_plan(loss: Loss, layers: int) -> tuple[Callable[[], torch.Tensor], Callable[[], Pairs]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own copies
        program = _export_forward_backward(torch.export.export(loss, (TOKENS,)))
    lowered = lower(program, output_type="stablehlo", weights="args", mesh=MESH, plan=plan({}))
    caller = lowered.caller(backend="xla")
    gradients = {name: each.grad for name, each in loss.named_parameters() if each.grad is not None}
    return lambda: caller(TOKENS), lambda: ((caller.gradients[name], each) for name, each in gradients.items())


def training_of_ranks(loss: Loss, layers: int) -> tuple[Callable[[], torch.Tensor], Callable[[], Pairs]]:
    exported = export_on_mesh(lambda axes: (Loss(parallelized(layers, axes)), (TOKENS,)), MESH, gradients=())
    lowered = lower(exported.program, output_type="stablehlo", weights="args", mesh=MESH)
    caller = lowered.caller_on_mesh(exported.states(loss.state_dict()))
    gradients = exported.states({name: each.grad for name, each in loss.named_parameters() if each.grad is not None})
    ranks = list(zip(caller.ranks, gradients, strict=True))
    return lambda: caller([(TOKENS,)] * RANKS)[-1], lambda: (
        (rank.gradients[name], each) for rank, own in ranks for name, each in own.items()
    )


def training(make: Callable[..., Any], model: Any, layers: int) -> None:
    loss = Loss(model)
    expected = loss(TOKENS)
    expected.backward()
    start = time.perf_counter()
    step, gradients = make(loss, layers)
    print(f"lowered in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    found = step()
    report("loss", [(found, expected.detach())], time.perf_counter() - start)
    report("gradients", gradients(), 0)


# --- figures --------------------------------------------------------------------------------------------------------


def report(what: str, pairs: Pairs, seconds: float) -> None:
    difference, largest = 0.0, 0.0
    for found, expected in pairs:
        difference = max(difference, float((found - expected).abs().max()))
        largest = max(largest, float(expected.abs().max()))
        # Elements near zero are sums of larger terms: their error is that of the others.
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * max(1.0, float(expected.abs().max())))
    print(
        f"{what}: {difference:.2g} from eager's, which are up to {largest:.3g}"
        + f", in {seconds:.1f} s" * bool(seconds)
    )


FORMS = {
    ("plan", "decode"): (decode, decode_by_plan),
    ("ranks", "decode"): (decode, decode_of_ranks),
    ("plan", "training"): (training, training_by_plan),
    ("ranks", "training"): (training, training_of_ranks),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=("plan", "ranks"), default="plan")
    parser.add_argument("--program", choices=("decode", "training"), default="decode")
    parser.add_argument("--layers", type=int, default=16)
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={RANKS}"
    torch.manual_seed(0)
    model = llama(options.layers)
    print(f"{sum(each.numel() for each in model.parameters()) / 1e9:.2f}e9 weights on {MESH}")
    run, make = FORMS[options.form, options.program]
    run(make, model, options.layers)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")


if __name__ == "__main__":
    main()
