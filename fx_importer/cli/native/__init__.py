"""``fx-importer build``, and its arguments."""
