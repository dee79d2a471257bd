"""The definitions of CuTe's operations as numbers: does a result keep its operation's law?

Nothing here calls CuTe or the widgets: a layout is evaluated as a sum of products, and a complement is found by
laying copies of a layout one after the other at the lowest offset that is still free.
"""

from __future__ import annotations

from itertools import count
from math import prod

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


LAWS = {
    "composition": _composed,
    "logical_divide": _divided,
    "logical_product": _multiplied,
    "complement": _completed,
    "recast_layout": _recast,
    "coalesce": lambda layout, others, result: values(result) == values(layout),
    "filter": lambda layout, others, result: set(values(result)) == set(values(layout)),
    "right_inverse": lambda layout, others, result: (
        [value(layout, index) for index in values(result)] == list(range(size(result)))
    ),
    "left_inverse": lambda layout, others, result: (
        [value(result, offset) for offset in values(layout)] == list(range(size(layout)))
    ),
}
