"""Files that the process of a compilation leaves, which are whatever the program in it makes of them."""

from __future__ import annotations

import os
import stat


def read_result(directory: int, name: str, most: int) -> str:
    """Return the text of the file ``name`` in the open ``directory``.

    Raises:
        ValueError: if it is not a regular file, has more than ``most`` bytes, or is not text.
        OSError: if it cannot be opened; links are not followed.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a pipe would wait for its writer
    with os.fdopen(os.open(name, flags, dir_fd=directory), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"'{name}' is not a regular file")
        data = b""
        while len(data) <= most and (piece := file.read(most + 1 - len(data))):
            data += piece
    if len(data) > most:
        raise ValueError(f"'{name}' has more than {most:,} bytes")
    return data.decode("utf-8")
