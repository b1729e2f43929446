"""The result of a lowering: one record, with what is done with it: run, verify, save, report."""
