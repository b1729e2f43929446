"""Small models quantized by `fx_importer.quantize`: what is integer, how exact, and Vela's estimates.

    python -m benchmarks.quantized_models             # a table
    python -m benchmarks.quantized_models --docs      # and in docs/measurements/quantized_models.md

Weights and inputs are random. It needs the extras ``vela`` and ``test``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn

from benchmarks.rows import DOCS, renew
from fx_importer import UsageError, accuracy, lower, quantize
from fx_importer.engines.tosa_reference.tosa_flatbuffer import write_flatbuffer
from fx_importer.engines.vela.vela import TARGET, compile_with_vela, has_resize
from fx_importer.quantization import WITHOUT_RESIZE
from fx_importer.results.lowered import Lowered
from testing.quantized_nets import EfficientNetLite, KeywordSpotting, MobileNetV3Small, Recurrent, UNet

IMAGE = (1, 3, 64, 64)
ACCELERATORS = ("ethos-u55-128", "ethos-u85-256")
HEAD = (
    "| model | integer | in floating point | bit-exact | steps | signal to noise, dB | size | Vela, thousand cycles |\n"
    "|---|---|---|---|---|---|---|---|"
)


class Output(nn.Module):
    """A model of transformers, of which one result is taken."""

    def __init__(self, model: nn.Module, name: str):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.model(x), self.name)


def _classifier(kind: str, **sizes: object) -> Callable[[], tuple[nn.Module, Tensor]]:
    config = getattr(transformers, f"{kind}Config")(num_labels=10, **sizes)
    return lambda: (Output(getattr(transformers, f"{kind}ForImageClassification")(config), "logits"), _image())


def _image() -> Tensor:
    return torch.randn(IMAGE)


def _bert() -> tuple[nn.Module, Tensor]:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = transformers.BertConfig(**sizes, vocab_size=100)
    return Output(transformers.BertModel(config), "last_hidden_state"), torch.randint(0, 100, (1, 16))


def _llama() -> tuple[nn.Module, Tensor]:
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128}
    config = transformers.LlamaConfig(**sizes, vocab_size=100, num_key_value_heads=2, use_cache=False)
    return Output(transformers.LlamaForCausalLM(config), "logits"), torch.randint(0, 100, (1, 16))


_VIT = {"image_size": 64, "hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3}
MODELS: Mapping[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "MobileNetV2 0.35": _classifier("MobileNetV2", image_size=64, depth_multiplier=0.35),
    "MobileNetV3-small": lambda: (MobileNetV3Small(), _image()),
    "ResNet-18": _classifier("ResNet", layer_type="basic", depths=[2] * 4, hidden_sizes=[64, 128, 256, 512]),
    "ResNet-50": _classifier("ResNet"),
    "EfficientNet-Lite0": lambda: (EfficientNetLite(), _image()),
    "DS-CNN": lambda: (KeywordSpotting(), torch.randn(1, 1, 49, 10)),
    "U-Net": lambda: (UNet(), _image()),
    "MobileViT-XXS": _classifier(
        "MobileViT", image_size=64, hidden_sizes=[64, 80, 96], neck_hidden_sizes=[16, 16, 24, 48, 64, 80, 320]
    ),
    "ViT-tiny": _classifier("ViT", **_VIT, intermediate_size=768),
    "BERT, two layers": _bert,
    "LSTM": lambda: (Recurrent(), torch.randn(1, 12, 16)),
    "Llama, one layer": _llama,
}


def built(name: str) -> tuple[nn.Module, Tensor]:
    """Return a model of random weights, whose batch normalization has statistics of random inputs, and an input."""
    torch.manual_seed(0)
    model, x = MODELS[name]()
    if x.is_floating_point():
        for each in model.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.momentum = None
        with torch.no_grad():
            for _ in range(3):
                model.train()(torch.randn(4, *x.shape[1:]))
    return model.eval(), x


def row(name: str, vela: bool) -> str:
    """Return a line of the table."""
    model, x = built(name)
    quantized = quantize(model, [x], integer_io=True, observer="minmax")
    found = accuracy(model, quantized, [x])
    (taken,) = quantized.meta["input_scales"]
    inputs = x if taken is None else (x / taken[0] + taken[1]).round().clamp(-128, 127).to(torch.int8)
    lowered = lower_tosa(quantized, inputs)
    summary, *floats = lowered.trace.stages[0].remarks
    exact = bool(lowered.verify(inputs, backends=["tosa_reference"], rtol=0, atol=0))
    left = Counter(each.split(" = ")[1].split(":")[0].removeprefix("aten.").partition(".")[0] for each in floats)
    kept = ", ".join(f"{count} {each}" for each, count in left.most_common(6)) + (", …" if len(left) > 6 else "")
    counts = summary.removeprefix("quantized: ").removesuffix(" operators are integer")
    steps = max((each.steps for each in found.layers if each.steps is not None), default=0)
    size = _size(lowered) / _size(lower(model, x, output_type="tosa", narrow_integers=True))
    cycles = _cycles(quantized, inputs) if vela and not floats else "–"
    cells = (name, counts, kept or "–", "yes" if exact else "no", steps, f"{found.result:.0f}", f"{size:.2f}", cycles)
    return "| " + " | ".join(map(str, cells)) + " |"


def _size(lowered: Lowered) -> int:
    """Return the bytes of a module as a flatbuffer."""
    floats = "f32" in str(lowered.module.operation.get_asm(large_elements_limit=1, large_resource_limit=1))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.tosa"
        write_flatbuffer(lowered.module, file, TARGET.replace("pro_int", "pro_int,pro_fp") if floats else TARGET)
        return file.stat().st_size


def lower_tosa(quantized: nn.Module, inputs: Tensor, accelerator: str = "") -> Lowered:
    """Lower to what Vela reads for an accelerator, without 64-bit integers."""
    lowerings = WITHOUT_RESIZE if accelerator and not has_resize(accelerator) else ()
    return lower(quantized, inputs, output_type="tosa", quantized="integer", narrow_integers=True, lowerings=lowerings)


def _cycles(quantized: nn.Module, inputs: Tensor) -> str:
    found: list[str] = []
    for each in ACCELERATORS:
        lowered = lower_tosa(quantized, inputs, each)
        try:
            estimate = compile_with_vela(lowered.module, each, None, ())
            found.append(f"{estimate.cycles['total'] / 1e3:,.0f}" + ("" if not estimate.cpu_operators else " (CPU)"))
        except UsageError as error:
            refused = [line.strip().partition(":")[0] for line in str(error).splitlines()[1:]]
            found.append("refused: " + ", ".join(refused[:3]))
    return " / ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--docs", action="store_true", help="write the table into docs/measurements/quantized_models.md"
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="names of models; default: all")
    parser.add_argument("--no-vela", action="store_true", help="without Vela's estimates")
    chosen = parser.parse_args()
    rows: list[str] = []
    for name in chosen.models:
        try:
            rows.append(row(name, not chosen.no_vela))
        except Exception as error:  # a model that fails is a row
            rows.append(f"| {name} | {type(error).__name__}: {str(error).splitlines()[0][:120]} | | | | |")
        print(rows[-1], flush=True)
    if chosen.docs:
        renew(DOCS / "measurements" / "quantized_models.md", "quantized models", "\n".join([HEAD, *rows, ""]))


if __name__ == "__main__":
    main()
