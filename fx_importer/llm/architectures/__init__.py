"""The parts that differ by the architecture of a language model: attention, masks, caches and states."""
