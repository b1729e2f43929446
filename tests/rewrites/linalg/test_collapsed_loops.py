"""Loops over consecutive memory become one; all others stay."""

import pytest

from fx_importer.mlir.bindings import ir, load_dialects, new_context
from fx_importer.mlir.walk import operations
from fx_importer.rewrites import collapse_loops

P, R = "parallel", "reduction"
CASES = {
    "whole buffers": ("abc", "PPP", ["abc:2x3x5", "abc:2x3x5"], ["(d0):30", "(d0):30"]),
    "a row for all": ("abc", "PPP", ["c:5", "abc:2x3x5"], ["(d1):5", "(d0, d1):6x5"]),
    "transposed": ("abc", "PPP", ["acb:2x5x3", "abc:2x3x5"], None),
    "transposed blocks": ("abc", "PPP", ["bca:3x5x2", "abc:2x3x5"], ["(d1, d0):15x2", "(d0, d1):2x15"]),
    "sums of rows": ("abc", "PPR", ["abc:2x3x5", "ab:2x3"], ["(d0, d1):6x5", "(d0):6"]),
    "sums of blocks": ("abc", "PRR", ["abc:2x3x5", "a:2"], ["(d0, d1):2x15", "(d0):2"]),
    "sums of columns": ("abc", "PRP", ["abc:2x3x5", "ac:2x5"], None),
    "dynamic": ("abc", "PPP", ["abc:?x3x5", "abc:?x3x5"], ["(d0):?", "(d0):?"]),
    "gaps between rows": ("ab", "PP", ["ab:3x4,strided<[8, 1], offset: 2>", "ab:3x4"], None),
    "gaps between blocks": (
        "abc",
        "PPP",
        ["abc:2x3x4,strided<[24, 4, 1], offset: ?>", "abc:2x3x4"],
        ["(d0, d1):2x12,strided<[24, 1], offset: ?>", "(d0, d1):2x12"],
    ),
    "unknown strides": ("ab", "PP", ["ab:3x4,strided<[?, 1]>", "ab:3x4"], None),
    "axis of one element": ("abc", "PPP", ["a0c:3x1x4", "abc:3x1x4"], ["(d0):12", "(d0):12"]),
    "the first of several": ("ac", "PP", ["a0c:3x2x4", "ac:3x4"], None),
    "one iteration": ("ab", "PP", ["ab:1x4", "ab:1x4"], None),
    "windows": ("abc", "PPR", ["a(b+c):2x7", "ab:2x5", "c:3"], None),
}


def module_of(loops: str, kinds: str, operands: list[str], body: str = "") -> str:
    def indices(text: str) -> str:
        named = text.replace("(b+c)", "w")
        return ", ".join({"0": "0", "w": "d1 + d2"}.get(each) or f"d{loops.index(each)}" for each in named)

    dims = ", ".join(f"d{i}" for i in range(len(loops)))
    maps, types = [], []
    for each in operands:
        text, _, kind = each.partition(":")
        shape, _, layout = kind.partition(",")
        maps.append(f"affine_map<({dims}) -> ({indices(text)})>")
        types.append(f"memref<{shape}xf32{', ' + layout if layout else ''}>")
    names = [f"%{i}" for i in range(len(operands))]
    given = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))
    iterators = ", ".join(f'"{ {"P": P, "R": R}[each] }"'.replace(" ", "") for each in kinds)
    values = ", ".join(f"%x{i}: f32" for i in range(len(operands)))
    return f"""func.func @main({given}) {{
        linalg.generic {{indexing_maps = [{", ".join(maps)}], iterator_types = [{iterators}]}}
            ins({", ".join(names[:-1])} : {", ".join(types[:-1])}) outs({names[-1]} : {types[-1]}) {{
        ^bb0({values}): {body} linalg.yield %x0 : f32 }}
        return }}"""


def collapsed(text: str) -> list[str]:
    context = new_context()
    load_dialects(context)
    module = ir.Module.parse(text, context)
    collapse_loops(module.operation)
    module.operation.verify()
    (op,) = operations(module.operation, ("linalg.generic",))
    maps = [
        str(ir.AffineMapAttr(each).value).partition(" -> ")[2] for each in ir.ArrayAttr(op.attributes["indexing_maps"])
    ]
    kinds = [str(value.type).removeprefix("memref<").removesuffix(">").replace("xf32", "") for value in op.operands]
    return [f"{indices}:{kind.replace(', strided', ',strided')}" for indices, kind in zip(maps, kinds, strict=True)]


@pytest.mark.parametrize("loops, kinds, operands, expected", CASES.values(), ids=CASES)
def test_loops(loops: str, kinds: str, operands: list[str], expected: list[str] | None) -> None:
    text = module_of(loops, kinds, operands)
    found = collapsed(text)
    if expected is None:
        assert all(f":{each.partition(':')[2]}" in now for each, now in zip(operands, found, strict=True))
    else:
        assert found == expected


def test_numbers_of_loops_are_kept() -> None:
    text = module_of("ab", "PP", ["ab:2x3", "ab:2x3"], "%i = linalg.index 1 : index")
    assert collapsed(text) == ["(d0, d1):2x3", "(d0, d1):2x3"]
