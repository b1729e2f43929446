"""Reduction of failing programs to small ones with the same failure."""

from fx_importer.reduction.reducer import LowerAgain, Search
from fx_importer.reduction.reduction import Reduction, Step
from fx_importer.reduction.repro_script import Setting
from fx_importer.reduction.symptom import Kind, Symptom
from fx_importer.reduction.trials import Trials

__all__ = ["Kind", "LowerAgain", "Reduction", "Search", "Setting", "Step", "Symptom", "Trials"]
