"""The definitions of CuTe's operations as numbers: does a result keep its operation's law?

Nothing here calls CuTe or the widgets: a layout is evaluated as a sum of products, and a complement is found by
laying copies of a layout one after the other at the lowest offset that is still free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, zip_longest
from math import prod

from cutetut.layouts import IntTree
from tests.widgets.layout_oracle import Argument, Case, Lay
from tests.widgets.random_cases import leaves


def keeps_law(case: Case, result: Lay) -> bool:
    """Whether `result` is what the operation is defined to return; swizzles do not matter and are left out."""
    layout = case.arguments[0]
    assert isinstance(layout, Lay)
    return LAWS[case.operation](layout, case.arguments[1:], result)


def value(layout: Lay, index: int) -> int:
    """What the layout maps a 1-D index to; the last innermost mode is endless, as CuTe has it."""
    sizes, strides = leaves(layout.shape), leaves(layout.stride)
    total = 0
    for size, stride in zip(sizes[:-1], strides[:-1], strict=True):
        total += index % size * stride
        index //= size
    return total + index * strides[-1] if sizes else 0


def size(layout: Lay) -> int:
    return prod(leaves(layout.shape))


def values(layout: Lay) -> list[int]:
    return [value(layout, index) for index in range(size(layout))]


def mode(layout: Lay, number: int) -> Lay:
    if isinstance(layout.shape, tuple) and isinstance(layout.stride, tuple):
        return Lay(layout.shape[number], layout.stride[number])
    return layout


def rank(layout: Lay) -> int:
    return len(layout.shape) if isinstance(layout.shape, tuple) else 1


def starts(layout: Lay, wanted: int) -> list[int] | None:
    """Where copies of a layout's offsets start that cover all offsets once in order; None where they collide."""
    offsets = sorted(set(values(layout)))
    if offsets[0] != 0:
        return None
    covered: set[int] = set()
    found: list[int] = []
    free = count()
    while len(found) < wanted:
        start = next(offset for offset in free if offset not in covered)
        copy = {start + offset for offset in offsets}
        if copy & covered:
            return None
        covered |= copy
        found.append(start)
    return found


def _tiler(argument: Argument) -> Lay | tuple[Argument, ...]:
    if isinstance(argument, int):
        return Lay(argument, 1)
    assert argument is not None
    return argument


def _composed(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    tiler = _tiler(others[0])
    if isinstance(tiler, tuple):
        parts = ((mode(layout, i), (part,), mode(result, i)) for i, part in enumerate(tiler))
        return all(_composed(*part) for part in parts)
    return _same(layout, values(result), values(tiler))


def _divided(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    tiler = _tiler(others[0])
    if isinstance(tiler, tuple):
        parts = ((mode(layout, i), (part,), mode(result, i)) for i, part in enumerate(tiler))
        return all(_divided(*part) for part in parts)
    found = starts(tiler, _copies(tiler, size(layout)))
    if found is None:
        return False
    indices = [offset + start for start in found for offset in values(tiler)]
    return set(indices) >= set(range(size(layout))) and _same(layout, values(result)[: len(indices)], indices)


def _copies(tile: Lay, wanted: int) -> int:
    """How many copies of a tile, each at the lowest offset that is free, cover so many offsets; further ones do not."""
    covered: set[int] = set()
    for copies in count():
        if not (free := set(range(wanted)) - covered):
            return copies
        covered |= {min(free) + offset for offset in values(tile)}
    raise AssertionError


def _same(layout: Lay, found: list[int], indices: list[int]) -> bool:
    """Whether these are the layout's values at these indices; those past its end do not count."""
    pairs = zip(found, indices, strict=True)
    return all(one == value(layout, index) for one, index in pairs if 0 <= index < size(layout))


def _multiplied(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    tiler = _tiler(others[0])
    if isinstance(tiler, tuple):
        parts = ((mode(layout, i), (part,), mode(result, i)) for i, part in enumerate(tiler))
        return all(_multiplied(*part) for part in parts)
    places = values(tiler)
    found = starts(layout, max(places) + 1)
    if found is None:
        return False
    return values(result) == [offset + found[place] for place in places for offset in values(layout)]


def _logical(layout: Lay, others: tuple[Argument, ...], result: Lay, flat: int) -> bool:
    """A divide under other parentheses: `flat` counts how many of them, tiles and rests, are not there."""
    tiler = _tiler(others[0])
    if not isinstance(tiler, tuple):
        return _divided(layout, others, result)  # the same order: what is in the tile, then the rest
    modes = [mode(result, i) for i in range(rank(result))]
    count = len(tiler)
    tiles = modes[:count] if flat == 2 else [mode(modes[0], i) for i in range(count)]
    behind = modes[count:] if flat == 2 else modes[1:]
    rests = behind if flat else [mode(behind[0], i) for i in range(rank(behind[0]))]
    pairs = [_joined([tile, rest]) for tile, rest in zip(tiles, rests, strict=False)]
    return _divided(layout, others, _joined([*pairs, *rests[count:]]))


def _joined(modes: list[Lay]) -> Lay:
    return Lay(tuple(one.shape for one in modes), tuple(one.stride for one in modes))


def _product(layout: Lay, other: Lay) -> dict[tuple[int, int], int] | None:
    """The offset of each (index of the block, copy) of a product, or None where copies collide."""
    places = values(other)
    found = starts(layout, max(places) + 1)
    if found is None:
        return None
    return {(i, j): own + found[place] for i, own in enumerate(values(layout)) for j, place in enumerate(places)}


def _ordered(layout: Lay, other: Lay, raked: bool) -> list[tuple[int, int]]:
    """(index of the block, copy) of each index of a blocked or a raked product: modes of both in pairs."""
    blocks, copies = ([size(mode(one, i)) for i in range(rank(one))] for one in (layout, other))
    pairs = zip_longest(blocks, copies, fillvalue=1)
    found = [(0, 0)]
    steps = 1, 1
    for block, copy in pairs:
        inner = [(steps[0] * b, steps[1] * c) for b, c in _nested(block, copy, raked)]
        found = [(i + b, j + c) for b, c in inner for i, j in found]
        steps = steps[0] * block, steps[1] * copy
    return found


def _nested(block: int, copy: int, raked: bool) -> list[tuple[int, int]]:
    if raked:
        return [(b, c) for b in range(block) for c in range(copy)]
    return [(b, c) for c in range(copy) for b in range(block)]


def _placed(layout: Lay, others: tuple[Argument, ...], result: Lay, raked: bool) -> bool:
    (other,) = others
    assert isinstance(other, Lay)
    product = _product(layout, other)
    return product is not None and values(result) == [product[pair] for pair in _ordered(layout, other, raked)]


def _filled(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    """Copies next to each other, as many as each mode of the shape needs, the first mode's neighbours first."""
    sizes = layout.shape if isinstance(layout.shape, tuple) else (layout.shape,)
    counts, strides, below = [], [], 1
    for i, wanted in enumerate(others):
        assert isinstance(wanted, int)
        counts.append(-(-wanted // (prod(leaves(sizes[i])) if i < len(sizes) else 1)))
        strides.append(below)
        below *= counts[-1]
    return _placed(layout, (Lay(tuple(counts), tuple(strides)),), result, raked=False)


def _dealt(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    """The raked product says which thread and value a place has; this is its inverse."""
    (other,) = others
    assert isinstance(other, Lay)
    product = _product(layout, other)
    if product is None:
        return False
    tile = [product[pair] for pair in _ordered(layout, other, raked=True)]
    return [tile[place] if place < len(tile) else -1 for place in values(result)] == list(range(len(tile)))


def _cut(layout: Lay, coordinate: Argument) -> tuple[list[int], int]:
    """The offsets of what a coordinate leaves free, the first mode innermost, and that of what it fixes."""
    if coordinate is None:
        return values(layout), 0
    if not isinstance(coordinate, tuple):
        assert isinstance(coordinate, int)
        return [0], value(layout, coordinate)
    free, fixed = [0], 0
    for i, part in enumerate(coordinate):
        more, start = _cut(mode(layout, i), part)
        free, fixed = [offset + one for one in more for offset in free], fixed + start
    return free, fixed


def _together(parts: Iterable[Lay], result: Lay) -> bool:
    """The offsets of some layouts added up, the first one's innermost."""
    found = [0]
    for part in parts:
        found = [offset + own for own in values(part) for offset in found]
    return values(result) == found


def _numbered(layout: Lay, coordinate: Argument) -> list[Lay]:
    """The modes for which a coordinate has a number."""
    if coordinate is None:
        return []
    if not isinstance(coordinate, tuple):
        return [layout]
    return [part for i, at in enumerate(coordinate) for part in _numbered(mode(layout, i), at)]


def _zeros(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    """Every index whose coordinates are 0 wherever a stride is not, once."""
    found = [0]
    below = 1
    for n, d in zip(leaves(layout.shape), leaves(layout.stride), strict=True):
        found = [index + below * at for at in range(n if d == 0 else 1) for index in found]
        below *= n
    return sorted(values(result)) == sorted(found)


def _common(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    (other,) = others
    assert isinstance(other, Lay)
    inside = all(0 <= k < min(size(layout), size(other)) for k in values(result))
    counted = list(range(size(result)))
    return inside and all([value(one, k) for k in values(result)] == counted for one in (layout, other))


def _ranked(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    """The offsets are 0, 1, 2, ... along the modes, the one with the lowest order first; equal ones from the left."""
    found = {0: 0}  # offset of each index
    steps = 1
    for _, n, below in sorted(_modes_by(layout.shape, others[0], 1), key=lambda part: part[0]):
        found = {index + below * at: offset + steps * at for at in range(n) for index, offset in found.items()}
        steps *= n
    return values(result) == [found[index] for index in range(len(found))]


def _modes_by(shape: IntTree, order: Argument, below: int) -> list[tuple[int, int, int]]:
    """(order, size, number of indices before) of each mode that an order has a number for."""
    if not isinstance(order, tuple):
        assert isinstance(order, int)
        return [(order, prod(leaves(shape)), below)]
    assert isinstance(shape, tuple)
    found = []
    for branch, part in zip(shape, order, strict=True):
        found += _modes_by(branch, part, below)
        below *= prod(leaves(branch))
    return found


def _like(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    offsets = sorted(set(values(layout)))
    return values(result) == [offsets.index(offset) for offset in values(layout)]


def _completed(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    (cotarget,) = others
    assert isinstance(cotarget, int)
    if min(leaves(result.shape)) < 1:
        return False
    found = starts(layout, size(result))
    covers = size(result) * len(set(values(layout))) >= cotarget
    return found is not None and values(result) == found and covers


def _recast(layout: Lay, others: tuple[Argument, ...], result: Lay) -> bool:
    """Every bit is still there, and each new element has one of them."""
    new, old = others
    assert isinstance(new, int) and isinstance(old, int)
    bits = {bit for offset in values(layout) for bit in range(offset * old, (offset + 1) * old)}
    elements = [set(range(offset * new, (offset + 1) * new)) for offset in values(result)]
    return bits <= set[int]().union(*elements) and all(bits & element for element in elements)


LAWS: dict[str, Callable[..., bool]] = {
    "composition": _composed,
    "logical_divide": _divided,
    "zipped_divide": partial(_logical, flat=0),
    "tiled_divide": partial(_logical, flat=1),
    "flat_divide": partial(_logical, flat=2),
    "logical_product": _multiplied,
    **dict.fromkeys(("zipped_product", "tiled_product", "flat_product"), _multiplied),
    "blocked_product": partial(_placed, raked=False),
    "raked_product": partial(_placed, raked=True),
    "tile_to_shape": _filled,
    "make_layout_tv": _dealt,
    "slice_": lambda layout, others, result: values(result) == _cut(layout, others[0])[0],
    "select": lambda layout, numbers, result: _together([mode(layout, number) for number in numbers], result),
    "dice": lambda layout, others, result: _together(_numbered(layout, others[0]), result),
    "nullspace": _zeros,
    "max_common_layout": _common,
    "make_ordered_layout": _ranked,
    "make_layout_like": _like,
    "append": lambda layout, others, result: _together((layout, others[0]), result),
    "prepend": lambda layout, others, result: _together((others[0], layout), result),
    "complement": _completed,
    "recast_layout": _recast,
    **dict.fromkeys(
        ("coalesce", "flatten", "unflatten", "group_modes"),
        lambda layout, others, result: values(result) == values(layout),
    ),
    **dict.fromkeys(
        ("filter", "filter_zeros"), lambda layout, others, result: set(values(result)) == set(values(layout))
    ),
    "right_inverse": lambda layout, others, result: (
        [value(layout, index) for index in values(result)] == list(range(size(result)))
    ),
    "left_inverse": lambda layout, others, result: (
        [value(result, offset) for offset in values(layout)] == list(range(size(layout)))
    ),
}
