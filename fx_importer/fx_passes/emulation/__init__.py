"""FX passes that emulate dtypes and ranks; rules of single operators are in `decompositions/emulation/`."""
