"""Selections of elements by masks, whose number is known at run time only, in tensors of all elements and masks."""
