"""Damaged and edited copies of files, by seed."""

from __future__ import annotations

import json
import random
from typing import Any

NAMES = ("", "..", "../../etc/passwd", "/etc/passwd", "a\0b", "__import__('os').system('touch ran')", "x" * 3000)
VALUES: tuple[Any, ...] = (*NAMES, None, True, -1, 0, 2**31, 2**63, 2**64 - 1, 1e308, [], {}, [[]], {"__enum__": True})


def damaged(data: bytes, seed: int) -> bytes:
    """Return ``data`` with flipped bits, a part removed, repeated or overwritten, or the end cut off."""
    choose = random.Random(seed)
    made = bytearray(data)
    at = choose.randrange(len(made))
    match choose.choice(("flip", "flip", "flip", "cut", "repeat", "overwrite", "remove")):
        case "flip":
            for _ in range(choose.randint(1, 4)):
                made[choose.randrange(len(made))] ^= 1 << choose.randrange(8)
        case "cut":
            del made[at:]
        case "repeat":
            made[at:at] = made[at : at + choose.randint(1, 32)]
        case "overwrite":
            made[at : at + 8] = choose.randbytes(8)
        case _:
            del made[at : at + choose.randint(1, 16)]
    return bytes(made)


EXTREMES = (2**64 - 1, 2**63, 2**63 - 1, 2**32 - 1, 2**31, 2**40, 1, 0)


def extreme(data: bytes, seed: int) -> bytes:
    """Return ``data`` with a number of 8 or 4 bytes at its extreme, at each offset of the first 4 KiB in turn."""
    width, number = (8, 4)[seed // 2 % 2], EXTREMES[seed % len(EXTREMES)]
    at = seed * 4 % min(len(data), 4096)
    return data[:at] + (number % 2 ** (8 * width)).to_bytes(width, "little") + data[at + width :]


def edited(data: bytes, seed: int) -> bytes:
    """Return the JSON ``data`` with one to three values replaced, removed, copied from elsewhere, or repeated."""
    choose = random.Random(seed)
    found = json.loads(data)
    for _ in range(choose.randint(1, 3)):
        places = list(_places(found))
        if not places:
            break
        container, key = choose.choice(places)
        match choose.choice(("replace", "replace", "remove", "copy", "repeat", "rename")):
            case "replace":
                container[key] = json.loads(json.dumps(choose.choice(VALUES)))
            case "remove":
                del container[key]
            case "copy":
                other, name = choose.choice(places)
                container[key] = json.loads(json.dumps(other[name]))
            case "repeat" if isinstance(container, list):
                container.append(json.loads(json.dumps(container[key])))
            case _ if isinstance(container, dict):
                container[choose.choice(NAMES)] = container.pop(key)
            case _:
                container[key] = json.loads(json.dumps(choose.choice(VALUES)))
    return json.dumps(found).encode()


def _places(found: Any) -> Any:
    """Yield every container in ``found`` with each of its keys."""
    keys = list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
    for key in keys:
        yield found, key
        yield from _places(found[key])
