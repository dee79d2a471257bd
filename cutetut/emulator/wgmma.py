"""WGMMA's operand layouts, where the notebooks recorded before the rooms look for them."""

from .units.wgmma import operand_offsets as operand_offsets
