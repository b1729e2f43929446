"""The check that a processor has the instructions of the code."""

from __future__ import annotations

from fx_importer.native.library import Library

_FEATURES = {
    (1, 0, 2): "SSE3:0 PCLMUL:1 SSSE3:9 FMA:12 SSE4_1:19 SSE4_2:20 MOVBE:22 POPCNT:23 AES:25 AVX:28 F16C:29 RDRND:30",
    (7, 0, 1): "FSGSBASE:0 BMI:3 AVX2:5 BMI2:8 AVX512F:16 AVX512DQ:17 RDSEED:18 ADX:19 AVX512IFMA:21 AVX512CD:28 "
    "SHA:29 AVX512BW:30 AVX512VL:31",
    (7, 0, 2): "AVX512VBMI:1 AVX512VBMI2:6 GFNI:8 VAES:9 VPCLMULQDQ:10 AVX512VNNI:11 AVX512BITALG:12 "
    "AVX512VPOPCNTDQ:14",
    (7, 0, 3): "AVX512VP2INTERSECT:8 AMX_BF16:22 AVX512FP16:23 AMX_TILE:24 AMX_INT8:25",
    (7, 1, 0): "AVXVNNI:4 AVX512BF16:5 AVXIFMA:23",
    (0x80000001, 0, 2): "LZCNT:5 SSE4A:6 XOP:11 FMA4:16 TBM:21",
}
"""By leaf, subleaf and word of cpuid's answer: the features that compilers have macros for, and their bits."""
_X86 = """
#define FX_PLAIN __attribute__((noinline, target("no-sse3,no-bmi,no-bmi2,no-lzcnt,no-popcnt,no-movbe")))

FX_PLAIN static void fx_cpuid(unsigned leaf, unsigned part, unsigned *words) {
  __asm__ volatile("cpuid" : "=a"(words[0]), "=b"(words[1]), "=c"(words[2]), "=d"(words[3]) : "a"(leaf), "c"(part));
}

FX_PLAIN static bool fx_has_bits(unsigned leaf, unsigned part, int word, unsigned mask) {
  unsigned words[4];
  if (!mask) return true;
  fx_cpuid(leaf & 0x80000000u, 0, words);
  if (words[0] < leaf) return false;
  fx_cpuid(leaf, part, words);
  return (words[word] & mask) == mask;
}

FX_PLAIN static bool fx_saves_registers(void) {
#if defined(__AVX512F__)
  const unsigned mask = 0xe6;
#elif defined(__AVX__)
  const unsigned mask = 6;
#else
  const unsigned mask = 0;
#endif
  unsigned saved, high;
  if (!mask) return true;
  if (!fx_has_bits(1, 0, 2, 1u << 27)) return false;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  return (saved & mask) == mask;
}
"""


def processor_check(library: Library) -> str:
    """Return the function that says whether this processor runs the code: of x86-64; others have the baseline.

    The macros of the compiler tell which features the target has.
    """
    name, ok, error = library.name, library.macro("OK"), library.macro("ERROR_PROCESSOR")
    if library.target.architecture != "x86_64":
        return f"int {name}_check_processor(void) {{ return {ok}; }}\n"
    lines = [_X86, f"FX_PLAIN int {name}_check_processor(void) {{"]
    for number, bits in enumerate(_FEATURES.values()):
        lines.append(f"  const unsigned mask_{number} = 0")
        for feature in bits.split():
            macro, _, bit = feature.partition(":")
            lines += [f"#ifdef __{macro}__", f"    | 1u << {bit}", "#endif"]
        lines.append("    ;")
    for number, (leaf, part, word) in enumerate(_FEATURES):
        lines.append(f"  if (!fx_has_bits({leaf:#x}u, {part}, {word}, mask_{number})) return {error};")
    return "\n".join([*lines, f"  return fx_saves_registers() ? {ok} : {error};", "}", ""])
