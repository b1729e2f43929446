"""The chart of the README: CPU seconds of both sides on one scale, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.comparison.tables import Pair, short

_WIDTH, _LABELS, _BAR, _ROW, _TOP = 760, 150, 14, 44, 46
_STYLE = """text { font: 13px system-ui, sans-serif; fill: #1f2328 } .fx { fill: #8c959f } .ours { fill: #0969da }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .fx { fill: #6e7681 } .ours { fill: #58a6ff } }"""


def chart(pairs: Sequence[Pair]) -> str:
    """Return an SVG with two bars per model, for pairs that both sides finished."""
    seconds = [
        (ours.case.program, peer.spread(lambda run: run.seconds), ours.spread(lambda run: run.seconds))
        for peer, ours in pairs
    ]
    rows = [(name, peer.middle, ours.middle) for name, peer, ours in seconds if peer and ours]
    scale = (_WIDTH - _LABELS - 150) / max(max(row[1:]) for row in rows)
    height = _TOP + _ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        f"<title>CPU seconds to lower models to linalg-on-tensors</title><style>{_STYLE}</style>",
        '<text x="0" y="15">CPU seconds from the exported program to linalg-on-tensors; shorter is better</text>',
        *_legend(),
    ]
    for index, (name, peer, ours) in enumerate(rows):
        y = _TOP + _ROW * index
        parts.append(f'<text x="{_LABELS - 12}" y="{y + 20}" text-anchor="end">{name}</text>')
        labels = short(peer), f"{short(ours)}   {short(peer / ours, 2)}x faster"
        for row, (kind, value, label) in enumerate(zip(("fx", "ours"), (peer, ours), labels, strict=True)):
            at, width = y + row * (_BAR + 2), max(value * scale, 1.5)
            parts.append(f'<rect class="{kind}" x="{_LABELS}" y="{at}" width="{width:.1f}" height="{_BAR}" rx="2"/>')
            parts.append(f'<text x="{_LABELS + width + 6:.1f}" y="{at + 12}" xml:space="preserve">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    entries = zip(("fx", "ours"), ("torch_mlir.fx", "fx_importer"), (_LABELS, _LABELS + 130), strict=True)
    return [
        f'<rect class="{kind}" x="{x}" y="25" width="12" height="12" rx="2"/><text x="{x + 18}" y="36">{label}</text>'
        for kind, label, x in entries
    ]
