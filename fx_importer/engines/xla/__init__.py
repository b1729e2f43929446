"""XLA, through jax and jaxlib."""
