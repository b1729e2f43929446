"""Operators on int8 and int16 tensors, ``fx_importer_integer.*``, with TOSA's arithmetic in eager PyTorch."""
