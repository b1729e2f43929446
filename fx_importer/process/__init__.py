"""Running code in other processes."""
