/* Listens to the clips of clips.h on a Cortex-M55, by the model in spotter.c, and prints the words; see build.py. */
#include <stdint.h>
#include <string.h>

#include "spotter.h"
#include "clips.h"

extern unsigned char stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];
_Alignas(64) static unsigned char arena[SPOTTER_RUN_ARENA_BYTES];

/* The debugger's calls, which QEMU answers. A product would write to its UART. */
static int semihost(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static void print(const char *text) { semihost(4, text); }

static void listen(void) {
  for (unsigned clip = 0; clip < sizeof clips / sizeof *clips; ++clip) {
    int8_t scores[SPOTTER_RUN_OUTPUT_COUNT];
    int status = spotter_run(clips[clip], scores, arena, sizeof arena);
    if (status != SPOTTER_OK) {
      print(spotter_status_text(status));
      return;
    }
    unsigned best = 0;
    for (unsigned word = 1; word < SPOTTER_RUN_OUTPUT_COUNT; ++word) {
      if (scores[word] > scores[best]) best = word;
    }
    print(clip ? " " : "");
    print(words[best]);
  }
  print("\n");
}

void reset(void) {
  *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* CPACR: the floating-point unit and Helium */
  __asm__ volatile("dsb\nisb");
  memcpy(data_start, data_load, (size_t)(data_end - data_start));
  memset(bss_start, 0, (size_t)(bss_end - bss_start));
  listen();
  semihost(0x18, (const void *)0x20026); /* the program ends */
  for (;;) {
  }
}

static void hang(void) {
  for (;;) {
  }
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (const void *)reset, (const void *)hang, (const void *)hang, (const void *)hang, (const void *)hang,
};
