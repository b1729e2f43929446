"""The decomposition table of each output type."""
