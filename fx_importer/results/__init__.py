"""The result of a lowering: one record, and the functions that run, verify, save and report it."""
