"""What holds for every test, and for the processes that tests start."""

import os

# Read when torch is first imported. Tests run side by side, and none of them has enough work for two threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A test that would fetch something fails at once.
os.environ["HF_HUB_OFFLINE"] = "1"
