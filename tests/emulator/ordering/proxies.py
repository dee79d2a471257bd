"""Ordinary accesses and TMA on the same memory, and tensor maps that change."""

from __future__ import annotations

import torch

from cutetut.emulator.errors import EmulatorError, InFlight, MissingBarrier, MissingFence
from tests.emulator.mutants import Case
from tests.emulator.ordering.model import NOTHING, RACE, UNORDERED, Harmless, Kernel, Mistake, elementwise, numbers

ROWS, COLUMNS, GROUPS = 8, 32, 3
FENCE: tuple[type[EmulatorError], ...] = (MissingFence,)
UNDER_WAY: tuple[type[EmulatorError], ...] = (InFlight, MissingBarrier)
OF_MAP: tuple[type[EmulatorError], ...] = (MissingFence, MissingBarrier, InFlight)


def _twice() -> Case:
    x = numbers(ROWS, COLUMNS)
    return [x, torch.zeros_like(x), torch.zeros_like(x)], (x.double() + 1).flip(1)


def _renewed() -> Case:
    old, new = numbers(ROWS, COLUMNS), numbers(ROWS, COLUMNS)
    return [new, old, torch.zeros_like(old)], old.double() + 1


def _swapped() -> Case:
    x = numbers(2 * ROWS, COLUMNS)
    return [torch.zeros(1, dtype=torch.int32), x], x.double().roll(ROWS, 0)


def _grouped() -> Case:
    x = numbers(GROUPS * ROWS, COLUMNS)
    maps, other = torch.zeros(16, dtype=torch.int64), torch.zeros(ROWS, COLUMNS)
    return [x, maps, other, torch.zeros_like(x)], x.double() + 1


KERNELS = {
    "reload": Kernel("order_proxies", "reload", _twice),
    "readback": Kernel("order_proxies", "readback", _twice),
    "add": Kernel("order_proxies", "add", elementwise((3 * ROWS, COLUMNS), lambda x: x + 1)),
    "boxes": Kernel("order_proxies", "boxes", elementwise((2 * ROWS, COLUMNS), lambda x: x + 1)),
    "renew": Kernel("order_in_place", "renew", _renewed),
    "swap": Kernel("order_in_place", "swap", _swapped),
    "maps": Kernel("order_proxies", "maps", _grouped),
    "maps_in_place": Kernel("order_proxies", "maps_in_place", _grouped),
}

FOR_TMA, OUT, LOADED, READ_BACK = "# for TMA", "# goes out", "# loads again", "mT[2 * i + warp, 31 - lane]"
WRITTEN, ADDED = "mT[2 * i + warp, lane] = mX", "tile[i, tid] = tile[i, tid] + 1.0"
BY_MAP, COPIED = "# by the map", "# the map goes out"
CHANGED = "cpasync.update_tma_descriptor(store, group(mY, g), here)"
IN_PLACE = "cpasync.update_tma_descriptor(store, group(mY, g), mMaps.iterator)"

MISTAKES = {
    "stores_before_tma_load": Mistake("reload", ((FOR_TMA, NOTHING),), FENCE, (WRITTEN, LOADED), new=True),
    "stores_before_tma_load_fence_of_the_gpu": Mistake(
        "reload", ((FOR_TMA, "cute.arch.fence_acq_rel_gpu()"),), FENCE, (WRITTEN, LOADED), new=True
    ),
    "stores_before_tma_load_wrong_space": Mistake(
        "reload", ((FOR_TMA, 'cute.arch.fence_proxy("async.shared", space="cta")'),), FENCE, (WRITTEN, LOADED), new=True
    ),
    "no_barrier_before_tma_load": Mistake(
        "reload", (("# both warps have written", NOTHING),), UNORDERED, (WRITTEN, LOADED), new=True
    ),
    "tma_store_not_waited_for": Mistake(
        "readback", (("# and is there", NOTHING),), UNDER_WAY, (OUT, READ_BACK), new=True
    ),
    "tma_store_waited_for_reading": Mistake(
        "readback", (("# and is there", "cute.arch.cp_async_bulk_wait_group(0, read=True)"),), UNDER_WAY,
        (OUT, READ_BACK), new=True,
    ),
    "one_warp_waits_for_tma_store": Mistake(
        "readback", (("# both warps know", NOTHING),), UNDER_WAY, (OUT, READ_BACK), new=True
    ),
    "one_warp_without_proxy_fence": Mistake(
        "add", (("# of each lane", NOTHING),), FENCE, (ADDED, "# the tile goes"), new=True
    ),
    "one_warp_with_the_global_proxy_fence": Mistake(
        "add", (("# of each lane", 'cute.arch.fence_proxy("async.global")'),), FENCE, (ADDED, "# the tile goes")
    ),
    "one_warp_without_sync_warp": Mistake(
        "add", (("# all lanes have added", NOTHING),), UNORDERED, (ADDED, "# the tile goes"), new=True
    ),
    "one_warp_without_wait": Mistake(
        "add", (("# the tile has gone", NOTHING),), UNDER_WAY, ("# the tile comes", "# the tile goes")
    ),
    "two_ctas_store_a_box": Mistake(
        "boxes", (("# of each CTA", "cute.copy(store, tYsY, tYgY[None, 0])  # same box"),), UNDER_WAY, ("# same box",),
        new=True,
    ),
    "tile_overwritten_while_tma_loads_it": Mistake(
        "renew", (("# before it is overwritten", NOTHING),), UNORDERED, ("# the tile comes", "mT[i, lane] = mX"),
        new=True,
    ),
    "tile_stored_while_another_cta_loads_it": Mistake(
        "swap", (("# both have loaded", "while mCount[0] < 0:"),), UNORDERED, ("# the other's tile", "# over the own"),
        new=True,
    ),
    "map_changed_under_a_store": Mistake(
        "maps", (("# the map has been used", NOTHING),), OF_MAP, (BY_MAP, COPIED), new=True
    ),
    "map_not_yet_out": Mistake("maps", (("# the map is out", NOTHING),), OF_MAP, (BY_MAP, COPIED), new=True),
    "map_not_free": Mistake("maps", (("# the map is free", NOTHING),), OF_MAP, (BY_MAP, COPIED), new=True),
    "map_without_acquire": Mistake(
        "maps", (("cpasync.fence_tma_desc_acquire(mMaps.iterator)\n", NOTHING),), FENCE, (BY_MAP, COPIED), new=True
    ),
    "map_copied_before_it_is_changed": Mistake(
        "maps", (("# the map is changed", NOTHING),), RACE, (CHANGED, COPIED), new=True
    ),
    "map_in_place_without_release": Mistake(
        "maps_in_place", (("# of the changed map\n", NOTHING),), FENCE, (BY_MAP, IN_PLACE), new=True
    ),
    "map_in_place_without_acquire": Mistake(
        "maps_in_place", (("# of the changed map, by its user", NOTHING),), FENCE, (BY_MAP, IN_PLACE), new=True
    ),
}  # fmt: skip

HARMLESS: Harmless = {
    "map_in_place_released_by_its_user": (
        "maps_in_place",
        (
            ("# of the changed map\n", NOTHING),
            ("# of the changed map, by its user",
             "cpasync.fence_tma_desc_release(); cpasync.fence_tma_desc_acquire(mMaps.iterator)"),
        ),
    ),
    "proxy_fence_behind_the_barrier": (
        "reload",
        (
            (FOR_TMA, "cute.arch.sync_threads()"),
            ("# both warps have written", 'if warp == 0: cute.arch.fence_proxy("async.global")'),
        ),
    ),
}
