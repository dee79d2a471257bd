"""Shared memory between the lanes of one warp."""

from __future__ import annotations

import torch

from cutetut.emulator.errors import EmulatorWarning
from tests.emulator.ordering.model import NOTHING, RACE, Harmless, Kernel, Mistake, elementwise, mirrored

BY_CHANCE: tuple[type[Exception], ...] = (EmulatorWarning,)  # quack's cross entropy in place relies on it
PAIR, PAIR_READ = "number[tid] = mX[n, tid]", "number[tid ^ 1]"


KERNELS = {
    "pairs": Kernel("order_lanes", "pairs", elementwise((3, 64), lambda x: x.view(3, 32, 2).flip(2).view(3, 64))),
    "parts": Kernel(
        "order_lanes", "parts", elementwise((64,), lambda x: torch.stack([0 * x[::2], x[::2]], 1).flatten())
    ),
    "half_warps": Kernel("order_lanes", "half_warps", elementwise((64,), lambda x: x.view(4, 16).flip(1).flatten())),
    "copies": Kernel("order_lanes", "copies", elementwise((256,), lambda x: x.view(32, 2, 4).flip(1).flatten())),
    "own": Kernel("order_lanes", "own", elementwise((64,), lambda x: x + 1 - torch.arange(64) % 2)),
    "signal": Kernel("order_lanes", "signal", elementwise((3, 32), mirrored)),
}  # fmt: skip

MISTAKES = {
    "no_sync_warp_before_load": Mistake(
        "pairs", (("# the numbers are there", NOTHING),), RACE, (PAIR, PAIR_READ), new=True
    ),
    "no_sync_warp_before_store": Mistake(
        "pairs", (("# the numbers have been read", NOTHING),), RACE, (PAIR, PAIR_READ), new=True
    ),
    "shuffle_instead_of_sync_warp": Mistake(
        "pairs", (("# the numbers are there", "cute.arch.shuffle_sync_bfly(n, offset=1)"),), RACE, (PAIR, PAIR_READ),
        new=True,
    ),
    "shuffle_instead_of_sync_warp_before_store": Mistake(
        "pairs", (("# the numbers have been read", "cute.arch.shuffle_sync_bfly(n, offset=1)"),), BY_CHANCE,
        (PAIR, PAIR_READ),
    ),
    "elect_instead_of_sync_warp": Mistake(
        "pairs", (("# the numbers are there", "with cute.arch.elect_one(): mY[n, tid] = 0.0"),), RACE,
        (PAIR, PAIR_READ), new=True,
    ),
    "no_sync_warp_between_branches": Mistake(
        "parts", (("# the even lanes have stored", NOTHING),), RACE, ("number[tid] = mX[tid]", "number[tid - 1]"),
        new=True,
    ),
    "other_half_of_the_warp_read": Mistake(
        "half_warps", (("# of the same half", "mY[tid] = half[tid ^ 16]"),), RACE,
        ("# both halves store", "half[tid ^ 16]"),
    ),
    "no_sync_warp_behind_the_wait_for_copies": Mistake(
        "copies", (("# all lanes' copies are there", NOTHING),), RACE,
        ("cute.copy(cute.make_copy_atom", "mine[tid ^ 1"),
    ),
    "elected_lane_arrives_for_stores": Mistake(
        "signal", (("# all lanes have stored", NOTHING),), RACE, ("row[tid] = mX", "row[63 - tid]"), new=True
    ),
    "elected_lane_arrives_for_loads": Mistake(
        "signal", (("# all lanes have loaded", NOTHING),), RACE, ("row[tid] = mX", "row[63 - tid]"), new=True
    ),
}  # fmt: skip

HARMLESS: Harmless = {
    "own_copies_without_sync_warp": (
        "copies",
        (("# all lanes' copies are there", NOTHING),
         ("mine[tid ^ 1, i]", "mY[4 * (tid ^ 1) + i] = mine[tid, i]")),
    ),
    "shuffle_beside_sync_warp": (
        "pairs",
        (("# the numbers are there", "cute.arch.sync_warp(); cute.arch.shuffle_sync_bfly(n, offset=1)"),),
    ),
    "half_warps_then_the_whole": (
        "half_warps", (("# of the same half", "cute.arch.sync_warp(); mY[tid] = half[tid ^ 15] + 0 * half[tid ^ 16]"),)
    ),
    "barrier_instead_of_sync_warp": ("pairs", (("# the numbers are there", "cute.arch.sync_threads()"),)),
}
