"""The compilation driver, and its handling of unsupported operators."""
