#include "arm_nnfunctions.h"
#include <stdio.h> /* as some files of CMSIS-NN do, which call none of its functions */

/* Rescale a sum, with one rounding upwards from the middle, or, by default, with two: of the product with the
 * multiplier, and of the shift, away from zero. */
static int32_t rescaled(int32_t sum, int32_t multiplier, int32_t shift) {
#ifdef CMSIS_NN_USE_SINGLE_ROUNDING
  int32_t doubled = (int32_t)((sum * (int64_t)multiplier) >> (30 - shift));
  return (doubled + 1) >> 1;
#else
  int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
  int32_t high = (int32_t)(((int64_t)(sum * (1 << left)) * multiplier + (1 << 30)) >> 31);
  int32_t mask = (int32_t)((1u << right) - 1), rest = high & mask;
  return (high >> right) + (rest > (mask >> 1) + (high < 0));
#endif
}

int8_t arm_nn_test_result(int32_t sum, int32_t multiplier, int32_t shift, int32_t offset,
                          const cmsis_nn_activation *range) {
  int32_t result = rescaled(sum, multiplier, shift) + offset;
  return (int8_t)(result < range->min ? range->min : result > range->max ? range->max : result);
}
