"""Train a keyword spotter, quantize it to int8, and write it as C for a Cortex-M55.

    pip install 'fx-importer[quantize]'
    python build.py
    arm-none-eabi-gcc -mcpu=cortex-m55 -mfloat-abi=hard -O2 main.c spotter.c -nostartfiles --specs=nosys.specs \
        -T board.ld -o spotter.elf
    qemu-system-arm -M mps3-an547 -nographic -semihosting-config enable=on,target=native -kernel spotter.elf

It writes `spotter.c` and `spotter.h`, and `clips.h`, the sounds that `main.c` listens to. The words are
synthetic: three formants that move as those of a syllable, at a random pitch, speed and loudness, in noise. Take a
data set of speech in place of `sound` for a product. Features are the energies of 10 bands in 49 frames of 20 ms.
"""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from fx_importer import lower, quantize

WORDS = {"yes": (0.4, 1.8, 2.6), "no": (0.6, -0.9, 2.3), "go": (-0.5, 1.0, -1.2), "(nothing)": ()}
RATE, FRAMES, BANDS = 16000, 49, 10


def sound(word: str) -> Tensor:
    """Return a second of a word in noise, shape (16000,)."""
    time = torch.arange(RATE) / RATE
    speed, loudness = 0.8 + 0.4 * torch.rand(()), 0.3 + torch.rand(())
    heard = 0.05 * torch.randn(RATE)
    for number, slope in enumerate(WORDS[word]):
        start = (500 + 900 * number) * (0.95 + 0.1 * torch.rand(()))
        heard += loudness * torch.sin(2 * math.pi * start * (time + 0.5 * slope * speed * time**2 / (number + 2)))
    return heard


def features(waves: Tensor) -> Tensor:
    """Return the logarithms of the energies of bands, shape (clips, 1, 49, 10), of waves (clips, 16000)."""
    frames = waves.unfold(1, 640, 320)[:, :FRAMES] * torch.hann_window(640)
    energies = torch.fft.rfft(frames).abs().square()[..., 1:301].unflatten(-1, (BANDS, -1)).mean(-1)
    return torch.log10(energies + 1e-3)[:, None]


def block(channels: int) -> list[nn.Module]:
    depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
    norms = [nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)]
    return [depthwise, norms[0], nn.ReLU(), nn.Conv2d(channels, channels, 1, bias=False), norms[1], nn.ReLU()]


def clips_of(labels: Tensor) -> Tensor:
    return features(torch.stack([sound(list(WORDS)[label]) for label in labels]))


torch.manual_seed(0)
stem = [nn.Conv2d(1, 16, (10, 4), stride=2, padding=(5, 1), bias=False), nn.BatchNorm2d(16), nn.ReLU()]
end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, len(WORDS))]
model = nn.Sequential(*stem, *block(16), *block(16), *end)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
labels = torch.arange(256) % len(WORDS)
heard = clips_of(labels)
for _ in range(6):
    for rows in torch.randperm(len(heard)).split(32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(heard[rows]), labels[rows]).backward()
        optimizer.step()
model.eval()

expected = torch.arange(8) % len(WORDS)
clips = clips_of(expected)
quantized = quantize(torch.export.export(model, (clips[:1],)), list(heard[:64].split(1)), integer_io=True)
(scale, zero_point), *_ = quantized.meta["input_scales"]
integers = (clips / scale + zero_point).round().clamp(-128, 127).to(torch.int8)
lowered = lower(quantized, integers[:1], output_type="tosa", quantized="integer")
print(lowered.build("spotter", kind="c"))

rows = ",\n".join("{" + ", ".join(map(str, clip.flatten().tolist())) + "}" for clip in integers)
names = ", ".join(f'"{word}"' for word in WORDS)
Path("clips.h").write_text(
    f"static const char *const words[] = {{{names}}};\n"
    f"static const int8_t clips[][SPOTTER_RUN_INPUT_COUNT] = {{\n{rows}\n}};\n"
)
spotted = torch.cat([lowered.run(clip) for clip in integers.split(1)]).argmax(1)
print(*(list(WORDS)[label] for label in expected))
print(*(list(WORDS)[label] for label in spotted))
