"""Functions of C that emitted expressions call. A source has those that it calls."""

from __future__ import annotations

import re

_INTEGERS = {8: "int8_t", 16: "int16_t", 32: "int32_t", 64: "int64_t"}


def _for_widths(template: str) -> dict[str, str]:
    """Return functions by name, for each width N of integers, from a template of lines ``TYPE NAME_N(...) {...}``."""
    functions: dict[str, str] = {}
    for width in _INTEGERS:
        text = template.replace("uN", f"uint{width}_t").replace("sN", f"int{width}_t").replace("MIN", f"INT{width}_MIN")
        text = text.replace("MAX", f"INT{width}_MAX").replace("_N", f"_{width}").replace("WIDTH", str(width))
        name = re.search(r"(fx_\w+)\(", text)
        assert name is not None
        functions[name[1]] = f"static inline {text}\n"
    return functions


_TEMPLATES = (
    "sN fx_add_N(sN a, sN b) { return (sN)((uN)a + (uN)b); }",
    "sN fx_sub_N(sN a, sN b) { return (sN)((uN)a - (uN)b); }",
    "sN fx_mul_N(sN a, sN b) { return (sN)(uN)((uint64_t)(uN)a * (uint64_t)(uN)b); }",
    "sN fx_max_N(sN a, sN b) { return a > b ? a : b; }",
    "sN fx_min_N(sN a, sN b) { return a < b ? a : b; }",
    "sN fx_umax_N(sN a, sN b) { return (uN)a > (uN)b ? a : b; }",
    "sN fx_umin_N(sN a, sN b) { return (uN)a < (uN)b ? a : b; }",
    "sN fx_div_N(sN a, sN b) { return b == 0 ? 0 : b == -1 ? (sN)(0u - (uN)a) : (sN)(a / b); }",
    "sN fx_rem_N(sN a, sN b) { return b == 0 || b == -1 ? 0 : (sN)(a % b); }",
    "sN fx_udiv_N(sN a, sN b) { return b == 0 ? 0 : (sN)((uN)a / (uN)b); }",
    "sN fx_urem_N(sN a, sN b) { return b == 0 ? 0 : (sN)((uN)a % (uN)b); }",
    "sN fx_shl_N(sN a, sN b) { return (uN)b < WIDTH ? (sN)(uN)((uint64_t)(uN)a << (uN)b) : 0; }",
    "sN fx_sar_N(sN a, sN b) {\n"
    "  uN s = (uN)b < WIDTH ? (uN)b : WIDTH - 1;\n"
    "  return (sN)(a < 0 ? ~(~a >> s) : a >> s);\n}",
    "sN fx_shr_N(sN a, sN b) { return (uN)b < WIDTH ? (sN)(uN)((uN)a >> (uN)b) : 0; }",
    "sN fx_floor_div_N(sN a, sN b) { return b == 0 ? 0 : b == -1 ? (sN)(0u - (uN)a) : (sN)(a / b - (a % b != 0 && "
    "(a < 0) != (b < 0))); }",
    "sN fx_ceil_div_N(sN a, sN b) { return b == 0 ? 0 : b == -1 ? (sN)(0u - (uN)a) : (sN)(a / b + (a % b != 0 && "
    "(a < 0) == (b < 0))); }",
    "sN fx_uceil_div_N(sN a, sN b) { return b == 0 ? 0 : (sN)((uN)a / (uN)b + ((uN)a % (uN)b != 0)); }",
    "sN fx_ctlz_N(sN a) {\n"
    "  uN u = (uN)a; sN n = 0;\n"
    "  while (n < WIDTH && !(u >> (WIDTH - 1) & 1)) { u = (uN)(u << 1); ++n; }\n"
    "  return n;\n}",
    "sN fx_cttz_N(sN a) {\n"
    "  uN u = (uN)a; sN n = 0;\n"
    "  while (n < WIDTH && !(u & 1)) { u = (uN)(u >> 1); ++n; }\n"
    "  return n;\n}",
    "sN fx_ctpop_N(sN a) {\n  uN u = (uN)a; sN n = 0;\n  for (; u; u = (uN)(u & (u - 1u))) ++n;\n  return n;\n}",
    "sN fx_ipow_N(sN a, sN b) {\n"
    "  uN r = 1, x = (uN)a;\n"
    "  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n"
    "  for (; b; b = (sN)(b >> 1)) {\n"
    "    if (b & 1) r = (uN)((uint64_t)r * x);\n"
    "    x = (uN)((uint64_t)x * x);\n  }\n"
    "  return (sN)r;\n}",
)


def _floats() -> dict[str, str]:
    functions: dict[str, str] = {}
    for kind, suffix, bits in (("float", "f", 32), ("double", "", 64)):
        end = f"{bits}"
        functions |= {
            f"fx_maximum_{end}": f"static inline {kind} fx_maximum_{end}({kind} a, {kind} b) {{ /* NaN if one is */\n"
            f"  return a > b ? a : a < b ? b : a == b ? (signbit(a) ? b : a) : a + b;\n}}\n",
            f"fx_minimum_{end}": f"static inline {kind} fx_minimum_{end}({kind} a, {kind} b) {{ /* NaN if one is */\n"
            f"  return a < b ? a : a > b ? b : a == b ? (signbit(a) ? a : b) : a + b;\n}}\n",
            f"fx_round_even_{end}": f"static inline {kind} fx_round_even_{end}({kind} a) {{\n"
            f"  {kind} r = round{suffix}(a);\n"
            f"  if (fabs{suffix}(a - trunc{suffix}(a)) == 0.5{suffix}) r = 2 * round{suffix}(a / 2);\n"
            f"  return copysign{suffix}(r, a);\n}}\n",
        }
        for width in _INTEGERS:
            # Conversions that do not fit saturate, and NaN is 0. 2^(width-1) is a number of both types.
            above = f"{2 ** (width - 1)}.0{suffix}"
            functions[f"fx_f{bits}_to_s{width}"] = (
                f"static inline int{width}_t fx_f{bits}_to_s{width}({kind} a) {{ /* saturates; NaN is 0 */\n"
                f"  return a >= {above} ? INT{width}_MAX : a > -{above} ? (int{width}_t)a : a <= -{above} ? "
                f"INT{width}_MIN : 0;\n}}\n"
            )
            functions[f"fx_f{bits}_to_u{width}"] = (
                f"static inline int{width}_t fx_f{bits}_to_u{width}({kind} a) {{ /* saturates; NaN is 0 */\n"
                f"  return a >= 2 * {above} ? -1 : a > -1 ? (int{width}_t)(uint{width}_t)a : 0;\n}}\n"
            )
        functions[f"fx_bits_to_f{bits}"] = (
            f"static inline {kind} fx_bits_to_f{bits}(int{bits}_t a) {{\n  {kind} r;\n  memcpy(&r, &a, sizeof r);\n"
            "  return r;\n}\n"
        )
        functions[f"fx_f{bits}_to_bits"] = (
            f"static inline int{bits}_t fx_f{bits}_to_bits({kind} a) {{\n  int{bits}_t r;\n"
            "  memcpy(&r, &a, sizeof r);\n  return r;\n}\n"
        )
    return functions


_HALF = {
    "fx_bf16_to_f32": """static inline float fx_bf16_to_f32(uint16_t a) {
  uint32_t bits = (uint32_t)a << 16;
  float r;
  memcpy(&r, &bits, sizeof r);
  return r;
}
""",
    "fx_f32_to_bf16": """static inline uint16_t fx_f32_to_bf16(float a) { /* to nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &a, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
""",
    "fx_f16_to_f32": """static inline float fx_f16_to_f32(uint16_t a) {
  uint32_t sign = (uint32_t)(a >> 15) << 31, exponent = a >> 10 & 31u, fraction = a & 1023u, bits;
  float r;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | fraction << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | fraction << 13;
  } else {
    r = (float)fraction * 0x1p-24f;
    return sign ? -r : r;
  }
  memcpy(&r, &bits, sizeof r);
  return r;
}
""",
    "fx_f32_to_f16": """static inline uint16_t fx_f32_to_f16(float a) { /* to nearest, ties to even */
  uint32_t bits, sign, magnitude;
  memcpy(&bits, &a, sizeof bits);
  sign = bits >> 16 & 0x8000u;
  magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) { /* subnormal: the sum is a number of 2^-24 */
    float shifted;
    memcpy(&shifted, &magnitude, sizeof shifted);
    shifted += 0.5f;
    memcpy(&magnitude, &shifted, sizeof magnitude);
    return (uint16_t)(sign | (magnitude - 0x3f000000u));
  }
  magnitude += 0xc8000fffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | magnitude >> 13);
}
""",
    "fx_index": """static inline ptrdiff_t fx_index(int64_t a) { /* -1, out of all bounds, if it does not fit */
  return a >= PTRDIFF_MIN && a <= PTRDIFF_MAX ? (ptrdiff_t)a : -1;
}
""",
    "fx_index_floor_div": """static inline ptrdiff_t fx_index_floor_div(ptrdiff_t a, ptrdiff_t b) {
  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
""",
    "fx_index_ceil_div": """static inline ptrdiff_t fx_index_ceil_div(ptrdiff_t a, ptrdiff_t b) {
  return b == 0 ? 0 : a / b + (a % b != 0 && (a < 0) == (b < 0));
}
""",
}
FUNCTIONS: dict[str, str] = {
    **{name: text for template in _TEMPLATES for name, text in _for_widths(template).items()},
    **_floats(),
    **_HALF,
}
"""The definition of each function, by name."""
_CALL = re.compile(r"\bfx_\w+(?=\()")


def definitions(source: str) -> str:
    """Return the functions of `FUNCTIONS` that ``source`` calls."""
    names = dict.fromkeys(name for name in _CALL.findall(source) if name in FUNCTIONS)
    return "\n".join(FUNCTIONS[name] for name in FUNCTIONS if name in names)
