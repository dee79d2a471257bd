"""What kinds of instructions there are for those who follow values and loops through a kernel's text.

The units say it of theirs when they register them (machine/opcodes.py); of an instruction of no kind nothing is known.
"""

from __future__ import annotations

from enum import Enum, auto

from ..findings import mnemonic_of
from .syntax import Instruction


class Effect(Enum):
    """What executing an instruction does."""

    COMPUTES = auto()  # its results follow from its operands, and it changes nothing else
    QUIET = auto()  # nothing that another thread can see
    LOADS = auto()  # the values of registers, from memory
    STORES = auto()
    SENDS = auto()  # it stores later
    UPDATES = auto()  # an atomic operation that gives the old value
    ASKS = auto()  # whether something has happened elsewhere


_effects: dict[str, Effect] = {}  # by mnemonic


def describe(mnemonic: str, effect: Effect) -> None:
    """A unit registers an instruction that has this effect."""
    _effects[mnemonic] = effect


def effect_of(inst: Instruction) -> Effect | None:
    """What the mnemonic that an instruction begins with is said to do, where it is said."""
    return _effects.get(mnemonic_of(inst.opcode))
