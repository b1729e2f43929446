"""The commands of ``fx-importer``, one file each."""
