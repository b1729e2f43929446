"""Objects as a library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fx_importer.errors import UsageError
from fx_importer.native.compilers import find_compiler
from fx_importer.native.library import Library
from fx_importer.native.program import program
from fx_importer.native.targets import NativeTarget
from fx_importer.native.toolchain import compile_file, flags, run_tool

_SHARED = {"linux": ".so", "freebsd": ".so", "macos": ".dylib", "windows": ".dll"}


def shared_suffix(target: NativeTarget) -> str | None:
    """Return the suffix of shared libraries; None where there are none."""
    return _SHARED.get(target.system)


def link(library: Library, kind: str, objects: Sequence[Path], folder: Path) -> Path:
    """Return the file of ``kind`` that has the ``objects``."""
    target, name = library.target, library.name
    inputs = [str(object_) for object_ in objects]
    if kind == "shared":
        output = folder / f"lib{name}{shared_suffix(target)}"
        if target.system == "linux":
            _link_for_linux(library, inputs, output)
        else:
            run_tool(target, ["cc", *flags(target), "-shared", "-s", *inputs, "-o", str(output)], folder)
        return output
    if kind == "static":
        run_tool(target, ["ar", "rcsD", str(output := folder / f"lib{name}.a"), *inputs], folder)
        return output
    if kind == "object":
        linker = {"wasm32": "wasm-ld"}.get(target.architecture, "ld.lld")
        run_tool(target, [linker, "-r", *inputs, "-o", str(output := folder / f"{name}_all.o")], folder)
        return output.rename(folder / f"{name}.o")
    if kind == "executable":
        return _link_program(library, inputs, folder)
    raise UsageError(f"kind='{kind}' is not written by the linker")


def _link_program(library: Library, inputs: Sequence[str], folder: Path) -> Path:
    """Link a program that reads and writes raw tensors, with all that it needs.

    On x86-64, the program and its C library run on every processor, so that they can report one that lacks
    instructions of the model's code.
    """
    target = library.target if library.blas else _static(library.target)
    if target.architecture == "x86_64":
        target = replace(target, cpu="x86_64")
    (source := folder / f"{library.name}_program.c").write_text(program(library), encoding="utf-8")
    compile_file(target, source, made := source.with_suffix(".o"))
    output = folder / f"{library.name}{'.wasm' if target.architecture == 'wasm32' else ''}"
    blas = [] if library.blas is None else [*library.blas.link_options, "-Wl,--allow-shlib-undefined", _BESIDE]
    run_tool(target, ["cc", *flags(target), "-s", *inputs, str(made), *blas, "-lm", "-o", str(output)], folder)
    return output


_BESIDE = "-Wl,-rpath,$ORIGIN"
"""The option that has a BLAS looked for in the folder of what is linked with it, first."""


def _static(target: NativeTarget) -> NativeTarget:
    """Return ``target`` with musl as its C library, which Zig links statically."""
    if target.system != "linux" or not find_compiler().is_zig:
        return target
    return replace(target, triple=f"{target.architecture}-linux-musl{'eabihf' * target.architecture.startswith('arm')}")


def _link_for_linux(library: Library, inputs: Sequence[str], output: Path) -> None:
    """Link a shared library that needs libm and libc by their names, of any version.

    Zig's own link builds its stubs of the C library first, 20 s for each target. Symbols of neither libm nor libc,
    which are of the compiler's runtime, take that way.
    """
    folder, target = output.parent, library.target
    (folder / "exports.map").write_text(f"{{ global: {'; '.join(exports(library))}; local: *; }};\n")
    options = [f"--version-script={folder / 'exports.map'}", "--gc-sections", "--as-needed", "-s"]
    blas = library.blas.link_options if library.blas else []
    stubs: list[str] = []
    libraries = _LIBRARIES | _OPENMP if target.processor.threads else _LIBRARIES
    for name, functions in libraries.items():
        source = folder / f"{name}.S"
        source.write_text(
            "".join(f".globl {function}\n.type {function},%function\n{function}:\n" for function in functions.split())
        )
        compile_file(target, source, made := source.with_suffix(".stub.o"))
        run_tool(target, ["ld.lld", "-shared", "-soname", name, str(made), "-o", str(folder / name)], folder)
        stubs.append(str(folder / name))
    try:
        run_tool(
            target,
            [
                *("ld.lld", "-shared", *options, "-z", "defs", "-soname", output.name, *inputs, *stubs, *blas),
                *(["-rpath", "$ORIGIN"] if blas else []),
                *("-o", str(output)),
            ],
            folder,
        )
    except RuntimeError:
        passed = [f"-Wl,{option}" for option in options[:-1]]
        run_tool(
            target,
            [
                "cc",
                *flags(target),
                "-shared",
                "-s",
                *passed,
                f"-Wl,-soname,{output.name}",
                *inputs,
                *stubs[len(_LIBRARIES) :],
                *([*blas, _BESIDE] if blas else []),
                "-lm",
                "-o",
                str(output),
            ],
            folder,
        )


def _floats(names: str) -> str:
    return " ".join(f"{name} {name}f" for name in names.split())


_LIBRARIES = {
    "libm.so.6": _floats(
        "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor "
        "fma fmax fmin fmod hypot ldexp lgamma log log10 log1p log2 nearbyint pow remainder rint round roundeven "
        "scalbn sin sincos sinh sqrt tan tanh tgamma trunc"
    ),
    "libc.so.6": "memcpy memmove memset memcmp open close pread fstat mmap munmap",
}
"""The functions of the C library that code may call."""
_OPENMP = {"libgomp.so.1": "GOMP_parallel omp_get_thread_num omp_get_num_threads"}


def exports(library: Library) -> list[str]:
    """Return the names of the functions of the header that are not inline."""
    names = ["status_text", "check_processor"]
    if library.state:
        names += ["create", "reset", "destroy"]
    if library.takes_weights and library.weights == "file":
        names += ["map_weights", "unmap_weights"]
    for entry in library.entries:
        names += [entry.c_name, *[f"{entry.c_name}_arena_bytes"] * bool(entry.dimensions)]
    return [f"{library.name}_{name}" for name in names]
