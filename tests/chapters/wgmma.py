"""What chapters on WGMMA are held against: the cases of both majors, descriptors, and constraints on tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from cutetut.inspect.descriptors import Issue

BLAS = {"NT": ("MN", "MN"), "TN": ("K", "K"), "NN": ("MN", "K"), "TT": ("K", "MN")}  # the majors of A and B
SWIZZLES = ("INTER", "SW32", "SW64", "SW128")

DESCRIPTORS = [  # of a tile of 128x64: major, swizzle; leading and stride byte offset, code: section 9.7.15.5.1.2
    ("K", "INTER", (2048, 128, 0)),
    ("K", "SW64", (None, 512, 2)),
    ("K", "SW128", (None, 1024, 1)),
    ("MN", "INTER", (2048, 128, 0)),
    ("MN", "SW32", (256, 2048, 3)),
    ("MN", "SW128", (None, 2048, 1)),
]
TILES = [(32, 16), (48, 24), (64, 24), (64, 64), (32, 64), (64, 32)]  # rows and k: each constraint holds and fails


def assert_described(issues: list[Issue], swizzled: tuple[int | None, int, int]) -> None:
    """Every WGMMA has these offsets and this swizzle in the descriptors of both operands; None: of no meaning."""
    leading, stride, code = swizzled
    for found in (found for issue in issues for found in (issue.a, issue.b)):
        assert found is not None and found.base_offset == 0
        assert (found.stride, found.swizzle) == (stride, code)
        assert leading is None or found.leading == leading


def constraints(
    of_mma: Callable[..., None], of_layout: Callable[..., None], modes: Iterable[Any]
) -> dict[tuple[int, int, Any, str], tuple[bool, bool]]:
    """Whether the constraint of the MMA atom holds, and that of the layout atom, by rows, k, major and swizzle of A."""
    return {
        (rows, k, mode, swizzle): (_holds(of_mma, rows, k, 64), _holds(of_layout, rows, k, mode, swizzle))
        for (rows, k), mode, swizzle in product(TILES, modes, SWIZZLES)
    }


def _holds(constraint: Callable[..., None], *arguments: Any) -> bool:
    """Whether it lets a tile of A pass; where it does not, its message says which constraint it is."""
    try:
        constraint("A", *arguments)
    except ValueError as error:
        assert str(error).startswith(("MMA atom:", "layout atom:"))
        return False
    return True
