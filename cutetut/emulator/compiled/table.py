"""Which instructions have machine code: from mnemonic and type to a builder of the code for the modifiers.

The tables are filled by integers, bits, floats and halves, as the tables of the arithmetic units are; whatever is
not in them stays with numpy.
"""

from __future__ import annotations

from collections.abc import Callable

from ..machine.arithmetic import Modifiers
from .code import Emit

Builder = Callable[[str, str, Modifiers], Emit | None]  # None: these modifiers are left to numpy

BUILDERS: dict[tuple[str, str], Builder] = {}


def emits(mnemonics: str, types: str) -> Callable[[Builder], Builder]:
    """Register a builder for every pair of the blank-separated names."""

    def register(build: Builder) -> Builder:
        for mnemonic in mnemonics.split():
            for kind in types.split():
                if (mnemonic, kind) in BUILDERS:
                    raise ValueError(f"{mnemonic}.{kind} has two builders")
                BUILDERS[mnemonic, kind] = build
        return build

    return register
