"""Equal layers outlined as one function, on backends against eager PyTorch."""

import pytest
import torch
from torch import nn

from fx_importer import FxImporter, Inputs, StageFailed, UnsupportedProgramError, lower
from fx_importer.importing.node_builder import UnsupportedNodeError
from fx_importer.mlir.bindings import func_d, ir
from tests.engines.test_engine_table import needs_tosa

WIDTH, LENGTH, DEPTH = 8, 6, 3


class Attention(nn.Module):
    """A layer with its own cache of keys and values."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.keys, self.values = (nn.Buffer(torch.zeros(1, LENGTH, WIDTH)) for _ in range(2))

    def forward(self, x, position):
        h = self.norm(x)
        self.keys.index_copy_(1, position, self.key(h))
        self.values.index_copy_(1, position, self.value(h))
        mask = torch.arange(LENGTH)[None] <= position[:, None]
        attended = nn.functional.scaled_dot_product_attention(self.query(h), self.keys, self.values, attn_mask=mask)
        return x + self.out(attended)


class Feed(nn.Module):
    """A layer without state that computes with sizes."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x):
        h = nn.functional.gelu(self.up(self.norm(x)))
        return x + self.down(h).sin() / x.shape[0] + torch.softmax(x, 0)


class Stack(nn.Module):
    """A sequence of layers."""

    def __init__(self, kind):
        super().__init__()
        self.layers = nn.ModuleList(kind() for _ in range(DEPTH))

    def forward(self, x, *others):
        for layer in self.layers:
            x = layer(x, *others)
        return x


def stack(kind) -> nn.Module:
    torch.manual_seed(0)
    return Stack(kind).eval().requires_grad_(False)


def functions(lowered) -> list[str]:
    return sorted(op.name.value for op in lowered.module.body if isinstance(op, func_d.FuncOp))


@pytest.mark.parametrize(
    "output_type, mutation, backend",
    [
        ("linalg", "functional", "jit"),
        ("linalg", "mutable", "jit"),
        ("stablehlo", "functional", "stablehlo"),
        ("tosa", "functional", "jit"),
    ],
)
def test_state_of_each_layer(output_type, mutation, backend):
    steps = [Inputs((torch.randn(1, 1, WIDTH), torch.tensor([i])), {}) for i in range(3)]
    lowered = lower(stack(Attention), *steps[0].args, output_type=output_type, mutation=mutation, outline_layers=True)
    assert functions(lowered) == ["main", "main.Attention"]
    assert lowered.verify(inputs=steps, backends=[backend])


@needs_tosa
def test_reference_model_runs_calls():
    lowered = lower(stack(Feed), torch.randn(4, WIDTH), output_type="tosa", outline_layers=True)
    assert functions(lowered) == ["main", "main.Feed"]
    assert "tosa.transpose" not in str(lowered.module)  # weights are constants of the types that the function takes
    assert lowered.verify(backends=["tosa_reference"])


@pytest.mark.parametrize("output_type, backend", [("linalg", "jit"), ("stablehlo", "stablehlo")])
def test_dynamic_sizes(output_type, backend):
    sizes = ({0: torch.export.Dim("batch", max=64)},)
    model, x = stack(Feed), torch.randn(4, WIDTH)
    lowered = lower(model, x, output_type=output_type, dynamic_shapes=sizes, outline_layers=True)
    assert functions(lowered) == ["main", "main.Feed"]
    assert lowered.verify(inputs=[Inputs((torch.randn(size, WIDTH),), {}) for size in (1, 4, 7)], backends=[backend])


def test_further_layers_add_only_calls():
    def size(depth, **options):
        model = stack(Feed)
        model.layers = nn.ModuleList(Feed() for _ in range(depth))
        count = 0

        def see(op):
            nonlocal count
            count += op.name not in ("func.call", "arith.constant")
            return ir.WalkResult.ADVANCE

        lower(model, torch.randn(4, WIDTH), output_type="linalg", **options).module.operation.walk(see)
        return count

    assert size(8, outline_layers=True) == size(2, outline_layers=True)
    assert size(8) > 3 * size(2)


@pytest.mark.parametrize(
    "output_type, backend",
    [("linalg", "jit"), ("stablehlo", "stablehlo"), pytest.param("tosa", "tosa_reference", marks=needs_tosa)],
)
def test_external_weights(output_type, backend):
    with torch.device("meta"):
        empty = Stack(Feed).eval()
    lowered = lower(
        empty, torch.empty(4, WIDTH, device="meta"), output_type=output_type, weights="external", outline_layers=True
    )
    assert functions(lowered) == ["main", "main.Feed"]
    model, x = stack(Feed), torch.randn(4, WIDTH)
    torch.testing.assert_close(lowered.with_weights(model).caller(backend=backend)(x), model(x))


@torch.library.custom_op("repeated_layers::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@unknown.register_fake
def _(x):
    return torch.empty_like(x)


class Unknown(Feed):
    """A layer that no output type supports."""

    def forward(self, x):
        return unknown(super().forward(x))


def test_unsupported_operator_of_a_layer_is_reported_once():
    with pytest.raises(StageFailed) as failed:
        lower(stack(Unknown), torch.randn(4, WIDTH), output_type="linalg", outline_layers=True)
    (cause,) = failed.value.causes
    assert "repeated_layers.unknown" in cause.call
    assert "return unknown(super().forward(x))" in str(failed.value)


def test_import_errors_are_reported_per_layer():
    def refuse(node, build):
        raise UnsupportedNodeError("no sines")

    importer = FxImporter(handlers={torch.ops.aten.sin.default: refuse})
    with pytest.raises(UnsupportedProgramError) as failed:
        lower(stack(Feed), torch.randn(4, WIDTH), fx_importer=importer, outline_layers=True)
    assert [unsupported.reason for unsupported in failed.value.unsupported_nodes] == ["no sines"] * DEPTH
    assert str(failed.value).startswith("3 things in the program cannot be imported")
    assert not list(importer.module.body)


def test_outlined_operators_in_layers_run_in_pytorch():
    model, x = stack(Unknown), torch.randn(4, WIDTH)
    lowered = lower(model, x, output_type="linalg", outline_layers=True, unsupported="outline")
    assert [stub.operator for stub in lowered.operator_stubs.values()] == ["repeated_layers.unknown.default"]
    torch.testing.assert_close(lowered.run(x), model(x))


def test_fallback_in_layers():
    class Double(Feed):
        def forward(self, x):
            return super().forward(x) + (x.double().view(torch.int64) >> 52).float()

    model, x = stack(Double), torch.randn(4, WIDTH)
    lowered = lower(model, x, output_type="tosa", outline_layers=True, fallback="linalg")
    assert lowered.manifest.fallback == ("linalg-on-tensors",)
    torch.testing.assert_close(lowered.run(x), model(x))


@pytest.mark.slow
@needs_tosa
def test_shared_integers_of_layers():
    class Singular(Feed):
        def forward(self, x):
            return super().forward(x) + torch.linalg.svdvals(x)[0]

    lowered = lower(stack(Singular), torch.randn(4, WIDTH), output_type="tosa", outline_layers=True)
    assert lowered.verify(backends=["tosa_reference"])
