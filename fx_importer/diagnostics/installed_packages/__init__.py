"""The packages that are installed here: their versions, other copies of MLIR, and errors of imports that do not fit."""
