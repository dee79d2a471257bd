"""Random layouts, evaluated by CuTe itself: what the layout viewer's arithmetic is held against."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import cutlass.cute as cute

from cutetut import layouts

Tree = layouts.IntTree


@dataclass(frozen=True)
class Evaluated:
    """A layout as CuTe prints it, and for each index its nested coordinate, as CuTe prints it, and its offset."""

    text: str
    coordinates: list[str]
    offsets: list[int]


def random_trees(rng: random.Random, most: int = 512) -> tuple[Tree, Tree]:
    """A shape of up to `most` elements and strides nested like it."""
    while True:
        shape = _tree(rng, 3 if rng.random() < 0.8 else 0)
        if prod(_leaves(shape)) <= most:
            return shape, _like(shape, lambda: rng.choice((0, 1, 1, 2, 4, 8, 16, 64, -1, rng.randrange(200))))


def evaluated(trees: Sequence[tuple[Tree, Tree]]) -> list[Evaluated]:
    """What CuTe says about each (shape, stride); one trace for all of them."""

    def read() -> list[Evaluated]:
        found = []
        for shape, stride in trees:
            layout = cute.make_layout(shape, stride=stride)
            coords = [cute.idx2crd(index, shape) for index in range(cute.size(layout))]
            offsets = [int(cute.crd2idx(coord, layout)) for coord in coords]
            found.append(Evaluated(str(layout), [_written(coord) for coord in coords], offsets))
        return found

    return layouts.evaluate(read)


def _tree(rng: random.Random, depth: int) -> Tree:
    if depth == 0 or (depth < 3 and rng.random() < 0.5):
        return rng.choice((1, 2, 2, 3, 4, 5, 8))
    return tuple(_tree(rng, depth - 1) for _ in range(rng.randint(1, 3)))


def _like(shape: Tree, number: Any) -> Tree:
    return tuple(_like(branch, number) for branch in shape) if isinstance(shape, tuple) else number()


def _leaves(tree: Tree) -> list[int]:
    return [leaf for branch in tree for leaf in _leaves(branch)] if isinstance(tree, tuple) else [tree]


def _written(tree: Any) -> str:
    return f"({','.join(_written(branch) for branch in tree)})" if isinstance(tree, tuple) else str(tree)
