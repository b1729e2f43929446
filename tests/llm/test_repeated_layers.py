"""Layers that are traced once: the exported program is that of torch.export, node for node."""

from typing import Any

import pytest
import torch
from torch import fx
from torch.export import Dim, ExportedProgram, export
from transformers import AutoConfig, AutoModelForCausalLM

from fx_importer.llm import repeated_layers
from fx_importer.llm.entry_points import PagedCache, StaticCache
from fx_importer.llm.repeated_layers import export_layers_once
from tests.llm.tiny_models import CONFIGS, VOCABULARY

LAYERS = 4
SLIDING = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "vocab_size": VOCABULARY,
}


def tiny(kind: str, **changes: Any) -> Any:
    given = COMMON | CONFIGS[kind] | changes
    if "layer_types" in given:
        given["layer_types"] = SLIDING
    if kind == "gpt2":
        given = {"n_embd": 32, "n_layer": LAYERS, "n_head": 4, "n_positions": 128, "vocab_size": VOCABULARY, **changes}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **given), dtype=torch.bfloat16).eval()


def listing(program: ExportedProgram) -> list[Any]:
    """Return operators, arguments, types and modules of all nodes."""
    numbers = {node: number for number, node in enumerate(program.graph.nodes)}
    names = {spec.arg.name: (spec.kind, spec.target) for spec in program.graph_signature.input_specs}
    return [
        (
            names[node.name] if node.op == "placeholder" else str(node.target),
            str(fx.map_arg((node.args, node.kwargs), lambda each: f"%{numbers[each]}")),
            _type(node.meta.get("val")),
            [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()],
        )
        for node in program.graph.nodes
    ]


def _type(value: Any) -> Any:
    return (value.dtype, str(value.shape), str(value.stride())) if isinstance(value, torch.Tensor) else str(value)


STATIC, PAGED = StaticCache(2, 48), PagedCache(2, 48, 16, 7)


@pytest.mark.slow_rows("gemma3_text", "gpt2", "mixtral", "smollm3")
@pytest.mark.parametrize(
    "kind, form, traced",
    [
        pytest.param("llama", PAGED, 1, id="llama"),
        pytest.param("gemma3_text", STATIC, 2, id="gemma3_text"),
        pytest.param("gpt2", STATIC, 1, id="gpt2"),
        pytest.param("mixtral", STATIC, 1, id="mixtral"),
        pytest.param("smollm3", STATIC, 2, id="smollm3"),
    ],
)
def test_program_is_that_of_export(kind, form, traced, monkeypatch):
    """Of prompts and of one token. Sliding and full layers differ, and those with and without rotations."""
    calls: list[Any] = []
    copies = repeated_layers._with_copies
    monkeypatch.setattr(repeated_layers, "_with_copies", lambda program, c: (calls.append(c), copies(program, c))[1])
    changes = {"llama": {"num_hidden_layers": 2}, "smollm3": {"no_rope_layers": [1, 1, 0, 0]}}.get(kind, {})
    decoder = form.decoder(tiny(kind, **changes)).eval()
    for steps in (7, 1):
        place, shapes = form.place(2, None)
        args, given = (torch.zeros(2, steps, dtype=torch.int64), *place), (None, *shapes)
        if steps > 1:
            args, given = (*args, torch.tensor(3)), ({1: Dim("steps", min=1, max=48)}, *shapes, None)
        with torch.no_grad():
            ours = export_layers_once(decoder, args, {}, given)
            assert listing(ours) == listing(export(decoder, args, dynamic_shapes=given))
        assert sum(call.of is None for call in calls.pop()) == traced


class Scaled(torch.nn.Module):
    def __init__(self, number: int):
        super().__init__()
        self.layer_idx = number
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) / (1 + self.layer_idx)


class Pair(torch.nn.Sequential):
    def __init__(self, number: int):
        super().__init__(Scaled(number), Scaled(number + 1))


class Stack(torch.nn.Module):
    def __init__(self, layers: list[torch.nn.Module]):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.layers:
            x = each(x)
        return x


def plain(scale: float) -> torch.nn.Module:
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    layer.norm1.eps = scale
    return layer


TIED = torch.nn.Linear(4, 4)


@pytest.mark.parametrize(
    "layers",
    [
        [Scaled(0), Scaled(1)],
        [Pair(0), Pair(1)],
        [plain(1e-5), plain(1e-3), plain(1e-5)],
        [TIED, torch.nn.Linear(4, 4), TIED],
    ],
    ids=["number", "numbers", "attribute", "same"],
)
def test_layers_that_differ_are_traced(layers):
    """By numbers that they compute with, an attribute, or as one module that is called twice."""
    model, x = Stack(layers).eval(), torch.randn(2, 3, 4)
    with torch.no_grad():
        ours = export_layers_once(model, (x,), {}, (None,))
        torch.testing.assert_close(ours.module()(x), model(x))
    assert listing(ours) == listing(export(model, (x,)))
