"""Arithmetic in machine code: what numpy computes for the arithmetic units, several times faster (see runs.py)."""
