"""Machine code of Triton kernels."""
