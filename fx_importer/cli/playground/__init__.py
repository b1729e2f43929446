"""``fx-importer serve``: a local page on which a model is edited, and its explorer shown after each edit."""
