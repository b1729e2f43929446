"""The child process of TOSA's reference model. To start fast, it imports neither torch nor this package."""

from pathlib import Path

import numpy as np


def run_model(model: str, folder: str) -> None:
    """Run the flatbuffer ``model`` on ``folder/0.npy`` and so on, and write ``folder/result_0.npy`` and so on."""
    import tosa_reference_model  # here: the parent imports this file too

    count = len(list(Path(folder).glob("*.npy")))
    inputs = [np.load(Path(folder, f"{number}.npy")) for number in range(count)]
    results, status = tosa_reference_model.run(Path(model).read_bytes(), inputs)
    if status.name != "TOSA_VALID":
        raise SystemExit(f"the model ended as {status.name}")
    for number, result in enumerate(results):
        np.save(Path(folder, f"result_{number}.npy"), result)
