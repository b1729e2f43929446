"""What ``fx-importer opt`` runs; it imports no torch."""
