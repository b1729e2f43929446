"""Orders of axes and loops that engines run fast."""
