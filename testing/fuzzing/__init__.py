"""Random programs, compared with eager PyTorch on every output type: see `testing.fuzz`."""
