"""Layouts as text, `shape:stride`, read the way layout_viewer.js reads them: the same rules and the same messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from cutetut.layouts import IntTree, LayoutError

MOST = 16384  # elements that are drawn
LARGEST = 2**31 - 1  # offset that is drawn
EXAMPLE = "(4,8):(8,1)"
_TOKEN = re.compile(r"\s*(-?[0-9]+|[(),:])")
_TOKEN_OR_FREE = re.compile(r"\s*(-?[0-9]+|[(),:_])")
_INTEGER = r"\s*(-?[0-9]+)\s*"
_SWIZZLE = re.compile(rf"\s*S<{_INTEGER},{_INTEGER},{_INTEGER}>\s*o{_INTEGER}o(?![a-z])")


@dataclass(frozen=True)
class Swizzle:
    """A swizzle in front of a layout: bits M+S to M+S+B-1 of the offset change bits M to M+B-1 by exclusive or."""

    bits: int
    base: int
    shift: int
    offset: int = 0  # added before

    def __str__(self) -> str:
        return f"S<{self.bits},{self.base},{self.shift}> o {self.offset} o "


@dataclass(frozen=True)
class LayoutText:
    """A static layout: its shape and stride as nested tuples, the swizzle in front, and all of it as CuTe prints it."""

    shape: IntTree
    stride: IntTree
    swizzle: Swizzle | None = None

    def __str__(self) -> str:
        return f"{self.swizzle or ''}{_written(self.shape)}:{_written(self.stride)}"

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return prod(_leaves(self.shape))


Tiler: TypeAlias = "LayoutText | int | tuple[Tiler, ...]"
Coordinate: TypeAlias = "int | None | tuple[Coordinate, ...]"


def read_layout(text: str) -> LayoutText:
    """Return the layout that `text` describes, such as "((4,2),8):((1,16),4)" or "S<3,4,3> o 0 o (8,64):(64,1)".

    A one-tuple is written `(4)`, as CuTe prints it, or `(4,)`. Raises LayoutError, which says where and what to
    change, for anything but whole numbers in equally nested shape and stride, for a shape below 1, and for
    layouts that are too large to draw.
    """
    layout = read_plain(text)
    _check(layout.shape, layout.stride)
    return layout


def read_plain(text: str) -> LayoutText:
    """Return the layout that `text` describes, drawn or not. Raises LayoutError as `read_layout` does."""
    if not text.strip():
        raise LayoutError(f"type shape:stride, such as {EXAMPLE}")
    _refuse_run_time(text)
    swizzle, start = _read_swizzle(text)
    reader = _Reader(text, start)
    shape = reader.tree()
    if not reader.take(":"):
        if reader.sign is None:
            raise LayoutError("the stride is missing: write shape:stride, such as 8:1")
        raise reader.unexpected('":" and the stride')
    stride = reader.tree()
    reader.finish()
    return _layout(shape, stride, swizzle)


def read_tiler(text: str) -> Tiler:
    """Return a tiler: a layout, a number, or a tuple of tilers, one for each mode. Raises LayoutError."""
    if not text.strip():
        raise LayoutError("type a layout, such as 4:2, or a tuple of tilers, such as (2,4:2)")
    _refuse_run_time(text)
    if text.lstrip().startswith("S"):
        return read_plain(text)
    reader = _Reader(text)
    tiler = reader.tiler()
    reader.finish()
    return tiler


def read_tree(text: str, wanted: str = "a number, such as 24", *, free: bool = False) -> Coordinate:
    """Return a tree of whole numbers, which is `wanted`; with `free`, "_" is a coordinate that is left open: None.

    Raises LayoutError.
    """
    if not text.strip():
        raise LayoutError(f"type {wanted}")
    _refuse_run_time(text)
    reader = _Reader(text, free=free)
    tree = reader.tree()
    reader.finish()
    return tree


def _refuse_run_time(text: str) -> None:
    if "?" in text:
        raise LayoutError('"?" is a number known only at run time: type a number in its place')


def _read_swizzle(text: str) -> tuple[Swizzle | None, int]:
    """Return the swizzle that a text begins with, if there is one, and where the rest of the text starts."""
    found = _SWIZZLE.match(text)
    if not found:
        if not re.search(r"^\s*S|\bo\b", text):
            return None, 0
        raise LayoutError(
            "a swizzled layout is S<B,M,S> o offset o shape:stride, such as S<3,4,3> o 0 o (8,64):(64,1)"
        )
    swizzle = Swizzle(*map(int, found.groups()))
    name = f"S<{swizzle.bits},{swizzle.base},{swizzle.shift}>"
    if min(swizzle.bits, swizzle.base) < 0:
        raise LayoutError(f"{name}: B and M are whole numbers from 0 on")
    if swizzle.shift < swizzle.bits:
        raise LayoutError(f"{name}: S is less than B, so the bits that are read would be bits that are changed")
    if swizzle.bits + swizzle.base + swizzle.shift > 30:
        raise LayoutError(f"{name}: B + M + S is above 30, the bits of an offset here")
    if abs(swizzle.offset) > LARGEST:
        raise LayoutError(f"{swizzle.offset} is too large: numbers up to {LARGEST} are drawn")
    return swizzle, found.end()


class _Reader:
    """The text token by token; `sign` is the next one, None at the end."""

    def __init__(self, text: str, start: int = 0, *, free: bool = False) -> None:
        self.text = text.rstrip()
        self.token = _TOKEN_OR_FREE if free else _TOKEN
        self.advance(start)

    def advance(self, start: int) -> None:
        found = self.token.match(self.text, start)
        if found is None and start < len(self.text):
            at = len(self.text) - len(self.text[start:].lstrip())
            raise LayoutError(
                f'character {at + 1}, "{self.text[at]}": a layout has whole numbers, commas, parentheses and one colon'
            )
        self.sign = None if found is None else found[1]
        self.end = len(self.text) if found is None else found.end()
        self.at = self.end - len(self.sign or "")

    def take(self, sign: str) -> bool:
        if self.sign != sign:
            return False
        self.advance(self.end)
        return True

    def tree(self) -> Any:
        """An integer, or trees in parentheses."""
        return self.list(self.tree) if self.sign == "(" else self.number()

    def list(self, one: Callable[[], Any]) -> tuple[Any, ...]:
        """What stands in parentheses, read one by one."""
        opened = self.at
        self.take("(")
        branches = [one()]
        while self.take(",") and self.sign != ")":
            branches.append(one())
        if self.sign is None or self.sign == ":":
            raise LayoutError(f"the parenthesis at character {opened + 1} is not closed")
        if not self.take(")"):
            raise self.unexpected('"," or ")"')
        return tuple(branches)

    def tiler(self) -> Tiler:
        """A number, a layout, or a tuple of such."""
        parts = self.list(self.tiler) if self.sign == "(" else self.number()
        if self.sign != ":":
            return parts
        if _has_layout(parts):
            raise self.unexpected('"," or ")"')
        self.take(":")
        return _layout(parts, self.tree())

    def finish(self) -> None:
        if self.sign is not None:
            raise self.unexpected("the end")

    def number(self) -> Any:
        sign = self.sign
        if sign == "_":
            self.advance(self.end)
            return None
        if sign is None or sign in "(),:":
            raise self.unexpected('a number or "("')
        value = int(sign)
        if abs(value) > LARGEST:
            raise LayoutError(f"{value} is too large: numbers up to {LARGEST} are drawn")
        self.advance(self.end)
        return value

    def unexpected(self, expected: str) -> LayoutError:
        if self.sign is None:
            return LayoutError(f"the text ends where {expected} should stand")
        return LayoutError(f'character {self.at + 1}, "{self.sign}": {expected} should stand here')


def _layout(shape: Any, stride: Any, swizzle: Swizzle | None = None) -> LayoutText:
    _refuse_incongruent(shape, stride)
    _refuse_small(shape)
    return LayoutText(shape, stride, swizzle)


def _refuse_small(shape: IntTree) -> None:
    if (least := min(_leaves(shape))) < 1:
        raise LayoutError(f"the shape has {least}: each of its numbers is at least 1")


def _has_layout(tiler: Tiler) -> bool:
    return isinstance(tiler, LayoutText) or isinstance(tiler, tuple) and any(map(_has_layout, tiler))


def _check(shape: IntTree, stride: IntTree) -> None:
    """Refuse what is too large to draw."""
    sizes, strides = _leaves(shape), _leaves(stride)
    if (size := prod(sizes)) > MOST:
        raise LayoutError(f"size {size}: layouts of up to {MOST} elements are drawn")
    reach = sum((n - 1) * abs(d) for n, d in zip(sizes, strides, strict=True))
    if reach > LARGEST:
        raise LayoutError(f"it reaches offset {reach}: offsets up to {LARGEST} are drawn")


def _refuse_incongruent(shape: IntTree, stride: IntTree) -> None:
    if isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride):
        for one, other in zip(shape, stride, strict=True):
            _refuse_incongruent(one, other)
    elif isinstance(shape, tuple) or isinstance(stride, tuple):
        raise LayoutError(
            f"shape and stride are nested differently: {_written(shape)} in the shape has {_written(stride)} in the "
            "stride"
        )


def _written(tree: IntTree) -> str:
    return f"({','.join(_written(branch) for branch in tree)})" if isinstance(tree, tuple) else str(tree)


def _leaves(tree: IntTree) -> list[int]:
    return [leaf for branch in tree for leaf in _leaves(branch)] if isinstance(tree, tuple) else [tree]
