"""Layouts as text, `shape:stride`, read the way layout_viewer.js reads them: the same rules and the same messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from cutetut.layouts import IntTree, LayoutError

MOST = 16384  # elements that are drawn
LARGEST = 2**31 - 1  # offset that is drawn
EXAMPLE = "(4,8):(8,1)"
_TOKEN = re.compile(r"\s*(-?[0-9]+|[(),:])")


@dataclass(frozen=True)
class LayoutText:
    """A static layout: its shape and stride as nested tuples, and both as CuTe prints them."""

    shape: IntTree
    stride: IntTree

    def __str__(self) -> str:
        return f"{_written(self.shape)}:{_written(self.stride)}"

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return prod(_leaves(self.shape))


def read_layout(text: str) -> LayoutText:
    """Return the layout that `text` describes, such as "((4,2),8):((1,16),4)".

    A one-tuple is written `(4)`, as CuTe prints it, or `(4,)`. Raises LayoutError, which says where and what to
    change, for anything but whole numbers in equally nested shape and stride, for a shape below 1, and for
    layouts that are too large to draw.
    """
    _refuse_other_kinds(text)
    reader = _Reader(text)
    shape = reader.tree()
    if not reader.take(":"):
        if reader.sign is None:
            raise LayoutError("the stride is missing: write shape:stride, such as 8:1")
        raise reader.unexpected('":" and the stride')
    stride = reader.tree()
    if reader.sign is not None:
        raise reader.unexpected("the end")
    _check(shape, stride)
    return LayoutText(shape, stride)


def _refuse_other_kinds(text: str) -> None:
    if not text.strip():
        raise LayoutError(f"type shape:stride, such as {EXAMPLE}")
    if re.search(r"S<| o ", text):
        raise LayoutError(
            'this is a swizzle in front of a layout: type what stands behind the last "o", and look at the swizzle '
            "in the swizzle view"
        )
    if "?" in text:
        raise LayoutError('"?" is a number known only at run time: type a number in its place')


class _Reader:
    """The text token by token; `sign` is the next one, None at the end."""

    def __init__(self, text: str) -> None:
        self.text = text.rstrip()
        self.advance(0)

    def advance(self, start: int) -> None:
        found = _TOKEN.match(self.text, start)
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

    def tree(self) -> IntTree:
        """An integer, or trees in parentheses."""
        opened = self.at
        if not self.take("("):
            return self.number()
        branches = [self.tree()]
        while self.take(",") and self.sign != ")":
            branches.append(self.tree())
        if self.sign is None or self.sign == ":":
            raise LayoutError(f"the parenthesis at character {opened + 1} is not closed")
        if not self.take(")"):
            raise self.unexpected('"," or ")"')
        return tuple(branches)

    def number(self) -> int:
        sign = self.sign
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


def _check(shape: IntTree, stride: IntTree) -> None:
    _refuse_incongruent(shape, stride)
    sizes, strides = _leaves(shape), _leaves(stride)
    if min(sizes) < 1:
        raise LayoutError(f"the shape has {min(sizes)}: each of its numbers is at least 1")
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
