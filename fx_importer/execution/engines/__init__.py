"""Backends that others wrote: IREE, XLA, StableHLO's interpreter and TOSA's reference model."""
