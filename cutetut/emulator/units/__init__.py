"""The units of the hardware, a file each; importing one registers its opcodes, its state and its checks.

A unit knows the machine and the checks, and no other part of the emulator names a unit.
"""

import importlib
import pkgutil


def load_all() -> None:
    """Import every unit, which fills the opcode table."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
