"""Tables that say which thread owns each element of a tile, checked once and packed small for the browser."""

from __future__ import annotations

import ast
import base64
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutetut.layouts import Partition

IntTree: TypeAlias = "int | tuple[IntTree, ...]"


class MapError(ValueError):
    """A table that cannot describe who owns a tile; the message names the entry and what to change."""


class ThreadMap:
    """Who owns each element of a 2-D tile: (row, col) is value `value[row, col]` of thread `owner[row, col]`.

    Args:
        owner: (rows, cols) integers, the thread that owns each element.
        value: (rows, cols) integers, the index of the element among its thread's values (its register).
        offset: (rows, cols) integers, the element's place in memory, counted in elements.
        coords: one CuTe coordinate per value index, a nested tuple such as `(0, (2, 1), (3, 0))` or its text.
        stride: the strides of the thread's layout, nested like each coordinate. Needs `offset` and `coords`:
            each offset is checked to be its thread's start plus the sum of coordinate times stride.
        layout: the thread's layout as CuTe prints it.
        threads: how many threads there are, where the last ones own nothing; the largest owner + 1 otherwise.

    Raises:
        MapError: a table is not 2-D, not integer, of another shape, negative, names a (thread, value) pair
            twice, or the coordinates and strides do not give the offsets.
    """

    def __init__(
        self,
        owner: npt.ArrayLike,
        value: npt.ArrayLike,
        *,
        offset: npt.ArrayLike | None = None,
        coords: Sequence[IntTree | str] | None = None,
        stride: IntTree | None = None,
        layout: str = "",
        threads: int | None = None,
    ) -> None:
        self.owner = _table("owner", owner)
        self.value = _table("value", value, self.owner.shape)
        self.offset = None if offset is None else _table("offset", offset, self.owner.shape)
        self.layout = layout
        self.threads = int(self.owner.max()) + 1 if threads is None else int(threads)
        if self.threads <= self.owner.max():
            raise MapError(f"owner names thread {self.owner.max()}, but there are {self.threads} threads")
        self.values = int(self.value.max()) + 1
        self._place = self._places()
        self.stride = stride
        self.profile, self.coords = self._coordinates(coords)
        if stride is not None:
            self._check_offsets()

    @classmethod
    def of(cls, partition: Partition) -> ThreadMap:
        """The map of what `layouts.partition` returns; raises LayoutError unless each element has one owner."""
        return cls(**partition.tables())

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols) of the tile."""
        return self.owner.shape[0], self.owner.shape[1]

    def find(self, thread: int, value: int) -> tuple[int, int] | None:
        """Return the (row, col) of value `value` of thread `thread`, or None where the thread has none."""
        if not (0 <= thread < self.threads and 0 <= value < self.values):
            return None
        place = int(self._place[thread, value])
        return None if place < 0 else divmod(place, self.shape[1])

    def pack(self) -> dict[str, Any]:
        """Return the map as JSON-able data of a few kilobytes: tables as deltas, deflated, in base64."""
        return {
            "rows": self.shape[0],
            "cols": self.shape[1],
            "threads": self.threads,
            "values": self.values,
            "owner": pack_ints(self.owner),
            "value": pack_ints(self.value),
            "offset": None if self.offset is None else pack_ints(self.offset),
            "coords": None if self.coords is None else pack_ints(self.coords),
            "profile": self.profile,
            "stride": None if self.stride is None else list(_leaves(self.stride)),
            "layout": self.layout,
        }

    def _places(self) -> npt.NDArray[np.int64]:
        """Return (threads, values) flat element indices, -1 where a thread lacks that value."""
        pair = (self.owner.astype(np.int64) * self.values + self.value).ravel()
        order = np.argsort(pair, kind="stable")
        twice = np.flatnonzero(pair[order][1:] == pair[order][:-1])
        if twice.size:
            first, second = (divmod(int(i), self.shape[1]) for i in order[twice[0] : twice[0] + 2])
            raise MapError(
                f"elements {first} and {second} are both value {self.value[first]} of thread "
                f"{self.owner[first]}; number each thread's values so that each is one element"
            )
        place = np.full(self.threads * self.values, -1, dtype=np.int64)
        place[pair] = np.arange(pair.size)
        return place.reshape(self.threads, self.values)

    def _coordinates(
        self, coords: Sequence[IntTree | str] | None
    ) -> tuple[IntTree | None, npt.NDArray[np.int32] | None]:
        """Return the nesting that all coordinates share and their leaves as (values, leaves)."""
        if coords is None:
            if self.stride is not None:
                raise MapError("stride needs coords: one coordinate per value index, to multiply it with")
            return None, None
        trees = [_tree(c) for c in coords]
        if len(trees) != self.values:
            raise MapError(f"{len(trees)} coords for {self.values} values; give one per value index")
        profile = _profile(trees[0] if self.stride is None else self.stride)
        for index, tree in enumerate(trees):
            if _profile(tree) != profile:
                like = trees[0] if self.stride is None else self.stride
                raise MapError(f"coords[{index}] is {tree}, which is not nested like {like}")
        return profile, np.array([list(_leaves(t)) for t in trees], dtype=np.int32)

    def _check_offsets(self) -> None:
        """Check that each thread's offsets are one start plus coordinate times stride."""
        if self.offset is None or self.coords is None or self.stride is None:
            raise MapError("stride needs offset: the element's place in memory, to compare the product with")
        inner = self.coords @ np.array(list(_leaves(self.stride)), dtype=np.int64)
        start = self.offset - inner[self.value]
        expected = np.zeros(self.threads, dtype=np.int64)
        expected[self.owner.ravel()] = start.ravel()
        wrong = np.argwhere(start != expected[self.owner])
        if wrong.size:
            row, col = (int(i) for i in wrong[0])
            thread, index = self.owner[row, col], self.value[row, col]
            raise MapError(
                f"element ({row}, {col}), value {index} of thread {thread}, has offset "
                f"{self.offset[row, col]}, but start {expected[thread]} + coordinate x stride {inner[index]} = "
                f"{expected[thread] + inner[index]}; leave stride out where offsets are not linear in the coordinate"
            )


def pack_ints(table: npt.NDArray[Any]) -> str:
    """Return base64 of the deflated differences of a table's row-major entries, as little-endian int32."""
    flat = np.asarray(table, dtype=np.int64).ravel()
    deltas = np.diff(flat, prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(deltas.tobytes(), 9)).decode("ascii")


def _table(name: str, data: npt.ArrayLike, shape: tuple[int, ...] | None = None) -> npt.NDArray[np.int32]:
    """Return `data` as a checked (rows, cols) int32 table."""
    table = np.asarray(data)
    if table.ndim != 2 or table.size == 0:
        raise MapError(f"{name} has shape {table.shape}; it must be a table of (rows, cols), not empty")
    if not np.issubdtype(table.dtype, np.integer):
        raise MapError(f"{name} holds {table.dtype}; it must hold integers")
    if shape is not None and table.shape != shape:
        raise MapError(f"{name} has shape {table.shape}, but owner has {shape}; all tables cover the same tile")
    largest = np.iinfo(np.int32).max
    if table.min() < 0 or table.max() > largest:
        row, col = np.argwhere((table < 0) | (table > largest))[0]
        raise MapError(f"{name}[{row}, {col}] is {table[row, col]}; it must be from 0 to {largest}")
    return table.astype(np.int32)


def _tree(coord: IntTree | str) -> IntTree:
    """Return a coordinate as nested tuples of int, from tuples or from its text."""
    try:
        tree = ast.literal_eval(coord) if isinstance(coord, str) else coord
        return _as_ints(tree)
    except (SyntaxError, ValueError, TypeError) as error:
        raise MapError(f"{coord!r} is not a coordinate; write nested tuples of integers") from error


def _as_ints(tree: Any) -> IntTree:
    return tuple(_as_ints(t) for t in tree) if isinstance(tree, tuple | list) else int(tree)


def _profile(tree: IntTree) -> IntTree:
    return tuple(_profile(t) for t in tree) if isinstance(tree, tuple) else 0


def _leaves(tree: IntTree) -> Iterator[int]:
    if isinstance(tree, tuple):
        for branch in tree:
            yield from _leaves(branch)
    else:
        yield tree
