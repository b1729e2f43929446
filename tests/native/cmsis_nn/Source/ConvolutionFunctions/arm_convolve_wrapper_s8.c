#include "arm_nnfunctions.h"

/* The scratch memory of a processor with DSP: two columns in 16 bits. */
int32_t arm_convolve_wrapper_s8_get_buffer_size(
    const cmsis_nn_conv_params *params, const cmsis_nn_dims *input_dims, const cmsis_nn_dims *filter_dims,
    const cmsis_nn_dims *output_dims) {
  (void)params;
  (void)output_dims;
  return 4 * filter_dims->h * filter_dims->w * input_dims->c;
}

arm_cmsis_nn_status arm_convolve_wrapper_s8(
    const cmsis_nn_context *context, const cmsis_nn_conv_params *params,
    const cmsis_nn_per_channel_quant_params *scales, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter_dims, const int8_t *filter, const cmsis_nn_dims *bias_dims, const int32_t *bias,
    const cmsis_nn_dims *output_dims, int8_t *output) {
  int32_t scratch = arm_convolve_wrapper_s8_get_buffer_size(params, input_dims, filter_dims, output_dims);
  if (context->buf == 0 || context->size < scratch || filter_dims->c != input_dims->c ||
      filter_dims->n != output_dims->c || bias_dims->c != output_dims->c || input_dims->n != output_dims->n)
    return ARM_CMSIS_NN_ARG_ERROR;
  memset(context->buf, 0x55, (size_t)scratch);
  for (int32_t n = 0; n < output_dims->n; n++)
    for (int32_t y = 0; y < output_dims->h; y++)
      for (int32_t x = 0; x < output_dims->w; x++)
        for (int32_t out = 0; out < output_dims->c; out++) {
          int32_t sum = bias[out];
          const int8_t *weights = filter + out * filter_dims->h * filter_dims->w * filter_dims->c;
          for (int32_t i = 0; i < filter_dims->h; i++)
            for (int32_t j = 0; j < filter_dims->w; j++) {
              int32_t row = y * params->stride.h - params->padding.h + i * params->dilation.h;
              int32_t column = x * params->stride.w - params->padding.w + j * params->dilation.w;
              if (row < 0 || row >= input_dims->h || column < 0 || column >= input_dims->w) continue;
              const int8_t *pixel =
                  input + ((n * input_dims->h + row) * input_dims->w + column) * input_dims->c;
              for (int32_t in = 0; in < input_dims->c; in++)
                sum += (pixel[in] + params->input_offset) * weights[(i * filter_dims->w + j) * filter_dims->c + in];
            }
          *output++ = arm_nn_test_result(sum, scales->multiplier[out], scales->shift[out], params->output_offset,
                                         &params->activation);
        }
  return ARM_CMSIS_NN_SUCCESS;
}
