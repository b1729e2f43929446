"""Adapters of peft as arguments of a module, which change without lowering again."""

import re
from itertools import chain

import pytest
import torch

from fx_importer import UsageError
from fx_importer.cli.commands.llm import run_language_model
from fx_importer.llm import import_model, load, speculate
from fx_importer.llm.checkpoints.lora_arguments import matrices_for
from fx_importer.process.optional_packages import is_installed
from tests.llm.gguf_files import save_tiny_gguf
from tests.llm.test_architectures import ENGINES, expected
from tests.llm.test_lora import save_adapter
from tests.llm.tiny_models import save_tiny_model

DOWN, QUERY = "model.layers.0.mlp.down_proj", "model.layers.0.self_attn.q_proj"
SHAPES = {QUERY: (32, 32, 4), DOWN: (32, 64, 4)}
PROMPT = [7, 99, 31, 250]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return a folder with a model, an adapter and a module; and the tokens without and with the adapter."""
    folder = tmp_path_factory.mktemp("adapters")
    model = save_tiny_model(folder / "model", num_hidden_layers=1)
    pairs = save_adapter(folder / "adapter", SHAPES)
    import_model(folder / "model", folder / "out", context=24, adapter_rank=6)
    return folder, *_tokens(model, pairs)


def _tokens(model, pairs):
    plain = expected(model, [PROMPT], 12)
    with torch.no_grad():
        for path, (first, second) in pairs.items():
            model.get_submodule(path).weight += second @ first * 1.5
    adapted = expected(model, [PROMPT], 12)
    assert plain != adapted
    return plain, adapted


def _greedy(model):
    return [list(each) for each in zip(*model.tokens([PROMPT], 12), strict=True)]


def _check_swapping(model, adapter, plain, adapted):
    assert _greedy(model) == plain
    model.use_adapter(adapter)
    assert _greedy(model) == adapted
    model.use_adapter(None)
    assert _greedy(model) == plain


def test_tokens_are_those_of_the_merged_model(tiny):
    """Of an adapter of a lower rank than the module's, for two of its layers."""
    folder, plain, adapted = tiny
    _check_swapping(load(folder / "out"), folder / "adapter", plain, adapted)


@pytest.mark.slow
def test_the_command_takes_an_adapter(tiny, capsys):
    folder = tiny[0]
    texts = []
    for lora in (None, folder / "adapter"):
        run_language_model(folder / "out", ["Hello"], [], None, "jit", lora, max_new_tokens=8)
        texts.append(capsys.readouterr().out)
    assert texts[0] != texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("engine, output_type", [("iree", "linalg-on-tensors"), ("xla", "stablehlo")])
def test_other_engines(tiny, engine, output_type, tmp_path):
    if not is_installed(ENGINES[engine]):
        pytest.skip(f"the extra '{engine}' is not installed")
    folder, plain, adapted = tiny
    options = {"context": 24, "adapter_rank": 4, "adapter_targets": ["q_proj", "mlp.down_proj"]}
    out = import_model(folder / "model", tmp_path / "out", output_type=output_type, **options)
    _check_swapping(load(out, engine=engine), folder / "adapter", plain, adapted)


@pytest.mark.slow
def test_pages_and_drafts_take_adapters(tiny, tmp_path):
    folder, plain, adapted = tiny
    options = {"context": 24, "cache": "paged", "page_size": 4, "batch": 2, "adapter_rank": 4, "draft": 3}
    paged = load(import_model(folder / "model", tmp_path / "out", **options), lora=folder / "adapter")
    assert _greedy(paged) == adapted
    draft = load(folder / "out")
    assert [list(chain(*speculate(paged, draft, PROMPT, 12)))] == adapted
    assert _greedy(draft) == plain


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "gemma2"])
def test_other_architectures(kind, tmp_path):
    """Transposed weights, and a model whose code depends on the length of prompts."""
    path = "transformer.h.0.attn.c_attn" if kind == "gpt2" else QUERY
    model = save_tiny_model(tmp_path / "model", kind)
    shape = (96, 32, 4) if kind == "gpt2" else (32, 32, 4)
    ((first, second),) = save_adapter(tmp_path / "adapter", {path: shape}).values()
    added = second @ first * 1.5
    plain = expected(model, [PROMPT], 12)
    with torch.no_grad():
        model.get_submodule(path).weight += added.t() if kind == "gpt2" else added
    adapted = expected(model, [PROMPT], 12)
    imported = load(import_model(tmp_path / "model", tmp_path / "out", context=24, adapter_rank=4))
    _check_swapping(imported, tmp_path / "adapter", plain, adapted)


@pytest.mark.slow
def test_packed_weights_take_adapters(tiny, tmp_path):
    """The adapter is not rounded: its tokens are those of the model of packed weights with the products added."""
    folder = tiny[0]
    out = import_model(folder / "model", tmp_path / "out", context=24, adapter_rank=4, quantize="int8")
    model = load(out)
    before = model.score("Once upon a time")[0].log_probabilities
    model.use_adapter(folder / "adapter")
    after = model.score("Once upon a time")[0].log_probabilities
    exact = load(folder / "out", lora=folder / "adapter").score("Once upon a time")[0].log_probabilities
    distance = lambda found: float((torch.tensor(found) - torch.tensor(exact)).abs().max())  # noqa: E731
    assert distance(after) < 0.6 < 1.2 < distance(before)


@pytest.mark.slow
def test_blocks_of_gguf_take_adapters(tmp_path):
    """Of q too, whose rows are in another order in the file."""
    model = save_tiny_gguf(tmp_path / "model.gguf", kind_of=lambda name: "Q4_1", num_hidden_layers=1)
    pairs = save_adapter(tmp_path / "adapter", {QUERY: (256, 256, 4)})
    out = import_model(tmp_path / "model.gguf", tmp_path / "out", context=24, adapter_rank=4)
    _check_swapping(load(out), tmp_path / "adapter", *_tokens(model, pairs))


@pytest.mark.parametrize(
    "shapes, message",
    [
        ({"lm_head": (257, 32, 4)}, "changes 'lm_head', for which the module takes no adapter"),
        (
            {QUERY: (32, 32, 8)},
            "of rank 8 for 'model.layers.0.self_attn.q_proj', [32, 32]: the module takes ranks",
        ),
        ({QUERY: (32, 64, 4)}, "[32, 64]: the module takes ranks up to 6, and the layer is [32, 32]"),
        ({"model.embed_tokens": (32, 257, 4)}, "changes 'model.embed_tokens' other than by a sum: merge it at import"),
    ],
)
def test_adapters_that_do_not_fit_are_said(tiny, shapes, message, tmp_path):
    rank = next(iter(shapes.values()))[2]
    save_adapter(tmp_path / "adapter", shapes, r=rank)
    with pytest.raises(UsageError, match=re.escape(message)):
        load(tiny[0] / "out", lora=tmp_path / "adapter")


def test_modules_and_layers_without_adapters_are_said(tiny, tmp_path):
    folder = tiny[0]
    with pytest.raises(UsageError, match=r"no linear layer 'w_proj' for adapters: .* as down_proj, .*q_proj"):
        import_model(folder / "model", tmp_path / "out", adapter_rank=4, adapter_targets=["q_proj", "w_proj"])
    with pytest.raises(UsageError, match="adapters of rank 0: accepted is 1 or more"):
        import_model(folder / "model", tmp_path / "out", adapter_rank=0)
    with pytest.raises(UsageError, match="adapter_targets without adapter_rank"):
        import_model(folder / "model", tmp_path / "out", adapter_targets=["q_proj"])
    with pytest.raises(UsageError, match="the module takes no adapter: import the model with adapter_rank"):
        matrices_for(None, folder / "adapter")
