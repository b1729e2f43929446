"""Weights that are passed as arguments rather than compiled by LLVM."""

import pytest
import torch

from fx_importer import lower
from fx_importer.engines import JitBackend
from fx_importer.engines.jit.weight_table import elide_weights, read_buffer, weight_table
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.dtypes import DTYPES
from fx_importer.mlir.resources import resource
from fx_importer.rewrites.llvm.weight_hoisting import HoistedWeight, hoist_weights, weights_of

RETURNS = "func.func @main() -> {0} {{ %0 = arith.constant dense<{1}> : {0}\n return %0 : {0} }}"


def weight(name: str, value: torch.Tensor, element_type: str, context: ir.Context) -> ir.Attribute:
    with context, ir.Location.unknown():
        data = value.contiguous().view(torch.uint8).reshape(-1).numpy() if value.numel() else value.numpy()
        tensor_type = ir.RankedTensorType.get(value.shape, ir.Type.parse(element_type))
        return resource(data, name, tensor_type)


def returning(values: list[tuple[torch.Tensor, str]], sharing: bool = False) -> ir.Module:
    """Return a module whose ``main`` returns the constants; with ``sharing``, the first one twice."""
    context = new_context()
    attributes = [weight(f"w{i}", value, element, context) for i, (value, element) in enumerate(values)]
    if sharing:
        attributes.append(attributes[0])
    types = [str(attribute.type) for attribute in attributes]
    lines = [f"%{i} = arith.constant dense<0> : tensor<1xi32>" for i in range(len(types))]
    module = ir.Module.parse(f"func.func @main() {{ {' '.join(lines)} return }}", context)
    function = module.body.operations[0]
    entry = function.entry_block
    with context, ir.Location.unknown():
        for op in list(entry.operations):
            op.operation.erase()
        with ir.InsertionPoint(entry):
            constants = [
                ir.Operation.create("arith.constant", results=[each.type], attributes={"value": each})
                for each in attributes
            ]
            ir.Operation.create("func.return", operands=[each.result for each in constants])
        function.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get([], [each.type for each in attributes])
        )
    assert module.operation.verify()
    return module


def random_bytes(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype is torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    raw = torch.randint(256, (*shape, dtype.itemsize), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).squeeze(-1)


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))


@pytest.mark.slow_rows(
    "^complex<f64>$",
    "^f32$",
    "^i64$",
    "^i16$",
    "^complex<f16>$",
    "^f64$",
    "^f8E5M2FNUZ$",
    "^i32$",
    "^f8E4M3FN$",
    "^complex<f32>$",
)
@pytest.mark.parametrize("element_type", DTYPES)
def test_constants_are_bit_exact(element_type):
    dtype = DTYPES[element_type][0]
    large, odd = random_bytes(40, 60, dtype=dtype), random_bytes(1031, dtype=dtype)
    first, second = JitBackend().load(returning([(large, element_type), (odd, element_type)]))()
    assert first.dtype == second.dtype == dtype
    assert same_bytes(first, large)
    assert same_bytes(second, odd)


def test_large_constants_become_buffers_of_one_argument():
    values = [(torch.ones(300), "f32"), (torch.ones(3), "f32"), (torch.ones(17, 19).double(), "f64")]
    module = returning(values, sharing=True)
    function = module.body.operations[0]
    with module.context:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([])
    resources = elide_weights(module)
    hoist_weights(module.operation)
    entries = weights_of(module)
    assert module.operation.verify()
    table, buffers = weight_table(entries, resources)
    assert [each.nbytes for each in buffers] == [300 * 4, 17 * 19 * 8]
    assert table.view(2, 5)[:, 1].tolist() == [each.data.ctypes.data for each in resources]
    text = str(function)
    assert text.count("memref.view") == 2
    assert text.count("dense_resource<w1>") == text.count("dense_resource") == 1
    assert "restrict writable" not in text
    returned = list(function.entry_block.operations)[-1].operation.operands
    assert returned[0] == returned[3]


def test_resource_of_another_size_than_its_type_is_kept():
    module = returning([(torch.ones(2000, dtype=torch.float16), "f32")])
    assert elide_weights(module) == []
    assert "dense_resource<w0>" in str(module)


def test_no_large_constants(jit):
    (result,) = jit(RETURNS.format("tensor<2xf32>", "[1.5, 2.5]"))()
    assert result.tolist() == [1.5, 2.5]


def test_returned_weight_is_a_copy():
    function = JitBackend().load(returning([(torch.ones(500), "f32")]))
    function()[0].zero_()
    assert torch.equal(function()[0], torch.ones(500))


def test_returned_small_constant_is_a_copy(jit):
    function = jit(RETURNS.format("tensor<2xi32>", "[7, 8]"))
    function()[0].zero_()
    assert function()[0].tolist() == [7, 8]


def test_weights_are_read_in_place():
    weight = torch.ones(500)
    function = JitBackend().load(returning([(weight, "f32")]))
    weight[3] = 7.0
    assert function()[0][3] == 7.0


@pytest.mark.parametrize("rows", [4, 64])  # in the code, and in the table
def test_unsigned_weights_of_stablehlo(rows):
    weight = torch.arange(rows * 32).to(torch.uint8).reshape(rows, 32)
    lowered = lower(lambda x: x + weight.float(), torch.zeros(rows, 32), output_type="stablehlo")
    assert torch.equal(lowered.run(torch.zeros(rows, 32)), weight.float())


def test_weight_at_an_odd_address_is_copied():
    memory = torch.zeros(2001, dtype=torch.uint8)
    memory[1:] = torch.arange(500, dtype=torch.float32).view(torch.uint8)
    data = memory[1:].numpy()
    entry = HoistedWeight(0, (500,), 4, None)
    assert read_buffer(entry, data).ctypes.data % 4 == 0
    assert read_buffer(entry, data).tobytes() == data.tobytes()


def test_copies_in_another_layout_begin_at_a_cache_line():
    weights = torch.randn(10, 17, 19)
    for each in weights:
        data = each.view(torch.uint8).numpy().reshape(-1)
        copies = [read_buffer(HoistedWeight(0, (17, 19), 4, (1, 0)), data) for _ in range(10)]
        assert {copy.ctypes.data % 64 for copy in copies} == {0}
        assert copies[0].tobytes() == each.T.contiguous().numpy().tobytes()
