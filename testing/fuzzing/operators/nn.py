"""Products, convolutions, pools, norms and losses of random programs."""

from __future__ import annotations

import torch

from testing.fuzzing.draw import SIZES, Draw, Proposal


def product(draw: Draw) -> Proposal:
    x = draw.value(lambda each: each.numel() < 500, least=1, most=4)
    shape, dtype = draw[x].shape, draw[x].dtype
    size = draw.one(SIZES)
    match draw.rng.randrange(6):
        case 0 if len(shape) == 2:
            return "torch.mm", (x, draw.new((shape[1], size), dtype)), {}
        case 1 if len(shape) == 3:
            return "torch.bmm", (x, draw.new((shape[0], shape[2], size), dtype)), {}
        case 2 if len(shape) == 2:
            further = {"beta": draw.one((1, 2, 0)), "alpha": draw.one((1, 2))} if draw.chance(0.4) else {}
            return "torch.addmm", (draw.new((size,), dtype), x, draw.new((shape[1], size), dtype)), further
        case 3:
            bias = (draw.new((size,), dtype),) if draw.chance(0.6) else ()
            return "torch.nn.functional.linear", (x, draw.new((size, shape[-1]), dtype), *bias), {}
        case 4:
            return "torch.matmul", (x, draw.new((shape[-1],), dtype)), {}
    batch = draw.one(([], [*shape[:-2]], [1] * max(len(shape) - 2, 0)))
    return "torch.matmul", (x, draw.new((*batch, shape[-1], size), dtype)), {}


def convolution(draw: Draw) -> Proposal:
    rank = draw.one((1, 2, 2, 3))
    x = draw.floating(rank + 2, rank + 2) if draw.chance(0.4) else _image(draw, rank)
    channels = draw[x].shape[1]
    groups = draw.one((1, 1, channels)) or 1
    dtype = draw[x].dtype
    out, taps = groups * draw.one((1, 2)), [draw.one((1, 2, 3)) for _ in range(rank)]
    bias = draw.new((out,), dtype) if draw.chance(0.5) else None
    further = {
        "stride": draw.one((1, 1, 2)),
        "padding": draw.one((0, 1)),
        "dilation": draw.one((1, 1, 2)),
        "groups": groups,
    }
    if draw.chance(0.3):
        weight = draw.new((channels, out // groups, *taps), dtype)
        return f"torch.nn.functional.conv_transpose{rank}d", (x, weight, bias), further
    weight = draw.new((out, channels // groups, *taps), dtype)
    return f"torch.nn.functional.conv{rank}d", (x, weight, bias), further


def _image(draw: Draw, rank: int):
    sizes = [draw.one((4, 5, 7)) if rank < 3 else draw.one((3, 4)) for _ in range(rank)]
    return draw.new((draw.one((1, 2)), draw.one((1, 2, 3, 4)), *sizes), draw.float_dtype())


def pool(draw: Draw) -> Proposal:
    rank = draw.one((1, 2, 2, 3))
    x = _image(draw, rank) if draw.chance(0.6) else draw.floating(rank + 1, rank + 2)
    match draw.rng.randrange(3):
        case 0:
            further = {"ceil_mode": draw.chance(0.3), "count_include_pad": draw.chance(0.5)}
            padding = draw.one((0, 0, 1))
            return f"torch.nn.functional.avg_pool{rank}d", (x, draw.one((2, 3)), draw.one((1, 2)), padding), further
        case 1:
            return f"torch.nn.functional.adaptive_{draw.one(('avg', 'max'))}_pool{rank}d", (x, draw.one((1, 2))), {}
    further = {"ceil_mode": draw.chance(0.3), "return_indices": draw.chance(0.3)}
    padding, dilation = draw.one((0, 0, 1)), draw.one((1, 1, 2))
    return f"torch.nn.functional.max_pool{rank}d", (x, draw.one((2, 3)), draw.one((1, 2)), padding, dilation), further


def normalized(draw: Draw) -> Proposal:
    x = draw.floating(1, 4)
    shape, dtype = draw[x].shape, draw[x].dtype
    match draw.rng.randrange(6):
        case 0:
            weights = (draw.new(shape[-1:], dtype), draw.new(shape[-1:], dtype)) if draw.chance(0.6) else ()
            return "torch.nn.functional.layer_norm", (x, list(shape[-1:]), *weights), {}
        case 1 if len(shape) > 1 and draw.settings.training:
            return "torch.nn.functional.batch_norm", (x, None, None), {"training": True}
        case 1 if len(shape) > 1:
            mean, var = draw.new((shape[1],), dtype, "normal"), draw.new((shape[1],), dtype, "positive")
            return "torch.nn.functional.batch_norm", (x, mean, var), {}
        case 2 if len(shape) > 2:
            return "torch.nn.functional.group_norm", (x, 1), {}
        case 3:
            return "torch.nn.functional.normalize", (x,), {"dim": draw.axis(x)}
        case 4 if len(shape) > 2:
            return "torch.nn.functional.scaled_dot_product_attention", (x, x, x), {"is_causal": draw.chance(0.4)}
    return f"torch.{draw.one(('softmax', 'log_softmax'))}", (x, draw.axis(x)), {}


def loss(draw: Draw) -> Proposal:
    x = draw.floating(1, 3)
    shape = draw[x].shape
    further = {"reduction": draw.one(("mean", "sum", "none"))}
    if draw.chance(0.5) and len(shape) > 1 and shape[1]:
        labels = draw.new((shape[0], *shape[2:]), torch.int64, "natural indices", shape[1])
        return f"torch.nn.functional.{draw.one(('cross_entropy', 'nll_loss'))}", (x, labels), further
    other = draw.new(shape, draw[x].dtype)
    name = draw.one(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"))
    return f"torch.nn.functional.{name}", (x, other), further


def resized(draw: Draw) -> Proposal:
    x = _image(draw, 2)
    mode = draw.one(("nearest", "bilinear", "bicubic", "nearest-exact"))
    further = {"align_corners": draw.chance(0.5)} if mode.startswith("bi") else {}
    if draw.chance(0.5):
        return (
            "torch.nn.functional.interpolate",
            (x,),
            {"scale_factor": draw.one((2, 0.5, 1.5)), "mode": mode, **further},
        )
    return "torch.nn.functional.interpolate", (x, [draw.one((2, 5, 8)), 3]), {"mode": mode, **further}
