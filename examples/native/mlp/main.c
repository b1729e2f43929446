/* Probabilities of the classifier. CMakeLists.txt builds it. */
#include "mlp.h"

#include <stdio.h>

int main(void) {
  static _Alignas(64) unsigned char arena[MLP_RUN_ARENA_BYTES];
  float input[MLP_RUN_INPUT_COUNT], output[MLP_RUN_OUTPUT_COUNT];
  for (int i = 0; i < MLP_RUN_INPUT_COUNT; ++i) input[i] = 1;
  int status = mlp_run(input, output, arena, sizeof arena);
  if (status != MLP_OK) {
    puts(mlp_status_text(status));
    return 1;
  }
  printf("%.4f %.4f %.4f %.4f\n", output[0], output[1], output[2], output[3]);
}
