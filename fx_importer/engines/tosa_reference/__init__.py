"""Arm's reference model of TOSA."""
