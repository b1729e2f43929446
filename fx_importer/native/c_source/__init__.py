"""C source of a module in loops over memrefs: C99 that depends on libm alone."""
