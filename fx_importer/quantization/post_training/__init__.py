"""Post-training quantization: the plan, calibration, and conversion by torchao's PT2E."""
