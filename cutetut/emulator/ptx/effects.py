"""What kinds of instructions there are for those who follow values and loops through a kernel's text.

The units say it of theirs when they register them (machine/opcodes.py); of an instruction of no kind nothing is known.
"""

from __future__ import annotations

import functools
from enum import Enum, auto

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
    _of.cache_clear()


def effect_of(inst: Instruction) -> Effect | None:
    """What the longest mnemonic that an instruction begins with is said to do, where it is said."""
    return _of(inst.parts)


@functools.cache
def _of(parts: tuple[str, ...]) -> Effect | None:
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((_effects[name] for name in names if name in _effects), None)
