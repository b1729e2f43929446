"""The size of modules: what `benchmarks.ir_size` counts, in which programs, and its page."""
