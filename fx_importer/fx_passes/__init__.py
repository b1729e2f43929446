"""FX passes: from exported programs to the normal form that the importer reads, one pass a file."""
