"""The import path of ``torch_mlir.extras``."""
