"""The arguments and results of a function: from the signature of a program to the records of the manifest."""
