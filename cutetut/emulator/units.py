"""Importing the units fills the opcode table."""

from . import alu, atomics, barriers, control, loadstore, warp  # noqa: F401
