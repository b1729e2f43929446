"""Arm's Vela, the compiler of Ethos-U processors."""
