"""Emulation of dtypes, ranks and operands that a target lacks, in one file or folder per concern.

A rule here returns ``NotImplemented`` for arguments that need no emulation, so that the operator's own rule applies,
which is in the file of its family.
"""
