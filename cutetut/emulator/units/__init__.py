"""The units of the hardware, a file each; importing one registers its opcodes, its state and its checks.

A unit knows the machine and the checks, and no other part of the emulator names a unit.
"""

import functools
import importlib
import pkgutil


@functools.cache  # every launch asks for it, and to look through the folder takes a fifth of a small one's time
def load_all() -> None:
    """Import every unit, which fills the opcode table."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
