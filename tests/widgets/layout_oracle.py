"""CuTe's own layout algebra, asked for many cases at once: the oracle of layout_algebra.js.

CuTe DSL evaluates its algebra while it traces, some thousand calls a second. It ends the process on some
arguments (a division by zero in native code), so the cases run in a forked child, and another child goes on
after the case that ended it.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import cutlass.cute as cute

from cutetut import layouts

REFUSED = "refused"  # CuTe raises
CRASHED = "crashed"  # CuTe ends the process

Argument: TypeAlias = "Lay | int | None | tuple[Argument, ...]"


@dataclass(frozen=True)
class Lay:
    """A layout's shape and stride, and the swizzle (B, M, S) in front of it, if there is one."""

    shape: layouts.IntTree
    stride: layouts.IntTree
    swizzle: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        plain = f"{written(self.shape)}:{written(self.stride)}"
        return plain if self.swizzle is None else "S<{},{},{}> o 0 o ".format(*self.swizzle) + plain

    def cute(self) -> Any:
        layout = cute.make_layout(self.shape, stride=self.stride)
        if self.swizzle is None:
            return layout
        return cute.make_composed_layout(cute.make_swizzle(*self.swizzle), 0, layout)


@dataclass(frozen=True)
class Case:
    """One call: an operation's name in CuTe DSL, and its arguments."""

    operation: str
    arguments: tuple[Argument, ...]

    def texts(self) -> list[str]:
        """The arguments as a reader types them."""
        return [written(argument) for argument in self.arguments]


def written(tree: Any) -> str:
    """A tree as CuTe prints it; a coordinate that is left free is "_"."""
    if isinstance(tree, tuple):
        return f"({','.join(written(branch) for branch in tree)})"
    return "_" if tree is None else str(tree)


def answers(cases: Sequence[Case]) -> list[str]:
    """What CuTe answers to each case: a layout or a number as text, `REFUSED` or `CRASHED`."""
    found: list[str] = []
    while len(found) < len(cases):
        found += _asked(cases[len(found) :])
    return found


def _asked(cases: Sequence[Case]) -> list[str]:
    """The answers of one child: to all cases, or up to the one that ended it."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receive)
            _answer_all(cases, send)
            os._exit(0)
        finally:
            os._exit(1)  # never back into the tests
    os.close(send)
    with os.fdopen(receive) as lines:
        found = lines.read().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) in (signal.SIGFPE, signal.SIGABRT, signal.SIGSEGV), os.WTERMSIG(status)
        return [*found, CRASHED]
    assert status == 0 and len(found) == len(cases)
    return found


def _answer_all(cases: Sequence[Case], send: int) -> None:
    """Write a line for each case, in a process that may end at any of them."""
    faulthandler.disable()  # pytest's would print a traceback of what is expected to happen here
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(send, "w", buffering=1) as out:
        layouts.evaluate(lambda: [out.write(_answer(case) + "\n") for case in cases])


def _answer(case: Case) -> str:
    try:
        result = OPERATIONS[case.operation](*map(_cute, case.arguments))
    except Exception:  # the DSL does not export its errors' types
        return REFUSED
    return _text(result)


def _text(result: Any) -> str:
    if isinstance(result, tuple):
        return f"({','.join(_text(part) for part in result)})"
    return str(result)


def _cute(argument: Argument) -> Any:
    if isinstance(argument, Lay):
        return argument.cute()
    return tuple(map(_cute, argument)) if isinstance(argument, tuple) else argument


OPERATIONS: dict[str, Callable[..., Any]] = {
    name: getattr(cute, name)
    for name in (
        "size", "rank", "depth", "cosize", "crd2idx", "idx2crd", "slice_", "append", "prepend", "coalesce", "filter",
        "filter_zeros", "flatten", "composition", "complement", "right_inverse", "left_inverse", "nullspace",
        "logical_divide", "zipped_divide", "tiled_divide", "flat_divide",
        "logical_product", "zipped_product", "tiled_product", "flat_product", "blocked_product", "raked_product",
        "make_layout_tv", "dice", "make_layout_like", "max_common_layout", "max_common_vector",
    )
}  # fmt: skip
OPERATIONS["recast_layout"] = lambda layout, new, old: cute.recast_layout(new, old, layout)
OPERATIONS["select"] = lambda layout, *modes: cute.select(layout, mode=list(modes))
OPERATIONS["group_modes"] = cute.group_modes
OPERATIONS["make_ordered_layout"] = lambda layout, order: cute.make_ordered_layout(layout.shape, order)
OPERATIONS["tile_to_shape"] = lambda layout, *shape: cute.tile_to_shape(layout, shape, tuple(range(len(shape))))
OPERATIONS["coalesce"] = lambda layout, profile=None: cute.coalesce(layout, target_profile=profile)


def _unflattened(layout: Any, profile: Argument) -> Any:
    """CuTe unflattens tuples, so here both of a layout's."""
    shape, stride = (cute.unflatten(cute.flatten_to_tuple(tree), profile) for tree in (layout.shape, layout.stride))
    return cute.make_layout(shape, stride=stride)


OPERATIONS["unflatten"] = _unflattened


def read(text: str) -> Lay:
    """The layout that CuTe printed, without its swizzle; a tuple of one is printed "(4)"."""
    shape, stride = text.split(" o ")[-1].split(":")
    return Lay(_tree(shape)[0], _tree(stride)[0])


def _tree(text: str, start: int = 0) -> tuple[Any, int]:
    """The tree that begins at a place of the text, and where it ends."""
    if text[start] != "(":
        end = start + 1
        while end < len(text) and text[end].isdigit():
            end += 1
        return int(text[start:end]), end
    branches, start = [], start + 1
    while text[start] != ")":
        branch, start = _tree(text, start)
        branches.append(branch)
        start += text[start] == ","
    return tuple(branches), start + 1
