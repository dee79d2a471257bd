"""The arithmetic units: integer, float, half, comparisons, moves, conversions; each fills the opcode table."""
