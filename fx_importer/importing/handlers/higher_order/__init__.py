"""Higher-order operators: one file each."""
