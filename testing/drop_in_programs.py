"""Programs whose text `testing.drop_in` compares: state, dynamic sizes, scalars, higher-order and custom operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.ao.quantization.fx import _decomposed
from torch.export import Dim

Program = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, its inputs, and the keywords of ``export_and_import``."""

_LIBRARY = torch.library.Library("drop_in", "FRAGMENT")
_LIBRARY.define("write(Tensor(a!) out, Tensor x, int n) -> ()")
_LIBRARY.define("write_and_count(Tensor(a!) out, Tensor x) -> Tensor")
_LIBRARY.define("twice(Tensor x) -> Tensor")
_LIBRARY.define("halves(Tensor x) -> Tensor[]")
_LIBRARY.impl("write", lambda out, x, n: out.copy_(x * n) and None, "CompositeExplicitAutograd")
_LIBRARY.impl("write_and_count", lambda out, x: (out.copy_(x), x.sum())[1], "CPU")
_LIBRARY.impl("twice", lambda x: x * 2, "CPU")
_LIBRARY.impl("halves", lambda x: list(x.chunk(2)), "CPU")
_LIBRARY.impl("write", lambda out, x, n: None, "Meta")
_LIBRARY.impl("write_and_count", lambda out, x: x.new_empty(()), "Meta")
_LIBRARY.impl("twice", torch.empty_like, "Meta")
_LIBRARY.impl("halves", lambda x: [torch.empty_like(each) for each in x.chunk(2)], "Meta")
_own = torch.ops.drop_in
_quantized = torch.ops.quantized_decomposed
assert _decomposed  # it defines these operators


class Of(nn.Module):
    """A function as a module, with buffers by name."""

    def __init__(self, function: Callable[..., Any], *, persistent: bool = True, **buffers: Tensor):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=persistent)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with the module first if it has buffers."""
        own = (self,) if list(self.buffers()) else ()
        return self.function(*own, *args, **kwargs)


def _counted(self: Any, x: Tensor) -> Tensor:
    self.count.add_(1)
    return x * self.count


def _cache(self: Any, x: Tensor) -> Tensor:
    self.cache[:, 1] = x
    return self.cache.sum(1)


def _in_place(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y[0] = x[0]
    return x + y


def _written(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    _own.write(out, x, 3)
    return out + 1


def _written_and_counted(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros_like(x)
    return _own.write_and_count(out, x), out


def _masks(self: Any, x: Tensor) -> Tensor:
    return torch.where(self.a, x, -x) + torch.where(self.b, x * 2, x) + torch.where(self.c, x, x + 1)


def _loop(x: Tensor) -> Any:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


def _while_one(x: Tensor) -> Any:
    return while_loop(lambda y: y.sum() < 30, lambda y: (y * 2,), (x,))


def _strided(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> nn.Module:
    return Of(lambda x: torch.as_strided(x, size, stride, offset))


def programs() -> dict[str, Callable[[], Program]]:
    """Return the programs by name, each made when it is called."""
    r = torch.randn
    n, m = Dim("n", max=64), Dim("m", min=3, max=99)
    symbols = {"import_symbolic_shape_expressions": True}
    mutable = {"experimental_support_mutation": True}

    def of(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], Program]:
        return lambda: (Of(function), args, options)

    def dynamic(function: Callable[..., Any], *args: Any, shapes: Any = None, **options: Any) -> Callable[[], Program]:
        made = shapes or tuple({0: n} for _ in args)
        return lambda: (Of(function), args, {"dynamic_shapes": {"args": made}, **symbols, **options})

    return {
        # --- plain modules
        "linear": lambda: (nn.Linear(3, 4), (r(2, 3),), {}),
        "func_name": lambda: (nn.Linear(3, 4), (r(2, 3),), {"func_name": "linear"}),
        "mlp_training": lambda: (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.GELU()), (r(2, 3),), {}),
        "batch_norm_training": lambda: (nn.BatchNorm2d(3), (r(2, 3, 4, 4),), {}),
        "batch_norm_training_mutable": lambda: (nn.BatchNorm2d(3), (r(2, 3, 4, 4),), mutable),
        "conv": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), (r(1, 3, 8, 8),), {}),
        "transposed_conv": lambda: (nn.ConvTranspose2d(3, 4, 3), (r(1, 3, 5, 5),), {}),
        "encoder": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (r(2, 5, 8),), {}),
        "attention": of(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *(r(1, 2, 4, 8) for _ in range(3))
        ),
        "lstm": lambda: (nn.LSTM(4, 5), (r(3, 2, 4),), {}),
        "embedding": lambda: (nn.Embedding(10, 4), (torch.tensor([[1, 2], [3, 4]]),), {}),
        "embedding_bag": lambda: (nn.EmbeddingBag(10, 4).eval(), (torch.tensor([[1, 2], [3, 4]]),), {}),
        "unet_block": lambda: (nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2, 2, 1)), (r(1, 2, 4, 4),), {}),
        "strict": lambda: (nn.Linear(3, 4), (r(2, 3),), {"strict": True}),
        "no_decompositions": lambda: (nn.Linear(3, 4), (r(2, 3),), {"decomposition_table": {}}),
        "table_of_one": of(
            lambda x: torch.softmax(F.gelu(x), -1),
            r(2, 3),
            decomposition_table={torch.ops.aten.gelu.default: lambda x, approximate="none": x * torch.sigmoid(x)},
        ),
        "legal_ops": of(lambda x: F.softmax(x, -1), r(2, 3), backend_legal_ops=["aten.softmax.int"]),
        "keyword_inputs": lambda: (Of(lambda x, *, y: x - y), (r(2),), {"y": r(2)}),
        "tied_weights": lambda: (Of(lambda self, x: x @ self.w @ self.w.t() + self.w, w=r(3, 3)), (r(3, 3),), {}),
        # --- constants and scalars
        "scalar_constant": of(lambda x: x + torch.tensor(2.5), r(2)),
        "tensor_constant": of(lambda x: x + torch.tensor([1.0, 2.0]), r(2)),
        "empty_buffer": lambda: (Of(lambda self, x: torch.cat([self.e, x]), e=r(0, 3)), (r(2, 3),), {}),
        "bool_buffers": lambda: (Of(_masks, a=r(7) > 0, b=r(7) > 0, c=r(7) > 0), (r(7),), {}),
        "bfloat16_buffer": lambda: (Of(lambda self, x: x + self.b, b=r(3).bfloat16()), (r(3).bfloat16(),), {}),
        "float8_buffer": lambda: (Of(lambda self, x: x + self.b.float(), b=r(4).to(torch.float8_e5m2)), (r(4),), {}),
        "complex_buffer": lambda: (Of(lambda self, x: x * self.c, c=r(3, dtype=torch.complex64)), (r(3),), {}),
        "strided_buffer": lambda: (Of(lambda self, x: x + self.b, b=r(3, 4).t()), (r(4, 3),), {}),
        "expanded_buffer": lambda: (Of(lambda self, x: x + self.b, b=r(1).expand(4)), (r(4),), {}),
        "buffer_not_persistent": lambda: (Of(lambda self, x: x + self.b, persistent=False, b=r(3)), (r(3),), {}),
        "buffer_not_persistent_mutable": lambda: (
            Of(lambda self, x: x + self.b, persistent=False, b=r(3)),
            (r(3),),
            mutable,
        ),
        "returns_numbers": of(lambda x: (x + 1, 3, 2.5, None, True), r(2), **mutable),
        "returns_numbers_frozen": of(lambda x: (x + 1, 3, 2.5, None, True), r(2)),
        "returns_input": of(lambda x, y: (x, y + 1), r(2), r(2)),
        "returns_buffer": lambda: (Of(lambda self, x: (self.b, x), b=r(3)), (r(3),), {}),
        "number_inputs": of(lambda x, a, b: x * a + (1 if b else 2), r(2), 3, True, **mutable),
        "number_inputs_frozen": of(lambda x, a, b: x * a + (1 if b else 2), r(2), 3, True),
        "item": of(lambda x: x * x.sum().item(), r(3)),
        "item_integer": of(lambda x: x * x.sum().item(), torch.ones(3, dtype=torch.int64)),
        "fp4_input": of(lambda x: (x,), torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)),
        "dtypes": of(lambda x: [x.to(d) for d in (torch.int8, torch.uint8, torch.bool, torch.float16)], r(3)),
        "uint32": of(lambda x: x.to(torch.uint32), torch.ones(3)),
        "clones": of(lambda x: x.clone() + x.contiguous() + x.t().contiguous() + x.detach(), r(3, 3)),
        "channels_last": of(lambda x: x.to(memory_format=torch.channels_last) + 1, r(1, 2, 3, 4)),
        "index_put": of(lambda x, i: x.index_put((i,), torch.tensor(1.0)), r(4, 3), torch.tensor([0, 2])),
        "index": of(lambda x, i: x[:, i] + x[1:3].sum(), r(4, 3), torch.tensor([0, 2])),
        "split": of(lambda x: x.split(2) + x.unbind(1), r(4, 3)),
        "topk_sort": of(lambda x: (*x.topk(2), *x.sort(-1), *x.max(1)), r(4, 3)),
        "baddbmm": of(lambda x, y: torch.baddbmm(torch.empty(2, 3, 5), x, y, beta=0), r(2, 3, 4), r(2, 4, 5)),
        "full_arange": of(lambda x: x + torch.arange(3) + torch.full((3,), 2) + torch.eye(3), r(3, 3)),
        # --- memory
        "as_strided_whole": lambda: (_strided((2, 2), (2, 1)), (r(4),), {}),
        "as_strided_overlapping": lambda: (_strided((3, 2), (1, 1)), (r(4),), {}),
        "as_strided_transposed": lambda: (Of(lambda x: x.t().as_strided((2, 2), (1, 2))), (r(2, 3),), {}),
        "as_strided_outside": of(lambda x: x[:2].as_strided((2, 2), (2, 1)), r(4)),
        "as_strided_dynamic": dynamic(lambda x: x.as_strided((x.shape[0], 1), (1, 1)), r(4)),
        "buffer_mutated": lambda: (Of(_counted, count=torch.zeros(())), (r(3),), {}),
        "buffer_mutated_mutable": lambda: (Of(_counted, count=torch.zeros(())), (r(3),), mutable),
        "cache_mutated": lambda: (Of(_cache, cache=torch.zeros(2, 3, 4)), (r(2, 4),), {}),
        "input_mutated": of(_in_place, r(3), r(3)),
        "input_mutated_mutable": of(_in_place, r(3), r(3), **mutable),
        "input_mutated_dynamic": dynamic(_in_place, r(3), r(3), **mutable),
        "view_written": of(lambda x: x.clone().view(-1).add_(1).view(2, 3)[0], r(2, 3)),
        # --- dynamic sizes
        "dynamic_linear": lambda: (
            nn.Linear(3, 4),
            (r(2, 3),),
            {"dynamic_shapes": {"input": {0: n}}, **symbols},
        ),
        "dynamic_without_symbols": dynamic(lambda x: x.relu(), r(4, 3), import_symbolic_shape_expressions=False),
        "dynamic_sum_of_sizes": dynamic(lambda x, y: torch.cat([x, y, x]), r(4, 2), r(5, 2), shapes=({0: n}, {0: m})),
        "dynamic_product": dynamic(lambda x: x.reshape(-1), r(4, 5), shapes=({0: n, 1: m},)),
        "dynamic_square": dynamic(lambda x: (x[:, None] * x[None]).reshape(-1), r(4)),
        "dynamic_cube": dynamic(lambda x: (x[:, None, None] * x[None, :, None] * x).reshape(-1), r(4)),
        "dynamic_multiple": dynamic(lambda x: x.view(x.shape[0] // 2, 2) + 1, r(4), shapes=({0: 2 * Dim("h", max=9)},)),
        "dynamic_offset": dynamic(lambda x: x[1:] - x[:-1], r(5), shapes=({0: m},)),
        "dynamic_difference": dynamic(lambda x: x[2:-3], r(9), shapes=({0: Dim("k", min=8)},)),
        "dynamic_mod": dynamic(lambda x: F.pad(x, (0, x.shape[0] % 4)), r(6)),
        "dynamic_floor": dynamic(lambda x: F.avg_pool1d(x[None, None], 2)[0, 0], r(6), shapes=({0: Dim("f", min=4)},)),
        "dynamic_conv": dynamic(
            lambda x, w: F.conv2d(x, w, stride=2), r(3, 2, 9, 9), r(4, 2, 3, 3), shapes=({0: n}, {})
        ),
        "dynamic_mean": dynamic(lambda x: x.mean(0) * x.shape[0], r(4, 3)),
        "dynamic_division": dynamic(lambda x: x / x.shape[0] + x.shape[0] / 2, r(4, 3)),
        "dynamic_softmax": dynamic(lambda x: F.softmax(x, 0) + F.layer_norm(x, (3,)), r(4, 3)),
        "dynamic_auto": lambda: (
            Of(lambda x, y: x + y),
            (r(4, 3), r(4, 3)),
            {"dynamic_shapes": {"args": ({0: Dim.AUTO}, {0: Dim.AUTO})}, **symbols},
        ),
        "dynamic_returns_size": dynamic(lambda x: (x.relu(), x.shape[0]), r(4, 3), **mutable),
        "dynamic_returns_size_frozen": dynamic(lambda x: (x.relu(), x.shape[0]), r(4, 3)),
        "dynamic_topk": dynamic(lambda x: x.topk(2, 0), r(4, 3)),
        "dynamic_chunk": dynamic(lambda x: x.expand(3, -1).reshape(-1), r(4)),
        "nonzero": of(lambda x: x.nonzero(), r(4), **symbols),
        "masked_select": of(lambda x: x[x > 0] * 2, r(4)),
        # --- layouts
        "coo": of(lambda x: torch.sparse.sum(x), torch.eye(3).to_sparse()),
        "coo_relu": of(lambda x: torch.ops.aten.neg.default(x), torch.eye(3).to_sparse()),
        "csr": of(lambda x, y: torch.matmul(x, y), torch.eye(3).to_sparse_csr(), r(3, 3)),
        "csc": of(lambda x: torch.ops.aten.neg.default(x), torch.eye(3).to_sparse_csc()),
        "bsr": of(lambda x: torch.ops.aten.neg.default(x), torch.eye(4).to_sparse_bsr((2, 2))),
        "coo_identity": of(lambda x: x, torch.eye(3).to_sparse()),
        # --- higher-order and custom operators
        "custom": of(lambda x: _own.twice(x) + 1, r(3)),
        "custom_list": of(lambda x: [each + 1 for each in _own.halves(x)], r(4)),
        "auto_functionalized": of(_written, r(3)),
        "auto_functionalized_result": of(_written_and_counted, r(3)),
        "auto_functionalized_mutable": of(_written, r(3), **mutable),
        "auto_functionalized_input": of(lambda out, x: _own.write(out, x, 2), r(3), r(3), **mutable),
        "while_loop": of(_loop, r(3)),
        "while_loop_mutable": of(_loop, r(3), **mutable),
        "while_loop_one": of(_while_one, r(3).abs() + 1),
        "cond": of(lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), r(3)),
        "fake_quantize": of(
            lambda x: _quantized.dequantize_per_tensor.default(
                _quantized.quantize_per_tensor.default(x, 0.1, 0, -128, 127, torch.int8),
                0.1,
                0,
                -128,
                127,
                torch.int8,
            ),
            r(3),
        ),
        "assertion": of(lambda x: (torch.ops.aten._assert_async.msg((x > -9).all(), "low"), x + 1)[1], r(3)),
        "device": of(lambda x: x.to("cpu") + torch.zeros(3, device="cpu"), r(3)),
    }
