"""How the hardware splits one warp instruction into pieces of memory traffic.

Global memory moves in sectors of 32 bytes: a request costs as many as its threads' bytes touch.  Shared
memory has 32 banks of 4 bytes, each of which delivers one word per wavefront; threads that name the same
word share it.  These are the rules of the CUDA programming guide (shared memory of compute capability 5.x
and later), and what Nsight Compute counts; `tests/emulator/ncu_compare.py` holds them against an H200.
"""

from __future__ import annotations

import functools

import numpy as np

SECTOR = 32  # bytes
BANKS = 32
WORD = 4  # bytes per bank and wavefront
_WORD_BITS = 40  # of the keys below: a shared address in words needs fewer
_PATTERNS = 4096  # of accesses that are remembered: most instructions repeat a few


def sectors(address: np.ndarray, nbytes: int, warp: np.ndarray) -> tuple[int, int]:
    """(requests, sectors) of one access of nbytes (1 to 32) at naturally aligned addresses.

    address and warp have one element per active thread; each warp makes one request.
    """
    if not address.size:
        return 0, 0
    keys = np.unique((address // SECTOR) * (int(warp.max()) + 1) + warp)
    return len(np.unique(warp)), len(keys)


def atomic_sectors(address: np.ndarray, warp: np.ndarray) -> int:
    """The sectors of one atomic instruction at naturally aligned addresses, an element per active thread.

    Lanes of a warp that name the same address take turns, and each turn sends its sectors again: a sector counts as
    often as its busiest address is named.  No document says so; Nsight Compute counts so on an H200.
    """
    if not address.size:
        return 0
    places, named = np.unique(np.stack([warp, address.astype(np.int64)]), axis=1, return_counts=True)
    _, sector = np.unique(np.stack([places[0], places[1] // SECTOR]), axis=1, return_inverse=True)
    busiest = np.zeros(len(named), np.int64)
    np.maximum.at(busiest, sector.ravel(), named)
    return int(busiest.sum())


def wavefronts(address: np.ndarray, nbytes: int, warp: np.ndarray, lane: np.ndarray, load: bool) -> tuple[int, int]:
    """(wavefronts, the fewest that the active lanes could need) of one shared access of 1 to 16 bytes.

    A warp's 8-byte accesses are processed by half warps, 16-byte accesses by quarter warps.  For loads two
    neighbouring parts become one where lanes agree in pairs (see `_agree_in_pairs`).
    """
    if not address.size:
        return 0, 0
    # where all addresses lie some words further on, so do all banks
    pattern = (address - address.min() // WORD * WORD).astype(np.int64)
    return _wavefronts(pattern.tobytes(), nbytes, (warp * 32 + lane).astype(np.int64).tobytes(), load)


@functools.lru_cache(_PATTERNS)
def _wavefronts(addresses: bytes, nbytes: int, threads: bytes, load: bool) -> tuple[int, int]:
    """`wavefronts` of addresses and threads (32 times the warp, plus the lane) that are int64 in these bytes."""
    address, thread = np.frombuffer(addresses, np.int64), np.frombuffer(threads, np.int64)
    warp, lane = thread // 32, thread % 32
    width = np.full(len(address), BANKS * WORD // max(nbytes, WORD))
    if load and nbytes > WORD:
        width[_agree_in_pairs(address, warp, lane)] *= 2
    part = warp * 32 + lane // width * width
    words = max(1, nbytes // WORD)
    word = (address // WORD)[:, None] + np.arange(words)
    distinct = np.unique((np.repeat(part, words) << _WORD_BITS) + word.ravel())
    parts, slot = np.unique(distinct >> _WORD_BITS, return_inverse=True)
    per_bank = np.bincount(slot * BANKS + distinct % BANKS, minlength=len(parts) * BANKS)
    return int(per_bank.reshape(-1, BANKS).max(axis=1).sum()), len(parts)


def _agree_in_pairs(address: np.ndarray, warp: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """For each thread, whether in its warp all lanes i and i ^ 1, or all lanes i and i ^ 2, name the same address.

    Lanes that are inactive agree with any.  Such loads return half as many different values, which lets two
    parts share a wavefront (NVIDIA on its developer forum, for compute capability 7.x).
    """
    warps, row = np.unique(warp, return_inverse=True)
    table = np.full((len(warps), 32), -1, np.int64)
    table[row, lane] = address
    lanes = np.arange(32)
    agree = np.zeros(len(warps), np.bool_)
    for step in (1, 2):
        other = table[:, lanes ^ step]
        agree |= ((table == other) | (table < 0) | (other < 0)).all(axis=1)
    return agree[row]


def copy_wavefronts(
    source: np.ndarray, reads: np.ndarray, destination: np.ndarray, nbytes: int, warp: np.ndarray, lane: np.ndarray
) -> tuple[int, int]:
    """(wavefronts, the fewest that the active lanes could need) of one cp.async.ca of 4, 8 or 16 bytes.

    It takes words from lines of L1 to shared memory, and both lie in the same 32 banks.  A word holds up those that
    are taken from its bank, the same word again included, and those that go to its bank; a part of the warp takes as
    many wavefronts as its busiest word has such words, itself included.  No document says so; Nsight Compute counts
    so on an H200.  Threads for which `reads` is false write zeros.
    """
    if not destination.size:
        return 0, 0
    base = source[reads].min(initial=np.iinfo(np.int64).max) // WORD * WORD
    patterns = [np.where(reads, source - base, -1), destination - destination.min() // WORD * WORD]
    return _copy_wavefronts(*(p.astype(np.int64).tobytes() for p in (*patterns, warp * 32 + lane)), nbytes)


@functools.lru_cache(_PATTERNS)
def _copy_wavefronts(sources: bytes, destinations: bytes, threads: bytes, nbytes: int) -> tuple[int, int]:
    """`copy_wavefronts` of int64 in these bytes, a source of -1 where nothing is read."""
    source, destination, thread = (np.frombuffer(each, np.int64) for each in (sources, destinations, threads))
    together = BANKS * WORD // nbytes
    parts, part = np.unique(thread // together, return_inverse=True)
    words = np.arange(nbytes // WORD)
    bank_from, bank_to = (((address // WORD)[:, None] + words).ravel() % BANKS for address in (source, destination))
    part, reads = np.repeat(part, len(words)), np.repeat(source >= 0, len(words))
    keys = part * BANKS + bank_from, part * BANKS + bank_to, (part * BANKS + bank_from) * BANKS + bank_to
    taken, put, both = (np.bincount(key, weights=w)[key] for key, w in zip(keys, (reads, None, reads), strict=True))
    busiest = np.zeros(len(parts))
    np.maximum.at(busiest, part, put + reads * (taken - both))
    return int(busiest.sum()), len(parts)


def matrix_wavefronts(address: np.ndarray) -> tuple[int, int]:
    """(wavefronts, the fewest possible) of ldmatrix or stmatrix; address is (phases, 8): rows of 16 bytes.

    Each 8 x 8 matrix is one phase, conflict-free where its rows lie in different banks.
    """
    phase = np.repeat(np.arange(len(address)), 8)
    return wavefronts(address.ravel(), 16, phase, np.tile(np.arange(8), len(address)), load=False)
