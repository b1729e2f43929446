"""Checks of the installation and of its parts."""

from fx_importer.installation.checkup import Checkup, doctor

__all__ = ["Checkup", "doctor"]
