"""C source of models on emulated Cortex-M processors: built by Arm's GCC, run by QEMU with semihosting."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fx_importer.native.abi import Value
from fx_importer.native.cmsis_nn import ROUNDING
from fx_importer.native.library import Library, inputs_of, outputs_of

COMPILER, EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
_NANOSECONDS_PER_TICK = 40
"""Of the SysTick timer of QEMU's MPS2 boards, 25 MHz. With ``-icount shift=0``, an instruction takes a nanosecond."""


@dataclass(frozen=True)
class Board:
    """A processor, and the board on which QEMU has it."""

    machine: str
    flags: tuple[str, ...]
    flash: tuple[int, int]
    """Address and bytes."""
    ram: tuple[int, int]


BOARDS: Mapping[str, Board] = {
    "cortex-m4": Board(
        "mps2-an386",
        ("-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        (0x00000000, 4 << 20),
        (0x20000000, 4 << 20),
    ),
    "cortex-m55": Board(
        "mps3-an547", ("-mcpu=cortex-m55", "-mfloat-abi=hard"), (0x00000000, 512 << 10), (0x01000000, 2 << 20)
    ),
}
_STARTUP = """#include <stdint.h>
#include <string.h>
#include "NAME.h"
#include "inputs.h"

extern unsigned char stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];
void reset(void);
static void hang(void) { for (;;) {} }
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
  stack_top, (const void *)reset, (const void *)hang, (const void *)hang, (const void *)hang, (const void *)hang,
};
static int semihost(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}
static void print(const char *text) { semihost(4, text); }
static void print_bytes(const char *name, const void *data, unsigned count) {
  static const char digits[] = "0123456789abcdef";
  const unsigned char *bytes = data;
  char hex[3] = {0};
  print(name);
  for (unsigned i = 0; i < count; ++i) {
    hex[0] = digits[bytes[i] >> 4];
    hex[1] = digits[bytes[i] & 15];
    print(hex);
  }
  print("\\n");
}
__attribute__((aligned(64))) static unsigned char arena[ARENA];
OUTPUTS
#define REGISTER(address) (*(volatile uint32_t *)(address))
void reset(void) {
  REGISTER(0xe000ed88) |= 0xfu << 20; /* CPACR: the floating-point unit */
  __asm__ volatile("dsb\\nisb");
  memcpy(data_start, data_load, (unsigned)(data_end - data_start));
  memset(bss_start, 0, (unsigned)(bss_end - bss_start));
  REGISTER(0xe000e014) = 0xffffff; /* SysTick: reload, value, control */
  REGISTER(0xe000e018) = 0;
  REGISTER(0xe000e010) = 5;
  uint32_t begin = REGISTER(0xe000e018);
  int status = NAME_run(CALL, arena, sizeof arena);
  uint32_t ticks = (begin - REGISTER(0xe000e018)) & 0xffffff;
  print_bytes("status ", &status, sizeof status);
  print_bytes("ticks ", &ticks, sizeof ticks);
PRINTS
  semihost(0x18, (void *)0x20026); /* SYS_EXIT, ADP_Stopped_ApplicationExit */
  for (;;) {}
}
"""
_LINKER = """ENTRY(reset)
MEMORY {{
  FLASH (rx) : ORIGIN = {flash[0]:#x}, LENGTH = {flash[1]}
  RAM (rwx) : ORIGIN = {ram[0]:#x}, LENGTH = {ram[1]}
}}
SECTIONS {{
  .text : {{ KEEP(*(.vectors)) *(.text*) }} > FLASH
  .rodata : {{ *(.rodata*) }} > FLASH
  .ARM.exidx : {{ *(.ARM.exidx*) }} > FLASH
  .data : {{ data_start = .; *(.data*) . = ALIGN(4); data_end = .; }} > RAM AT > FLASH
  data_load = LOADADDR(.data);
  .bss (NOLOAD) : {{ bss_start = .; *(.bss*) *(COMMON) . = ALIGN(4); bss_end = .; }} > RAM
  stack_top = ORIGIN(RAM) + LENGTH(RAM);
}}
"""


@dataclass(frozen=True)
class Run:
    """A call on the emulated processor."""

    status: int
    outputs: tuple[Tensor, ...]
    instructions: int
    """Of the call, to the next `_NANOSECONDS_PER_TICK`; it wraps after 671 million."""
    sections: Mapping[str, int]
    """The bytes of ``.text``, ``.rodata`` and others of the object of the model alone."""
    arena: int

    @property
    def flash(self) -> int:
        """The bytes of code and constants."""
        return sum(size for name, size in self.sections.items() if name.startswith((".text", ".rodata")))

    @property
    def ram(self) -> int:
        """The bytes of variables and of the arena."""
        return self.arena + sum(size for name, size in self.sections.items() if name.startswith((".data", ".bss")))


def missing_tools() -> list[str]:
    """Return the programs that are not installed."""
    return [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]


def run_on(cpu: str, library: Library, folder: Path, inputs: Sequence[Tensor], optimization: str = "-O2") -> Run:
    """Run ``main`` of the C source in ``folder``, of static sizes, on an emulated processor.

    What it calls of CMSIS-NN is compiled from its source.
    """
    board, entry, name = BOARDS[cpu], library.entries[0], library.name
    arrays = [_array(f"input_{i}", tensor) for i, tensor in enumerate(inputs)]
    assert len(arrays) == len(inputs_of(entry))
    (folder / "inputs.h").write_text("\n".join(arrays))
    outputs = outputs_of(entry)
    declared = [f"static {value.c_type} output_{i}[{_count(value)}];" for i, value in enumerate(outputs)]
    call = [*(f"input_{i}" for i in range(len(inputs))), *(f"output_{i}" for i in range(len(outputs)))]
    prints = [f'  print_bytes("output ", output_{i}, sizeof output_{i});' for i in range(len(outputs))]
    text = _STARTUP.replace("NAME", name).replace("ARENA", str(max(entry.arena, 1)))
    text = text.replace("OUTPUTS", "\n".join(declared)).replace("PRINTS", "\n".join(prints))
    (folder / "startup.c").write_text(text.replace("CALL", ", ".join(call)))
    (folder / "board.ld").write_text(_LINKER.format(flash=board.flash, ram=board.ram))
    options = [*board.flags, "-mthumb", optimization, "-std=c99", "-ffunction-sections", "-fdata-sections"]
    strict = ["-Wall", "-Wextra", "-Werror"]
    layers: list[str] = []
    if library.cmsis_nn is not None:
        options += [f"-D{ROUNDING}", f"-I{library.cmsis_nn.includes}"]
        layers = [str(path) for path in library.cmsis_nn.sources()]
    _run([COMPILER, *options, *strict, "-c", f"{name}.c", "-o", "model.o"], folder)
    link = ["-nostartfiles", "--specs=nosys.specs", "-T", "board.ld", "-Wl,--gc-sections", "-lm"]
    _run([COMPILER, *options, "-std=gnu99", "startup.c", "model.o", *layers, *link, "-o", "program.elf"], folder)
    emulator = [EMULATOR, "-M", board.machine, "-nographic", "-icount", "shift=0", "-kernel", "program.elf"]
    printed = _run([*emulator, "-semihosting-config", "enable=on,target=native"], folder, 600)
    values = [bytes.fromhex(line.split()[1]) for line in printed.splitlines() if line.count(" ") == 1]
    status, ticks, *results = values
    found = tuple(_tensor(value, data) for value, data in zip(outputs, results, strict=True))
    count = int.from_bytes(ticks, "little") * _NANOSECONDS_PER_TICK
    return Run(int.from_bytes(status, "little"), found, count, sections_of(folder / "model.o"), entry.arena)


def sections_of(path: Path) -> Mapping[str, int]:
    """Return the bytes of the sections of an object that are in memory, those of functions and arrays added up."""
    listed = _run(["arm-none-eabi-size", "-A", str(path)], path.parent)
    sections: dict[str, int] = {}
    for name, size in re.findall(r"^(\.(?:text|rodata|data|bss)\S*)\s+(\d+)", listed, re.MULTILINE):
        kind = "." + name.split(".")[1]
        sections[kind] = sections.get(kind, 0) + int(size)
    return sections


def _run(command: Sequence[str], folder: Path, seconds: int = 300) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed: {ran.stderr[-2000:]}")
    return ran.stdout + ran.stderr


def _array(name: str, tensor: Tensor) -> str:
    data = tensor.contiguous().view(torch.uint8).flatten().tolist()
    return f"static const union {{ unsigned char bytes[{len(data)}]; long long aligned; }} {name}_data = {{{{" + (
        ", ".join(map(str, data)) + f"}}}};\n#define {name} ((const void *){name}_data.bytes)\n"
    )


def _count(value: Value) -> int:
    assert value.shape is not None
    count = 1
    for size in value.shape:
        count *= int(size)
    return count


def _tensor(value: Value, data: bytes) -> Tensor:
    shape = [int(size) for size in value.shape or ()]
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, value.dtype)).reshape(shape)
