"""Child processes: one-shot isolation and long-lived workers."""
