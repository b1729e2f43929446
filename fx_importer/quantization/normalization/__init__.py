"""Float programs before they are quantized: operators replaced by those that have integer forms."""
