"""The JIT: lowering of linalg to LLVM, kernels, memory, and compiled code."""
