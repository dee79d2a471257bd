"""Every kernel, every mistake, and every other line that is right too."""

from __future__ import annotations

from tests.emulator.ordering import lanes, mbarriers, memory, others, proxies, shared, waits
from tests.emulator.ordering.model import Harmless, Kernel, Mistake

_PARTS = shared, lanes, memory, proxies, mbarriers, waits, others
KERNELS: dict[str, Kernel] = {name: kernel for part in _PARTS for name, kernel in part.KERNELS.items()}
MISTAKES: dict[str, Mistake] = {name: mistake for part in _PARTS for name, mistake in part.MISTAKES.items()}
HARMLESS: Harmless = {name: other for part in _PARTS for name, other in part.HARMLESS.items()}
CLASSES: dict[str, str] = {  # mistake -> what the tables that it is in are about
    name: (part.__doc__ or "").split("\n")[0].rstrip(".") for part in _PARTS for name in part.MISTAKES
}
