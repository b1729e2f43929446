#include "arm_nnfunctions.h"

/* The scratch memory of a processor with DSP, which needs none for some sizes. */
int32_t arm_depthwise_conv_wrapper_s8_get_buffer_size(
    const cmsis_nn_dw_conv_params *params, const cmsis_nn_dims *input_dims, const cmsis_nn_dims *filter_dims,
    const cmsis_nn_dims *output_dims) {
  (void)output_dims;
  return params->ch_mult == 1 ? 2 * filter_dims->h * filter_dims->w * input_dims->c : 0;
}

arm_cmsis_nn_status arm_depthwise_conv_wrapper_s8(
    const cmsis_nn_context *context, const cmsis_nn_dw_conv_params *params,
    const cmsis_nn_per_channel_quant_params *scales, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter_dims, const int8_t *filter, const cmsis_nn_dims *bias_dims, const int32_t *bias,
    const cmsis_nn_dims *output_dims, int8_t *output) {
  int32_t scratch = arm_depthwise_conv_wrapper_s8_get_buffer_size(params, input_dims, filter_dims, output_dims);
  if (context->size < scratch || filter_dims->n != 1 || filter_dims->c != output_dims->c ||
      bias_dims->c != output_dims->c || input_dims->c * params->ch_mult != output_dims->c)
    return ARM_CMSIS_NN_ARG_ERROR;
  memset(context->buf, 0x55, (size_t)scratch);
  for (int32_t n = 0; n < output_dims->n; n++)
    for (int32_t y = 0; y < output_dims->h; y++)
      for (int32_t x = 0; x < output_dims->w; x++)
        for (int32_t out = 0; out < output_dims->c; out++) {
          int32_t sum = bias[out];
          for (int32_t i = 0; i < filter_dims->h; i++)
            for (int32_t j = 0; j < filter_dims->w; j++) {
              int32_t row = y * params->stride.h - params->padding.h + i * params->dilation.h;
              int32_t column = x * params->stride.w - params->padding.w + j * params->dilation.w;
              if (row < 0 || row >= input_dims->h || column < 0 || column >= input_dims->w) continue;
              int32_t place = ((n * input_dims->h + row) * input_dims->w + column) * input_dims->c;
              sum += (input[place + out / params->ch_mult] + params->input_offset) *
                     filter[(i * filter_dims->w + j) * filter_dims->c + out];
            }
          *output++ = arm_nn_test_result(sum, scales->multiplier[out], scales->shift[out], params->output_offset,
                                         &params->activation);
        }
  return ARM_CMSIS_NN_SUCCESS;
}
