"""What differs by the architecture of a language model: its attention, its masks, and what its cache holds."""
