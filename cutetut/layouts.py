"""CuTe layouts and thread-value maps as plain Python and numpy data, worked out by CuTe DSL itself.

A CuTe layout exists only while the DSL traces a function. `evaluate` traces an empty host function (no
kernel, no GPU) and hands out what a builder returns there; all else is that, plus bookkeeping in numpy.
No layout algebra is implemented in this file: every number comes from a call into CuTe, or is a sum of such numbers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import os
import resource
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import cutlass.cute as cute
import numpy as np
import numpy.typing as npt

T = TypeVar("T")
IntTree: TypeAlias = "int | tuple[IntTree, ...]"
Ints: TypeAlias = npt.NDArray[np.int64]
REMEMBERED = 64  # partitions


class LayoutError(ValueError):
    """A layout that cannot be evaluated, or that assigns a tile's elements wrongly; the message says where."""


class _Built(Exception):
    """Ends a trace whose function nobody will run: compiling what was traced takes as long again."""


def evaluate(build: Callable[..., T], *args: Any) -> T:
    """Return what `build(*args)` returns when it runs where CuTe layouts can be made.

    Layouts made inside must not leave: return text, integers, tuples or arrays. Exceptions pass through.
    """
    box: list[T] = []

    @cute.jit
    def host() -> None:
        box.append(build(*args))
        raise _Built

    with contextlib.suppress(_Built):
        host()
    return box[0]


def text(build: Callable[[], Any]) -> str:
    """Return the layout (or tensor, or TiledMma) that `build` makes, as CuTe prints it."""
    return evaluate(lambda: str(build()))


def offsets(build: Callable[[], Any]) -> Ints:
    """Return layout(coordinate) for every coordinate of the static layout that `build` makes.

    The result is int64 with one axis per top-level mode; a nested mode is counted colexicographically, as
    CuTe counts it (its first part runs fastest), so a TV layout gives a (threads, values) table.
    Raises LayoutError for a layout with run-time shapes or strides.
    """

    def read() -> Ints:
        layout = build()
        if not cute.is_static(layout):
            raise LayoutError(f"{layout} has run-time parts; only a static layout has offsets here")
        sizes = tuple(cute.size(layout, mode=[mode]) for mode in range(cute.rank(layout)))
        if isinstance(layout, cute.Layout):  # by definition a sum over its modes, so few calls into CuTe are enough
            along = np.ix_(*(_along(layout[mode], size) for mode, size in enumerate(sizes)))
            return sum(along[1:], along[0])
        return _along(layout, cute.size(layout)).reshape(sizes, order="F")

    return evaluate(read)


def _along(layout: Any, size: int) -> Ints:
    return np.array([layout(index) for index in range(size)], dtype=np.int64)


@dataclass(frozen=True)
class Partition:
    """How a TiledMma deals one operand's tile to its threads, or a TiledCopy what it copies.

    layout: each thread's view of the tile's memory, as CuTe prints it; the same for every thread.
    shape, stride: the same as nested tuples.
    coords: the nested coordinate of each value index, in CuTe's order.
    offset: (threads, values) place in memory, counted in elements from the tile's first element.
    place: (threads, values, 2) row and column in the tile. They can lie outside it: CuTe rounds up.
    tile: (rows, columns) of the tile.
    """

    layout: str
    shape: IntTree
    stride: IntTree
    coords: tuple[IntTree, ...]
    offset: Ints
    place: Ints
    tile: tuple[int, int]

    def claims(self) -> Ints:
        """Return (rows, columns) counts of how many (thread, value) pairs name each element of the tile."""
        inside = (self.place < self.tile).all(axis=-1)
        count = np.zeros(self.tile, dtype=np.int64)
        np.add.at(count, tuple(self.place[inside].T), 1)
        return count

    def outside(self) -> int:
        """Return how many (thread, value) pairs name an element outside the tile."""
        return int((self.place >= self.tile).any(axis=-1).sum())

    def tables(self) -> dict[str, Any]:
        """Return what `cutetut.widgets.ThreadMap` takes: owner, value and offset per element, and the layout.

        Raises LayoutError unless each element of the tile is named exactly once and none outside it.
        """
        count, outside = self.claims(), self.outside()
        if outside or (count != 1).any():
            wrong = [f"{outside} (thread, value) pairs lie outside it"] if outside else []
            if (count != 1).any():
                row, col = (int(i) for i in np.argwhere(count != 1)[0])
                wrong.append(f"element ({row}, {col}) is named {count[row, col]} times")
            rows, cols = self.tile
            raise LayoutError(f"{self.layout} is no ownership map of a {rows}x{cols} tile: {', '.join(wrong)}")
        threads, values = self.offset.shape
        owner, value, offset = (np.empty(self.tile, dtype=np.int64) for _ in range(3))
        at = (self.place[..., 0], self.place[..., 1])
        owner[at] = np.arange(threads)[:, None]
        value[at] = np.arange(values)
        offset[at] = self.offset
        return {
            "owner": owner,
            "value": value,
            "offset": offset,
            "coords": list(self.coords),
            "stride": self.stride,
            "layout": self.layout,
        }


def partition(
    make_mma: Callable[[], cute.TiledMma],
    tile: tuple[int, int],
    stride: tuple[int, int] | None = None,
    operand: str = "C",
) -> Partition:
    """Return how the TiledMma that `make_mma` makes assigns `tile:stride` to its threads as operand A, B or C.

    tile: (M, N) for C, (M, K) for A, (N, K) for B; stride: row-major where left out.
    Raises LayoutError for another operand, for a permutation that CuTe cannot deal, because the atoms and threads do
    not divide it, its modes overlap or a stride is negative: on some of these CuTe DSL 4.8.1 would end the process.
    """
    if operand not in ("A", "B", "C"):
        raise LayoutError(f"operand is {operand!r}; a TiledMma partitions 'A', 'B' and 'C'")

    def read() -> Partition:
        mma = make_mma()
        for name, permutation in zip("MNK", mma.permutation_mnk, strict=True):
            _refuse_overlap(name, permutation)
        return _dealt(mma, operand, tile, stride)

    return evaluate(read)


def copied(
    make_copy: Callable[[], cute.TiledCopy],
    tile: tuple[int, int],
    stride: tuple[int, int] | None = None,
    side: str = "S",
) -> Partition:
    """Return how the TiledCopy that `make_copy` makes assigns `tile:stride` to its threads, as source or
    destination.

    stride: row-major where left out. side: "S" for `partition_S`, "D" for `partition_D`. Raises LayoutError for another
    side.
    """
    if side not in ("S", "D"):
        raise LayoutError(f"side is {side!r}; a TiledCopy partitions a source, 'S', and a destination, 'D'")
    return evaluate(lambda: _dealt(make_copy(), side, tile, stride))


_known: dict[tuple[str, str, tuple[int, int], str], Partition] = {}


def _dealt(tiled: Any, part: str, tile: tuple[int, int], stride: tuple[int, int] | None) -> Partition:
    """What a TiledMma or TiledCopy gives to each thread of a tile; part: A, B, C, S or D.

    Its type in MLIR says all of it, and is remembered with the answer: CuTe is asked once for each thread.
    """
    layout = cute.make_layout(tile, stride=stride or (tile[1], 1))
    (value,) = tiled.__extract_mlir_values__()
    key = str(value.type), part, tile, str(layout)
    if key in _known:
        return _copy(_known[key])
    offset, view = _deal(tiled, part, cute.make_tensor(0, layout))
    place, _ = _deal(tiled, part, cute.make_identity_tensor(tile))
    if len(_known) == REMEMBERED:
        _known.clear()
    _known[key] = Partition(
        layout=str(view),
        shape=view.shape,
        stride=view.stride,
        coords=tuple(cute.idx2crd(index, view.shape) for index in range(cute.size(view))),
        offset=offset,
        place=place,
        tile=tile,
    )
    return _copy(_known[key])


def _copy(known: Partition) -> Partition:
    """The same with tables of its own, which a caller may change."""
    return replace(known, offset=known.offset.copy(), place=known.place.copy())


def _deal(tiled: Any, part: str, tensor: cute.Tensor) -> tuple[Ints, Any]:
    """Return what `tensor` holds for every (thread, value), and the layout that all threads' views share.

    A view is a start and a layout, so its elements are start + layout(index): one start per thread and one
    offset per index instead of a call into CuTe for each of the tile's elements.
    """
    def views() -> list[cute.Tensor]:
        return [getattr(tiled.get_slice(thread), f"partition_{part}")(tensor) for thread in range(tiled.size)]

    if part in "ABC" and _leaves_a_remainder(tiled) and not survives(views):
        raise _undealt(tiled, tensor)
    try:
        found = views()
    except Exception as error:  # the DSL does not export its error's type
        if "failed to partition" not in str(error):
            raise
        raise _undealt(tiled, tensor) from error
    layout = found[0].layout
    start = np.array([view.iterator for view in found], dtype=np.int64)
    step = np.array([layout(index) for index in range(cute.size(layout))], dtype=np.int64)
    return start[:, None] + step[None, :], layout


def _undealt(mma: cute.TiledMma, tensor: cute.Tensor) -> LayoutError:
    return LayoutError(
        f"CuTe cannot deal {tensor.layout} with the permutation {mma.permutation_mnk}: it must be a whole "
        f"number of atoms {mma.shape_mnk} times the threads of {mma.thr_layout_vmnk}"
    )


def _leaves_a_remainder(mma: cute.TiledMma) -> bool:
    """Whether a permutation that is a layout is no whole number of atoms times threads."""
    modes = enumerate(zip(mma.permutation_mnk, mma.shape_mnk, strict=True), start=1)
    return any(
        isinstance(permutation, cute.Layout)
        and cute.size(permutation) % (atom * cute.size(mma.thr_layout_vmnk, mode=[mode]))
        for mode, (permutation, atom) in modes
    )


def survives(call: Callable[[], object]) -> bool:
    """Whether a call, tried in a process of its own, does not end the process; what it prints or raises is lost.

    The process is forked from this one: neither its threads nor CUDA, if this one uses it, work there. So the call may
    trace and compile, and use tensors of the CPU, but no GPU. Garbage is not collected there: some of it may be what
    frees memory of a GPU.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads; this child uses none of them
        child = os.fork()
    if child == 0:
        try:
            gc.disable()
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            sys.stdout = sys.stderr = io.StringIO()  # Jupyter's send what a child prints to the notebook
            call()
        finally:
            os._exit(0)
    return os.WIFEXITED(os.waitpid(child, 0)[1])


def _refuse_overlap(name: str, permutation: Any) -> None:
    """Raise for a permutation with a negative stride, or whose modes, by growing stride, reach into one another.

    `logical_divide` needs the complement, which CuTe builds by dividing each stride by the reach of the modes
    before it: where that gives zero, CuTe DSL 4.8.1 divides by zero and ends the process.
    """
    if not isinstance(permutation, cute.Layout):
        return
    flat = cute.flatten(permutation)
    shapes, strides = (leaf if isinstance(leaf, tuple) else (leaf,) for leaf in (flat.shape, flat.stride))
    reach = 1
    for stride, shape in sorted((d, s) for s, d in zip(shapes, strides, strict=True) if s > 1 and d != 0):
        if stride < 0:
            raise LayoutError(
                f"the permutation of {name}, {permutation}, has a mode of stride {stride}: it leads to places before 0"
            )
        if stride < reach:
            raise LayoutError(
                f"the permutation of {name}, {permutation}, has a mode of stride {stride} inside a mode that "
                f"reaches {reach} positions; choose strides that keep the modes apart"
            )
        reach = shape * stride
