"""The units of the hardware, a file each; importing one registers its opcodes, its state and its checks.

A unit knows the machine, the checks, and machine code for what it does often.  It must not know who measures it or
what launches it.  Of the emulator only measure/ imports units: all else finds them in the tables that they fill.
"""

import functools
import importlib
import pkgutil


@functools.cache  # every launch asks for it, and to look through the folder takes a fifth of a small one's time
def load_all() -> None:
    """Import every unit, which fills the opcode table."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
