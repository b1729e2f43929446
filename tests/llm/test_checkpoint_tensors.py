"""Checkpoints whose tensors are not those of the model."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from fx_importer import UsageError
from fx_importer.llm import import_model
from fx_importer.llm.checkpoints.model_folder import read_source
from tests.llm.gguf_files import save_tiny_gguf
from tests.llm.test_gptq import FORMATS, save_quantized
from tests.llm.tiny_models import END, VOCABULARY, save_tiny_model, tokenizer

UP, HEAD = "model.layers.1.mlp.up_proj.weight", "lm_head.weight"
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_tiny_model(folder)
    return folder


def edited(source: Path, target: Path, edit: Callable[[Tensors], object], sharded: bool = False) -> Path:
    """Copy the folder ``source`` with other tensors, in one file or in two."""
    target.mkdir()
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            (target / file.name).write_bytes(file.read_bytes())
    tensors = load_file(source / "model.safetensors")
    edit(tensors)
    if not sharded:
        save_file(tensors, target / "model.safetensors", {"format": "pt"})
        return target
    homes = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for part in set(homes.values()):
        save_file({name: tensors[name] for name, home in homes.items() if home == part}, target / part)
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    return target


def lose(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


def put(name: str, tensor: torch.Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: tensor})


def rename(name: str, other: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({other: tensors.pop(name)})


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    "edit, message",
    [
        (lose(UP), f"'{UP}' is missing"),
        (lose(HEAD), f"'{HEAD}' is missing"),
        (lose("model.norm.weight"), "'model.norm.weight' is missing"),
        (rename(UP, f"{UP}s"), f"'{UP}' is missing; the model has no weight '{UP}s'"),
        (put("value_head.weight", torch.ones(1, 32)), "the model has no weight 'value_head.weight'"),
        (put("model.layers.2.mlp.up_proj.weight", torch.ones(64, 32)), "no weight 'model.layers.2.mlp.up_proj.weight'"),
        (put(UP, torch.ones(64, 16)), f"'{UP}' is float32 [64, 16], and the model needs floats of [64, 32]"),
        (put(UP, torch.ones(64, 32, dtype=torch.int8)), f"'{UP}' is int8 [64, 32], and the model needs floats"),
        (put(UP, torch.ones(64, 32, dtype=torch.complex64)), f"'{UP}' is complex64 [64, 32], and the model needs"),
        (put("extra", torch.ones(3, dtype=torch.int64)), "the model has no weight 'extra'"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tiny, tmp_path, edit, message, sharded):
    folder = edited(tiny, tmp_path / "model", edit, sharded)
    with pytest.raises(UsageError, match=re.escape(message)):
        import_model(folder, tmp_path / "out", context=16)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "edit",
    [
        put("model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(4)),
        put("model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(4, dtype=torch.int64)),
        put(UP, torch.ones(64, 32, dtype=torch.bfloat16)),
    ],
)
def test_tensors_that_transformers_ignores_or_rounds_are_accepted(tiny, tmp_path, edit):
    model = read_source(edited(tiny, tmp_path / "model", edit)).load(None).model
    assert model.lm_head.weight.dtype is torch.float32


def test_an_integer_tensor_that_is_ignored_does_not_change_the_dtype(tmp_path):
    """Older checkpoints of GPT-2 have masks, which sort before the weights."""
    save_tiny_model(tmp_path / "model", "gpt2")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config.pop("dtype")
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))

    def change(tensors: Tensors) -> None:
        tensors.update({name: tensor.half() for name, tensor in tensors.items()})
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 4, 4, dtype=torch.bool)

    model = read_source(edited(tmp_path / "model", tmp_path / "old", change)).load(None).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}


def test_a_tied_head_may_be_missing(tmp_path):
    """It is not a second tensor in the file. Without the embedding, neither is there."""
    save_tiny_model(tmp_path / "model", tie_word_embeddings=True)
    assert HEAD not in load_file(tmp_path / "model" / "model.safetensors")
    model = read_source(tmp_path / "model").load(None).model
    assert model.lm_head.weight is model.model.embed_tokens.weight
    folder = edited(tmp_path / "model", tmp_path / "lost", lose("model.embed_tokens.weight"))
    with pytest.raises(UsageError, match=r"'model\.embed_tokens\.weight' is missing"):
        read_source(folder).load(None)


def test_one_expert_of_several_is_missing(tmp_path):
    """transformers stacks the experts of a layer."""
    save_tiny_model(tmp_path / "model", "mixtral")
    name = next(each for each in load_file(tmp_path / "model" / "model.safetensors") if "experts.1.w1" in each)
    for number, edit in enumerate((lose(name), put(name, torch.ones(64, 32, dtype=torch.int32)))):
        folder = edited(tmp_path / "model", tmp_path / str(number), edit)
        with pytest.raises(UsageError, match="does not hold the weights of MixtralForCausalLM"):
            read_source(folder).load(None)


def test_a_file_of_all_weights_precedes_an_index(tiny, tmp_path):
    """As in transformers, where both are there."""
    folder = edited(tiny, tmp_path / "model", lose(UP), sharded=True)
    (folder / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes())
    assert torch.equal(read_source(folder).load(None).stored[UP], load_file(tiny / "model.safetensors")[UP])


PROJECTION = "model.layers.0.mlp.up_proj"


@pytest.fixture(scope="module")
def quantized(tmp_path_factory) -> dict[str, Path]:
    """Return a folder for each of the formats."""
    folders = {name: tmp_path_factory.mktemp("quantized") for name in ("gptq", "gptq by activations", "awq")}
    for name, folder in folders.items():
        save_quantized(folder, FORMATS[name], num_hidden_layers=1)
    return folders


@pytest.mark.parametrize("name", ["gptq", "gptq by activations", "awq"])
@pytest.mark.parametrize(
    "part, tensor, message",
    [
        ("qweight", None, f"'{PROJECTION}' is quantized, and lacks '{PROJECTION}.qweight'"),
        ("qzeros", None, f"'{PROJECTION}' is quantized, and lacks '{PROJECTION}.qzeros'"),
        ("scales", None, f"'{PROJECTION}' is quantized, and lacks '{PROJECTION}.scales'"),
        ("scales", torch.ones(2, 128, dtype=torch.int8), f"'{PROJECTION}' has tensors that are not those of 4 bits"),
        ("scales", torch.ones(256), f"'{PROJECTION}' is quantized, and its qweight, qzeros, scales are not all"),
        ("qother", torch.ones(2, 2), f"the model has no weight '{PROJECTION}.qother'"),
    ],
)
def test_parts_of_quantized_layers_are_named(name, part, tensor, message, quantized, tmp_path):
    change = lose(f"{PROJECTION}.{part}") if tensor is None else put(f"{PROJECTION}.{part}", tensor)
    folder = edited(quantized[name], tmp_path / "edited", change)
    with pytest.raises(UsageError, match=re.escape(message)):
        read_source(folder).load(None)


@pytest.mark.parametrize("tensor", [None, torch.zeros(32, dtype=torch.int32), torch.zeros(64)])
def test_the_order_of_activations_is_needed(tensor, quantized, tmp_path):
    name = f"{PROJECTION}.g_idx"
    change = lose(name) if tensor is None else put(name, tensor)
    folder = edited(quantized["gptq by activations"], tmp_path / "edited", change)
    with pytest.raises(UsageError, match=re.escape(f"'{name}' is")):
        read_source(folder).load(None)


def test_tensors_of_gguf_files_are_named(tmp_path):
    path, copy = tmp_path / "m.gguf", tmp_path / "copy.gguf"
    save_tiny_gguf(path, kind_of=lambda name: "Q8_0", num_hidden_layers=1)
    lost = {"blk.0.ffn_up.weight": "model.layers.0.mlp.up_proj.weight", "output_norm.weight": "model.norm.weight"}
    for name, needed in lost.items():
        data = bytearray(path.read_bytes())
        at = data.index(name.encode())
        data[at : at + len(name)] = name.upper().encode()
        copy.write_bytes(data)
        assert name.upper() in {tensor.name for tensor in gguf.GGUFReader(copy).tensors}
        with pytest.raises(UsageError, match=re.escape(f"there is no tensor for '{needed}'")) as raised:
            read_source(copy).load(None)
        assert f"the model has no weight for '{name.upper()}'" in str(raised.value)


BERT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
BART = {
    **{f"{side}_{name}": number for side in ("encoder", "decoder") for name, number in
       (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))},
    "d_model": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": END, "decoder_start_token_id": END,
}  # fmt: skip
GPT_NEO = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "attention_types": [[["local"], 1]], "window_size": 4}


@pytest.mark.parametrize(
    "kind, model, config, message",
    [
        ("bert", "BertModel", BERT, r"config\.json calls the model BertModel: 'cls\.predictions\.bias' is missing"),
        ("bert", "BertForMaskedLM", BERT, r"is an encoder: its 'bert\.encoder\.layer\.0\.attention\.self' attends to"),
        ("roberta", "RobertaForMaskedLM", BERT, "RobertaForCausalLM is an encoder"),
        ("bart", "BartForSequenceClassification", BART, "the model has no weight 'classification_head.dense.bias'"),
        ("bart", "BartForCausalLM", BART, r"decoder of an encoder-decoder: its 'model\.decoder\.layers\.0\.encoder_a"),
        ("whisper", "WhisperForCausalLM", BART, "WhisperForCausalLM is the decoder of an encoder-decoder"),
        ("llama", "LlamaForSequenceClassification", BERT, "'lm_head.weight' is missing; .*weight 'score.weight'"),
        ("gpt_neo", "GPTNeoForCausalLM", GPT_NEO, r"GPTNeoForCausalLM \(.*_gpt_neo\.py:\d+\) computes other logits"),
    ],
)
def test_models_that_are_no_decoders_are_refused(kind, model, config, message, tmp_path):
    made = getattr(transformers, model)(transformers.AutoConfig.for_model(kind, vocab_size=VOCABULARY, **config))
    made.save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    with pytest.raises(Exception, match=message) as raised:
        import_model(tmp_path / "model", tmp_path / "out", context=16)
    assert raised.type.__module__ == "fx_importer.errors"
    assert not (tmp_path / "out").exists()
