"""Quantization after training: what to quantize, calibration, and conversion by torchao's PT2E."""
