"""Random calls of the layout algebra: layouts with gaps, repetitions and swizzles or none, and tilers for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from cutetut.layouts import IntTree
from tests.widgets.layout_oracle import Argument, Case, Lay

SIZES = (1, 2, 2, 3, 4, 4, 5, 6, 8)
STRIDES = (0, 1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
BACKWARDS = (*STRIDES, -1, -4)
COTARGETS = (1, 2, 8, 24, 64, 96, 100, 512)
BITS = (4, 8, 16, 32, 64)
KINDS = ("gaps", "gaps", "list", "compact")
DEALT = ("gaps", "list", "compact", "compact")  # gaps leave the tile of `make_layout_tv` with holes
SWIZZLES = ((3, 4, 3), (2, 4, 3), (1, 4, 3), (3, 3, 3), (2, 0, 2), (2, 1, 5), (1, 2, 1))
ONE = ("flatten", "filter", "filter_zeros", "right_inverse", "left_inverse", "nullspace", "make_layout_like")
TWO = ("blocked_product", "raked_product", "zipped_product", "tiled_product", "flat_product", "append", "prepend",
       "make_layout_tv")  # fmt: skip
TILED = ("composition", "logical_divide", "zipped_divide", "tiled_divide", "flat_divide", "logical_product")
SWIZZLED = (*TILED, "blocked_product", "raked_product", "tile_to_shape", "append", "prepend", "coalesce", "flatten",
            "filter", "filter_zeros", "recast_layout", "select", "group_modes", "dice", "unflatten", "nullspace",
            "max_common_layout", "make_ordered_layout", "make_layout_like")  # fmt: skip
# where strides may be negative: CuTe has no complement of such a layout
SIGNED = ("flatten", "filter", "filter_zeros", "right_inverse", "left_inverse", "coalesce", "composition", "append",
          "prepend", "slice_", "select", "group_modes", "recast_layout", "dice", "unflatten", "nullspace",
          "max_common_layout", "make_ordered_layout", "make_layout_like")  # fmt: skip
OPERATIONS = (*ONE, *TWO, *TILED, "coalesce", "complement", "slice_", "select", "group_modes", "recast_layout",
              "tile_to_shape", "dice", "unflatten", "max_common_layout", "make_ordered_layout")  # fmt: skip


def random_case(rng: random.Random, operation: str) -> Case:
    """A call of an operation of `OPERATIONS`; about one in twelve has a swizzled layout where CuTe takes one."""
    kinds = DEALT if operation == "make_layout_tv" else KINDS
    layout = random_layout(rng, strides=BACKWARDS if operation in SIGNED else STRIDES, kinds=kinds)
    if operation in SWIZZLED and rng.random() < 0.08:
        layout = Lay(layout.shape, layout.stride, rng.choice(SWIZZLES))
    return Case(operation, (layout, *_others(rng, operation, layout)))


def _others(rng: random.Random, operation: str, layout: Lay) -> tuple[Argument, ...]:
    if operation in ONE:
        return ()
    if operation in TILED:
        return (random_tiler(rng, layout),)
    if operation == "complement":
        return (rng.choice(COTARGETS),)
    if operation in ("slice_", "dice"):
        return (_cut(rng, layout.shape),)
    if operation == "select":
        modes = layout.shape if isinstance(layout.shape, tuple) else (layout.shape,)
        found = [rng.randrange(len(modes) + (rng.random() < 0.1)) for _ in range(rng.randint(1, 3))]
        while prod(prod(leaves(modes[mode])) for mode in found if mode < len(modes)) > 1024:
            found.pop()  # a mode twice may be large
        return tuple(found)
    if operation == "group_modes":
        first = rng.randrange(_rank(layout))
        return first, rng.randint(first + (rng.random() < 0.9), _rank(layout) + (rng.random() < 0.1))
    if operation == "tile_to_shape":
        sizes = layout.shape if isinstance(layout.shape, tuple) else (layout.shape,)
        found = [max(1, prod(leaves(size)) * rng.choice((1, 1, 2, 3)) - (rng.random() < 0.2)) for size in sizes]
        return tuple([*found, *rng.choices((1, 2, 5), k=rng.random() < 0.2)][: len(found) + 1 - (rng.random() < 0.1)])
    if operation == "unflatten":
        return (_nested(rng, len(leaves(layout.shape)) + rng.choice((0, 0, 0, 0, 1, -1))),)
    if operation == "make_ordered_layout":
        return (_order(rng, layout.shape),)
    if operation == "max_common_layout":
        return (_alike(rng, layout),)
    if operation == "recast_layout":
        return rng.choice(BITS), rng.choice(BITS)
    if operation == "coalesce":
        by_mode = isinstance(layout.shape, tuple) and rng.random() < 0.5
        return ((1,) * rng.randint(1, len(layout.shape)),) if by_mode else ()  # type: ignore[arg-type]
    return (random_layout(rng, depth=1, kinds=DEALT if operation == "make_layout_tv" else KINDS),)


def random_layout(
    rng: random.Random, depth: int = 2, most: int = 512, strides: Sequence[int] = STRIDES, kinds: Sequence[str] = KINDS
) -> Lay:
    """Half of them compact in some order but for gaps, a quarter with strides from a list, or of other kinds."""
    while True:
        shape = _tree(rng, rng.choice((0, 1, depth)))
        if prod(leaves(shape)) <= most:
            break
    kind = rng.choice(kinds)
    if kind == "list":
        return Lay(shape, _like(shape, lambda: rng.choice(strides)))
    return Lay(shape, _compact(rng, shape, 0.2 if kind == "gaps" else 0.0))


def _nested(rng: random.Random, places: int) -> IntTree:
    """A profile with so many places; one at least."""
    if places <= 1:
        return 0 if rng.random() < 0.8 else (0,)
    cuts = sorted(rng.sample(range(1, places), rng.randint(0, min(2, places - 1))))
    return tuple(_nested(rng, end - start) for start, end in pairwise([0, *cuts, places]) if end > start)


def _order(rng: random.Random, shape: IntTree) -> IntTree:
    """An order of the modes, or of modes inside them; about one in ten has a number twice or a mode too many."""
    tree = _coarse(rng, shape)
    order = list(range(-1, len(leaves(tree)) - 1))
    rng.shuffle(order)
    if rng.random() < 0.1:
        order[0] = order[-1]
    rest = iter(order)
    found = _like(tree, lambda: next(rest))
    return (*found, 9) if isinstance(found, tuple) and rng.random() < 0.05 else found


def _coarse(rng: random.Random, shape: IntTree) -> IntTree:
    """A shape, some of whose nested modes are one number."""
    if not isinstance(shape, tuple) or rng.random() < 0.2:
        return 0
    return tuple(_coarse(rng, branch) for branch in shape)


def _alike(rng: random.Random, layout: Lay) -> Lay:
    """Another layout with the same shape, or, seldom, any; often with the same first strides."""
    if rng.random() < 0.15:
        return random_layout(rng, depth=1, kinds=("compact",))
    own, other = leaves(layout.stride), leaves(_compact(rng, layout.shape, 0.2))
    same = rng.randint(0, len(own))
    rest = iter([*own[:same], *other[same:]])
    return Lay(layout.shape, _like(layout.shape, lambda: next(rest)))


def random_tiler(rng: random.Random, layout: Lay) -> Argument:
    """A layout, or a tuple of numbers and layouts for some of the layout's modes."""
    if rng.random() < 0.5 or not isinstance(layout.shape, tuple):
        return random_layout(rng, 1)
    count = rng.randint(1, len(layout.shape))
    return tuple(
        rng.choice((1, 2, 4, 8, 3)) if rng.random() < 0.5 else random_layout(rng, rng.choice((0, 1)))
        for _ in range(count)
    )


def leaves(tree: Any) -> list[int]:
    """The numbers of a tree, in order."""
    return [leaf for branch in tree for leaf in leaves(branch)] if isinstance(tree, tuple) else [tree]


def _rank(layout: Lay) -> int:
    return len(layout.shape) if isinstance(layout.shape, tuple) else 1


def _tree(rng: random.Random, depth: int) -> IntTree:
    if depth == 0 or (depth < 2 and rng.random() < 0.5):
        return rng.choice(SIZES)
    return tuple(_tree(rng, depth - 1) for _ in range(rng.randint(1, 3)))


def _like(shape: IntTree, number: Callable[[], int]) -> IntTree:
    return tuple(_like(branch, number) for branch in shape) if isinstance(shape, tuple) else number()


def _compact(rng: random.Random, shape: IntTree, gap: float) -> IntTree:
    """Strides of a random order of the innermost modes, sometimes with a gap before one."""
    sizes = leaves(shape)
    order = list(range(len(sizes)))
    rng.shuffle(order)
    strides, reach = [0] * len(sizes), 1
    for mode in order:
        if rng.random() < gap:
            reach *= rng.choice((2, 3, 4))
        strides[mode] = reach
        reach *= sizes[mode]
    rest = iter(strides)
    return _like(shape, lambda: next(rest))


def _cut(rng: random.Random, shape: IntTree) -> Argument:
    """A coordinate of which some parts, or all, are left free."""
    if isinstance(shape, tuple) and rng.random() < 0.6:
        return tuple(_cut(rng, branch) for branch in shape)
    return None if rng.random() < 0.5 else rng.randrange(prod(leaves(shape)))
