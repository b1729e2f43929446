"""Source lines of traced operators.

torch.export only keeps the stack frames named ``forward``, so that plain functions, and functions that a module calls,
have no source lines without this.
"""

from __future__ import annotations

import os
import traceback
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch.fx.experimental.symbolic_shapes import uninteresting_files

from fx_importer.frontend.torch_patches import FRAME_FILTER, patched

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_EXPORT = f"{_TORCH}export{os.sep}"
_HERE = f"{Path(__file__).parent}{os.sep}"


def frames_of_calls_kept() -> AbstractContextManager[None]:
    """Make tracing in the body keep the frame of the line that calls each operator."""
    return patched({FRAME_FILTER: lambda _tracer, frames: model_frames(frames)})


def model_frames(frames: traceback.StackSummary) -> traceback.StackSummary:
    """Return the frames named ``forward`` and the user's innermost one; without any ``forward``, all of the user's.

    Frames of a library's wrappers are left out to keep locations short.
    """
    exporting = [position for position, frame in enumerate(frames) if frame.filename.startswith(_EXPORT)]
    unwanted = uninteresting_files()
    inner = [frame for frame in frames[exporting[-1] + 1 if exporting else 0 :] if frame.filename not in unwanted]
    users = [i for i, frame in enumerate(inner) if not frame.filename.startswith((_TORCH, _HERE))]
    forward = [i for i, frame in enumerate(inner) if frame.name == "forward"]
    kept = {*forward, *users[-1:]} if forward else users
    return traceback.StackSummary.from_list([inner[i] for i in sorted(kept)])
