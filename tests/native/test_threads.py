"""Calls of a library from several threads of a C program."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from fx_importer import lower

_PROGRAM = """
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static float x[NET_RUN_INPUT_COUNT], expected[NET_RUN_OUTPUT_COUNT];
static long calls;
static void *run(void *unused) {
  (void)unused;
  float y[NET_RUN_OUTPUT_COUNT];
  void *arena = aligned_alloc(64, NET_RUN_ARENA_BYTES);
  for (long i = 0; i < calls; i++)
    if (net_run(x, y, arena, NET_RUN_ARENA_BYTES) || memcmp(y, expected, sizeof y)) exit(1);
  free(arena);
  return NULL;
}
int main(int count, char **arguments) {
  (void)count;
  calls = atol(arguments[1]);
  for (int i = 0; i < NET_RUN_INPUT_COUNT; i++) x[i] = (float)i / 7;
  void *arena = aligned_alloc(64, NET_RUN_ARENA_BYTES);
  if (net_run(x, expected, arena, NET_RUN_ARENA_BYTES)) return 2;
  free(arena);
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, run, NULL);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  return 0;
}
"""


@pytest.mark.slow
def test_eight_threads_call_one_library(tmp_path: Path):
    """They make a million calls, and valgrind finds no invalid access in some."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4), torch.nn.Softmax(-1))
    lowered = lower(model, torch.zeros(2, 16), output_type="linalg-on-tensors")
    library, _ = lowered.build(tmp_path / "net", kind="static").files
    (source := tmp_path / "program.c").write_text(_PROGRAM)
    program = tmp_path / "program"
    subprocess.run(["cc", "-O1", "-g", "-I", tmp_path, source, library, "-lm", "-lpthread", "-o", program], check=True)
    subprocess.run([program, "125000"], check=True)
    if valgrind := shutil.which("valgrind"):
        subprocess.run([valgrind, "--error-exitcode=9", "-q", program, "20"], check=True, capture_output=True)
    symbols = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    assert not [line for line in symbols.splitlines() if line[17:19].lower() in ("d ", "b ")], "writable globals"
