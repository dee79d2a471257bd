"""Memory: where an address of each state space lies, and what may be touched there.

Every space is a piece of this process's own memory: global memory is the tensors themselves,
shared and local memory are buffers of the machine.  A unit turns a PTX address into a *host
address* (`Space.locate`, which checks bounds, alignment and initialised bytes) and then reads or
writes through `HOST`, numpy views that span the whole address space of the process.

Generic addresses (PTX ISA section 5.4) use windows that no host allocation can reach.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import Misaligned, OutOfBounds
from ..numbers.rounding import UINT
from .opcodes import Selection

if TYPE_CHECKING:
    from .shared import SharedMemory

SHARED_WINDOW = 1 << 62
LOCAL_WINDOW = 1 << 61
SHARED_BASE = 1024  # the first KiB of a CTA's shared window is reserved on sm_90 (seen on an H200)
SHARED_LIMIT = 227 * 1024  # bytes of shared memory one CTA may use on sm_90

_ORIGIN = 64  # the host views start here, because an array may not start at address 0


class _AddressSpace:
    def __init__(self, dtype: type) -> None:
        n = np.dtype(dtype).itemsize
        self.__array_interface__ = {
            "shape": ((1 << 47) // n,),
            "typestr": np.dtype(dtype).str,
            "data": (_ORIGIN, False),
            "version": 3,
        }


HOST: dict[int, np.ndarray] = {n: np.asarray(_AddressSpace(t)) for n, t in UINT.items()}
CHUNKS: np.ndarray = np.asarray(_AddressSpace(np.complex128))  # the same by 16 bytes, which are only moved
SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}


def index(host: np.ndarray, nbytes: int) -> np.ndarray:
    """Positions in HOST[nbytes] of host addresses that are multiples of nbytes."""
    return (host - _ORIGIN) >> SHIFT[nbytes]


def chunk_index(host: int) -> int:
    """Position in CHUNKS of a host address that is a multiple of 16."""
    return host - _ORIGIN >> 4


def read_bytes(address: int, nbytes: int) -> bytes:
    """Copy host memory that the caller knows to be valid."""
    return ctypes.string_at(address, nbytes)


@dataclass
class Allocation:
    """A range of host memory that kernels may touch."""

    start: int
    end: int
    label: str
    writable: bool = True
    written: bool = False


Resolver = Callable[[int], "tuple[int, int, str] | None"]


class GlobalMemory:
    """The tensors a launch may touch; everything else is out of bounds.

    `resolver(address)` is asked about an address in no known range and returns (start, bytes, label)
    of the tensor that owns it, or None.
    """

    def __init__(self, resolver: Resolver | None = None) -> None:
        self.resolver = resolver
        self.allocations: list[Allocation] = []
        self.starts: list[int] = []
        self.recent: Allocation | None = None

    def add(self, address: int, nbytes: int, label: str, writable: bool = True) -> None:
        """Allow kernels to touch nbytes at a host address; ranges that overlap are joined."""
        new = Allocation(address, address + nbytes, label, writable)
        keep = []
        for old in self.allocations:
            if old.end <= new.start or new.end <= old.start:
                keep.append(old)
                continue
            if old.end - old.start > new.end - new.start:
                new.label = old.label
            new.start, new.end = min(old.start, new.start), max(old.end, new.end)
            new.writable |= old.writable
            new.written |= old.written
        self.allocations = sorted([*keep, new], key=lambda a: a.start)
        self.starts = [a.start for a in self.allocations]
        self.recent = None

    def remove(self, address: int) -> None:
        """Forget the range that starts at an address."""
        self.allocations = [a for a in self.allocations if a.start != address]
        self.starts = [a.start for a in self.allocations]
        self.recent = None

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds an address."""
        position = bisect_right(self.starts, address) - 1
        if position >= 0 and address < self.allocations[position].end:
            return self.allocations[position]
        if self.resolver is not None and 0 < address < 1 << 47:
            found = self.resolver(address)
            if found is not None:
                self.add(*found)
                return self.find(address)
        return None

    def locate(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> np.ndarray:
        """Host addresses of global addresses (int64); raises OutOfBounds or Misaligned."""
        if not address.size:
            return address
        low, high = int(address.min()), int(address.max()) + nbytes
        found = self.recent
        if found is None or low < found.start or high > found.end:
            found = self.find(low)  # usually another tensor as a whole
            if found is None or high > found.end:
                found = self._locate_slow(address, nbytes, sel, store)
            self.recent = found
        if store:
            self._will_write(found, sel)
        check_alignment(address, nbytes, sel, "global")
        return address

    def _locate_slow(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> Allocation:
        """The general case: several allocations in one access, or an error."""
        found = None
        for value in np.unique(address).tolist():
            if found is None or not found.start <= value < found.end:
                found = self.find(value)
            if found is None or value + nbytes > found.end:
                raise self._out_of_bounds(value, nbytes, address, sel, store)
            if store:
                self._will_write(found, sel)
        assert found is not None
        return found

    def _will_write(self, allocation: Allocation, sel: Selection) -> None:
        if not allocation.writable:
            raise OutOfBounds(f"store to {allocation.label}, which is read-only", threads=threads_of(sel)[:1])
        allocation.written = True

    def _out_of_bounds(self, value: int, nbytes: int, address: np.ndarray, sel: Selection, store: bool) -> OutOfBounds:
        bad = threads_of(sel)[address == value]
        verb = "store of" if store else "load of"
        what = f"{verb} {nbytes} bytes at global address {value:#x}, outside every tensor of this launch"
        near = min(
            self.allocations,
            key=lambda a: min(abs(value - a.start), abs(value - a.end)),
            default=None,
        )
        if near is not None:
            side = f"{value - near.end} bytes past the end" if value >= near.start else "before the start"
            if near.start <= value < near.end:
                side = "across the end"
            elif value < near.start:
                side = f"{near.start - value} bytes before the start"
            what += f"; the nearest is {near.label}, {near.end - near.start} bytes: the access lies {side} of it"
        return OutOfBounds(what, threads=bad)

    def written_labels(self) -> list[str]:
        """Tensors that a launch has stored to so far."""
        return [a.label for a in self.allocations if a.written]


class LocalMemory:
    """Each thread's stack: local variables and the parameters of calls."""

    def __init__(self, threads: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.stride = -(-nbytes // 16) * 16
        self._buffer = np.zeros(threads * self.stride + 16, np.uint8)
        start = self._buffer.ctypes.data
        self.host_base = start + (-start % 16) + np.arange(threads, dtype=np.int64) * self.stride

    def locate(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> np.ndarray:
        """Host addresses of offsets into each thread's stack; raises OutOfBounds or Misaligned."""
        bad = (address < 0) | (address + nbytes > self.nbytes)
        if bad.any():
            raise OutOfBounds(
                f"{'store' if store else 'load'} at offset {int(address[bad][0])} of a stack of {self.nbytes} bytes",
                threads=threads_of(sel)[bad],
            )
        check_alignment(address, nbytes, sel, "local")
        return self.host_base[sel] + address


class GenericMemory:
    """Generic addresses: the window of each thread's address decides the space."""

    def __init__(self, memory: GlobalMemory, shared: SharedMemory, local: LocalMemory) -> None:
        self.memory, self.shared, self.local = memory, shared, local

    def locate(self, address: np.ndarray, nbytes: int, sel: Selection, store: bool) -> np.ndarray:
        """Host addresses of generic addresses; raises what the space raises."""
        in_shared, in_local = (address & SHARED_WINDOW) != 0, (address & LOCAL_WINDOW) != 0
        if not in_shared.any() and not in_local.any():
            return self.memory.locate(address, nbytes, sel, store)
        threads = threads_of(sel)
        host = np.empty_like(address)
        neither = ~(in_shared | in_local)
        for mask, space, window in (
            (in_shared, self.shared, SHARED_WINDOW),
            (in_local, self.local, LOCAL_WINDOW),
            (neither, self.memory, 0),
        ):
            if mask.any():
                host[mask] = space.locate(address[mask] - window, nbytes, threads[mask], store)
        return host


def threads_of(sel: Selection) -> np.ndarray:
    """The thread numbers of a selection, for error messages."""
    if isinstance(sel, slice):
        return np.arange(sel.start, sel.stop)
    return sel


def warps_of(sel: Selection) -> np.ndarray:
    """The numbers of the warps that a selection has threads of."""
    if isinstance(sel, slice):
        return np.arange(sel.start >> 5, (sel.stop + 31) >> 5)
    warps = sel >> 5
    return warps[np.concatenate(([True], warps[1:] != warps[:-1]))] if len(sel) else warps


def check_alignment(address: np.ndarray, nbytes: int, sel: Selection, space: str) -> None:
    """Raise Misaligned unless every address is a multiple of the access size (PTX ISA section 6.4.1.1)."""
    if nbytes > 1 and int(np.bitwise_or.reduce(address)) & (nbytes - 1):
        bad = (address & (nbytes - 1)) != 0
        raise Misaligned(
            f"{nbytes}-byte access to {space} memory at address {int(address[bad][0]):#x}, which is not a "
            f"multiple of {nbytes}",
            threads=threads_of(sel)[bad],
        )
