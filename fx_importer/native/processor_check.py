"""The check that a processor has the instructions of the code."""

from __future__ import annotations

from fx_importer.native.library import Library

_X86 = """
static void fx_cpuid(unsigned leaf, unsigned *words) {
  __asm__ volatile("cpuid" : "=a"(words[0]), "=b"(words[1]), "=c"(words[2]), "=d"(words[3]) : "a"(leaf), "c"(0));
}

static bool fx_has(void) {
  unsigned one[4], seven[4], saved = 0, high;
  fx_cpuid(1, one);
  fx_cpuid(7, seven);
  if ((one[2] & MASK_ONE) != MASK_ONE || (seven[1] & MASK_SEVEN) != MASK_SEVEN) return false;
  if (!MASK_SAVED) return true;
  if (!(one[2] >> 27 & 1)) return false;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  return (saved & MASK_SAVED) == MASK_SAVED;
}
"""
_SSE = 1 << 0 | 1 << 9 | 1 << 19 | 1 << 20 | 1 << 23  # SSE3, SSSE3, SSE4.1, SSE4.2, POPCNT
_AVX = _SSE | 1 << 12 | 1 << 22 | 1 << 28 | 1 << 29  # FMA, MOVBE, AVX, F16C
_AVX2 = 1 << 3 | 1 << 5 | 1 << 8  # BMI1, AVX2, BMI2
_AVX512 = _AVX2 | 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31  # F, DQ, CD, BW, VL
_MASKS = {"x86_64_v2": (_SSE, 0, 0), "x86_64_v3": (_AVX, _AVX2, 6), "x86_64_v4": (_AVX, _AVX512, 0xE6)}
_LANES = {4: "x86_64_v2", 8: "x86_64_v3", 16: "x86_64_v4"}


def processor_check(library: Library) -> str:
    """Return the function that says whether this processor runs the code: of x86-64; others have the baseline."""
    target, name = library.target, library.name
    if target.architecture != "x86_64":
        return f"int {name}_check_processor(void) {{ return {library.macro('OK')}; }}\n"
    level = target.cpu if target.cpu in _MASKS else _LANES.get(target.processor.lanes, "x86_64_v2")
    masks = dict(zip(("MASK_ONE", "MASK_SEVEN", "MASK_SAVED"), _MASKS[level], strict=True))
    source = _X86
    for macro, value in masks.items():
        source = source.replace(macro, f"{value:#x}u")
    return (
        f"{source}\nint {name}_check_processor(void) {{\n"
        f"  return fx_has() ? {library.macro('OK')} : {library.macro('ERROR_PROCESSOR')};\n}}\n"
    )
