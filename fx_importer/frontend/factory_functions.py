"""Functions of torch that take sizes as numbers only, with equal expressions of dynamic sizes."""

WITH_DYNAMIC_SIZES = {
    "linspace": "start + (end - start) / (n - 1) * torch.arange(n)",
    "logspace": "base ** (start + (end - start) / (n - 1) * torch.arange(n))",
    "hann_window": "0.5 - 0.5 * torch.cos(2 * torch.pi / n * torch.arange(n))",
    "hamming_window": "0.54 - 0.46 * torch.cos(2 * torch.pi / n * torch.arange(n))",
    "bartlett_window": "1 - torch.abs(2 / n * torch.arange(n) - 1)",
    "blackman_window": (
        "0.42 - 0.5 * torch.cos(2 * torch.pi / n * torch.arange(n))"
        " + 0.08 * torch.cos(4 * torch.pi / n * torch.arange(n))"
    ),
    "kaiser_window": (
        "torch.i0(12 * torch.sqrt(1 - (2 / n * torch.arange(n) - 1) ** 2)) / torch.i0(torch.tensor(12.0))"
    ),
    "tril_indices": "torch.ones(n, m).tril().nonzero().T",
    "triu_indices": "torch.ones(n, m).triu().nonzero().T",
    "fft_fftfreq": "(torch.arange(n) - n * (torch.arange(n) >= (n + 1) // 2)) / n",
    "fft_rfftfreq": "torch.arange(n // 2 + 1) / n",
    "vander": "torch.flip(x[:, None] ** torch.arange(n), [1])",
}
"""Expressions by function. ``n`` is the dynamic size, and ``m`` another."""
