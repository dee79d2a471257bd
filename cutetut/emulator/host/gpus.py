"""How many emulated GPUs there are, which is the current one, and which may use the memory of which.

Without `--gpus N` there is one.  All memory is this process's, so an address means the same on every GPU, as under
unified addressing (CUDA C++ programming guide, "Unified Virtual Address Space"); but a kernel may use memory of another
GPU only where peer access has been enabled ("Peer-to-Peer Memory Access").
"""

from __future__ import annotations

from collections.abc import Callable

from . import ranks

MOST = 8  # GPUs of one host that NVLink joins
ON_GPU = "_cutetut_on_cuda"  # the attribute of a storage that says on which GPU its memory is

count = 1
current = 0
_access: set[tuple[int, int]] = set()  # which GPU may use the memory of which other
_mapped: dict[int, list[tuple[int, int]]] = {}  # by GPU, start and end of memory of others that it may use
home: Callable[[int], int | None] = lambda address: None  # noqa: E731  the GPU of the memory at an address, if known


def several() -> bool:
    """Whether there is more than one, or ranks, of which each may have one."""
    return count > 1 or ranks.several()


def begin(number: int, home_of: Callable[[int], int | None]) -> None:
    """From now on there are `number` GPUs; none may use another's memory yet."""
    global count, current, home
    count, current, home = number, 0, home_of
    _access.clear()
    unmap()


def end() -> None:
    """There is one GPU again."""
    begin(1, lambda address: None)


def use(gpu: int) -> None:
    """Make a GPU the current one. Raises ValueError if it does not exist."""
    global current
    if not 0 <= gpu < count:
        raise ValueError(missing(gpu))
    current = gpu


def missing(gpu: int) -> str:
    """The message about a GPU that does not exist."""
    there = "one device, cuda:0" if count == 1 else f"{count} devices, cuda:0 to cuda:{count - 1}"
    return f"invalid device ordinal: cuda:{gpu}; the emulator is {there}"


def enable(gpu: int, peer: int) -> bool:
    """Let a GPU use the memory of another; False if it could already."""
    new = (gpu, peer) not in _access
    _access.add((gpu, peer))
    return new


def disable(gpu: int, peer: int) -> bool:
    """Take that back; False if it could not."""
    had = (gpu, peer) in _access
    _access.discard((gpu, peer))
    return had


def map_memory(gpu: int, start: int, nbytes: int) -> None:
    """Let a GPU use these bytes, whichever GPU's they are."""
    _mapped.setdefault(gpu, []).append((start, start + nbytes))


def unmap() -> None:
    """Take that back."""
    _mapped.clear()


def reaches(gpu: int, address: int) -> bool:
    """Whether a GPU may use the memory at an address, wherever it is."""
    if count == 1:
        return True
    where = home(address)
    if where is None or where == gpu or (gpu, where) in _access:
        return True
    return any(start <= address < stop for start, stop in _mapped.get(gpu, ()))
