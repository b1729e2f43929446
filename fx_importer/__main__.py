"""``python -m fx_importer`` is ``fx-importer``."""

from fx_importer.cli import main

main()
