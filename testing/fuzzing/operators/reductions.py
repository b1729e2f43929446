"""Reductions, scans and sorts of random programs."""

from __future__ import annotations

from testing.fuzzing.draw import Draw, Proposal

REDUCTIONS = ("sum", "mean", "amax", "amin", "any", "all", "logsumexp", "std", "var", "nansum", "count_nonzero", "norm")
WHOLE = ("sum", "mean", "max", "min", "any", "all", "prod", "std", "var", "argmax", "argmin", "count_nonzero")
SCANS = ("cumsum", "cumprod", "logcumsumexp")


def reduction(draw: Draw) -> Proposal:
    name = draw.one(REDUCTIONS)
    x = draw.value(least=1)
    rank = draw[x].dim()
    axes = [axis if draw.chance(0.7) else axis - rank for axis in draw.some(range(rank))]
    further = {"keepdim": True} if draw.chance(0.4) and name != "count_nonzero" else {}
    if name == "norm":
        return "torch.norm", (x, draw.one((1, 2, 3, float("inf"))), axes), further
    if name in ("std", "var"):
        return f"torch.{name}", (x, axes), {"correction": draw.one((0, 1)), **further}
    if name == "sum" and draw.chance(0.3):
        return "torch.prod", (x, axes[0]), further
    return f"torch.{name}", (x, axes[0] if name in ("any", "all") and draw.chance(0.5) else axes), further


def whole(draw: Draw) -> Proposal:
    return f"torch.{draw.one(WHOLE)}", (draw.value(),), {}


def positions(draw: Draw) -> Proposal:
    x = draw.real()
    name = draw.one(("argmax", "argmin", "max", "min", "aminmax"))
    axis = draw.axis(x)
    if name == "aminmax":
        return "torch.aminmax", (x,), {"dim": axis}
    return f"torch.{name}", (x, axis), {"keepdim": draw.chance(0.4)}


def scan(draw: Draw) -> Proposal:
    x = draw.value()
    if draw.chance(0.25):
        return f"torch.{draw.one(('cummax', 'cummin'))}", (x, draw.axis(x)), {}
    return f"torch.{draw.one(SCANS)}", (x, draw.axis(x)), {}


def order(draw: Draw) -> Proposal:
    x = draw.real()
    axis = draw.axis(x)
    match draw.rng.randrange(4):
        case 0:
            most = draw[x].shape[axis] if draw[x].dim() else 1
            count = draw.rng.randint(0 if draw.chance(0.05) else 1, max(1, min(most, 3)))
            return "torch.topk", (x, count, axis, draw.chance(0.5)), {}
        case 1:
            return "torch.argsort", (x,), {"dim": axis, "descending": draw.chance(0.5), "stable": True}
        case 2:
            return "torch.kthvalue", (x, 1, axis), {}
    return "torch.sort", (x,), {"dim": axis, "descending": draw.chance(0.5), "stable": True}
