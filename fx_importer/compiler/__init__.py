"""How a compilation runs: the driver, and what it does when an operator is unsupported."""
