"""Generic addresses: one space around the others (PTX ISA section 5.4); see memory.py for their windows."""

from __future__ import annotations

import numpy as np

from .access import Access
from .memory import LOCAL_WINDOW, SHARED_WINDOW, GlobalMemory, LocalMemory
from .shared import SharedMemory
from .threads import Selection, threads_of


class GenericMemory:
    """Generic addresses: the window of each thread's address decides the space."""

    def __init__(self, memory: GlobalMemory, shared: SharedMemory, local: LocalMemory) -> None:
        self.memory, self.shared, self.local = memory, shared, local

    def reach(self, address: np.ndarray, nbytes: int, threads: np.ndarray) -> np.ndarray:
        """Host addresses of generic addresses, without asking who else uses them."""
        return np.array([self.host_of(int(a), int(t), nbytes) for a, t in zip(address, threads, strict=True)])

    def host_of(self, address: int, thread: int, nbytes: int) -> int:
        """The host address of one generic address as one thread sees it, for something that it starts."""
        if address & SHARED_WINDOW:
            return self.shared.host_of(address - SHARED_WINDOW, thread, nbytes)
        if self.memory.allows(address, nbytes):
            return address
        one = np.array([thread])
        if address & LOCAL_WINDOW:
            return int(self.local.reach(np.array([address - LOCAL_WINDOW]), nbytes, one, False)[0])
        return int(self.memory.reach(np.array([address]), nbytes, one, False)[0])

    def locate(self, address: np.ndarray, sel: Selection, access: Access) -> np.ndarray:
        """Host addresses of generic addresses; raises what the space raises."""
        in_shared, in_local = (address & SHARED_WINDOW) != 0, (address & LOCAL_WINDOW) != 0
        if not in_shared.any() and not in_local.any():
            return self.memory.locate(address, sel, access)
        threads = threads_of(sel)
        host = np.empty_like(address)
        neither = ~(in_shared | in_local)
        for mask, space, window in (
            (in_shared, self.shared, SHARED_WINDOW),
            (in_local, self.local, LOCAL_WINDOW),
            (neither, self.memory, 0),
        ):
            if mask.any():
                host[mask] = space.locate(address[mask] - window, threads[mask], access)
        return host
