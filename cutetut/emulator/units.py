"""Importing the units fills the opcode table."""

from . import barriers, control, loadstore  # noqa: F401
