"""Importing the units fills the opcode table."""

from . import atomics, barriers, control, loadstore, warp  # noqa: F401
