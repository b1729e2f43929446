"""What is installed here, and what of it works."""

from fx_importer.installation.checkup import Checkup, doctor

__all__ = ["Checkup", "doctor"]
