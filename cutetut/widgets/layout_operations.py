"""The layout viewer's operations on Python's side: how the second argument is read, and what CuTe DSL returns.

The browser has an algebra of its own (layout_algebra.js and its neighbours). Here the same questions are asked of
CuTe DSL, for the still picture and for `LayoutViewer.result`.

Offered is what makes a layout of a layout, or of its shape (`make_ordered_layout`) or its numbers (`unflatten`). The
copies of `tile_to_shape` stand in one order here, the first mode's neighbours first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass.cute as cute

from cutetut import layouts
from cutetut.layouts import LayoutError
from cutetut.widgets.layout_text import LayoutText, Tiler, read_plain, read_tiler, read_tree


def _number(text: str) -> Any:
    tree = read_tree(text)
    if isinstance(tree, tuple):
        raise LayoutError(f"{text.strip()} is a tuple: type a number, such as 24")
    return tree


def _numbers(text: str, count: int | None, wanted: str) -> Any:
    """Numbers with commas between them, in parentheses or not; as many as `count` says, if it does."""
    tree = read_tree(text if text.lstrip().startswith("(") else f"({text})") if text.strip() else ()
    if not isinstance(tree, tuple) or len(tree) != (count or len(tree) or 1):
        raise LayoutError(f"type {wanted}")
    if any(isinstance(part, tuple) for part in tree):
        raise LayoutError(f"type {wanted}")
    return tree


READERS: dict[str, Callable[[str], Any]] = {
    "none": lambda text: None,
    "layout": read_plain,
    "tiler": read_tiler,
    "number": _number,
    "profile": lambda text: read_tree(text) if text.strip() else None,
    "coordinate": lambda text: read_tree(text, "a coordinate, such as (1,_)", free=True),
    "bits": lambda text: _numbers(text, 2, "the new bits and the old bits, such as 32,16"),
    "modes": lambda text: _numbers(text, None, "the numbers of modes, such as 1,0"),
    "order": lambda text: read_tree(text, "the order of the modes, such as (1,0)"),
    "nesting": lambda text: read_tree(text, "a profile, such as ((0,0),0)"),
    "shape": lambda text: _numbers(text, None, "the shape to fill, such as 16,64"),
    "range": lambda text: _numbers(text, 2, "the first mode and the one behind the last, such as 0,2"),
}
KINDS = {
    "composition": "tiler",
    "coalesce": "profile",
    "flatten": "none",
    "unflatten": "nesting",
    "filter": "none",
    "filter_zeros": "none",
    "complement": "number",
    **dict.fromkeys(("logical_divide", "zipped_divide", "tiled_divide", "flat_divide", "logical_product"), "tiler"),
    **dict.fromkeys(("zipped_product", "tiled_product", "flat_product", "blocked_product", "raked_product"), "layout"),
    "tile_to_shape": "shape",
    "right_inverse": "none",
    "left_inverse": "none",
    "nullspace": "none",
    "max_common_layout": "layout",
    "slice_": "coordinate",
    "dice": "coordinate",
    "select": "modes",
    "group_modes": "range",
    "append": "layout",
    "prepend": "layout",
    "make_ordered_layout": "order",
    "make_layout_like": "none",
    "make_layout_tv": "layout",
    "recast_layout": "bits",
}


def read_other(operation: str, text: str) -> Any:
    """Return the second argument of an operation that `text` describes; None where there is none.

    Raises LayoutError, which says what the operation takes.
    """
    return READERS[KINDS[operation]](text)


def layout_of(text: LayoutText) -> Any:
    """Return the CuTe layout. Works only where CuTe layouts can be made (`cutetut.layouts.evaluate`)."""
    layout = cute.make_layout(text.shape, stride=text.stride)
    if text.swizzle is None:
        return layout
    swizzle = cute.make_swizzle(text.swizzle.bits, text.swizzle.base, text.swizzle.shift)
    return cute.make_composed_layout(swizzle, text.swizzle.offset, layout)


def result(operation: str, text: str, other: str) -> str:
    """Return what CuTe DSL makes of a layout and the operation's second argument, as CuTe prints it.

    `make_layout_tv` gives the thread-value layout, without the tile. Raises LayoutError where CuTe refuses, where
    it would end the process (modes that overlap), and where its answer has a mode of size 0 or less.
    """
    layout, argument = read_plain(text), read_other(operation, other)
    completes = KINDS[operation] in ("tiler", "layout", "number", "shape")
    if completes and operation not in ("composition", "append", "prepend", "max_common_layout"):
        for whole in _completed(operation, layout, argument):
            _refuse_overlap(whole)
    try:
        found = layouts.evaluate(lambda: _answer(operation, layout_of(layout), argument))
    except Exception as error:  # the DSL does not export its errors' types
        of = f"{text} and {other}" if other else text
        raise LayoutError(f"CuTe has no {operation} of {of}") from error
    if min(found[1]) < 1:
        raise LayoutError(
            f"{operation} of {text}: CuTe returns {found[0]}, which is no layout, because modes overlap"
        )
    return found[0]


def _answer(operation: str, layout: Any, argument: Any) -> tuple[str, list[int]]:
    made = _made(argument)
    if operation == "recast_layout":
        found = cute.recast_layout(*made, layout)
    elif operation == "select":
        found = cute.select(layout, mode=list(made))
    elif operation == "group_modes":
        found = cute.group_modes(layout, *made)
    elif operation == "coalesce":
        found = cute.coalesce(layout, target_profile=made)
    elif operation == "unflatten":
        shape, stride = (cute.unflatten(cute.flatten_to_tuple(tree), made) for tree in (layout.shape, layout.stride))
        found = cute.make_layout(shape, stride=stride)
    elif operation == "make_ordered_layout":
        found = cute.make_ordered_layout(layout.shape, order=made)
    elif operation == "tile_to_shape":
        found = cute.tile_to_shape(layout, made, order=tuple(range(len(made))))
    elif KINDS[operation] == "none":
        found = getattr(cute, operation)(layout)
    else:
        found = getattr(cute, operation)(layout, made)
    if operation == "make_layout_tv":
        found = found[1]
    sizes = cute.flatten_to_tuple(cute.shape(found))
    return str(found), [int(size) for size in sizes] or [1]


def _made(argument: Any) -> Any:
    if isinstance(argument, LayoutText):
        return layout_of(argument)
    return tuple(_made(part) for part in argument) if isinstance(argument, tuple) else argument


def _completed(operation: str, layout: LayoutText, other: Any) -> list[LayoutText]:
    """The layouts of which CuTe will take a complement: the tile of a divide, the block of a product."""
    if not operation.endswith("divide"):
        return [layout]
    return _layouts(other)


def _layouts(tiler: Tiler) -> list[LayoutText]:
    if isinstance(tiler, tuple):
        return [found for part in tiler for found in _layouts(part)]
    return [tiler] if isinstance(tiler, LayoutText) else []


def _refuse_overlap(layout: LayoutText) -> None:
    """Raise for modes that overlap or step backwards: CuTe DSL 4.8.1 divides by zero on some of them."""
    sizes, strides = (_flat(tree) for tree in (layout.shape, layout.stride))
    reach = 1
    for stride, size in sorted((d, n) for n, d in zip(sizes, strides, strict=True) if n > 1 and d != 0):
        if stride < reach:
            raise LayoutError(
                f"{layout} has a mode of stride {stride} inside modes that reach {reach} offsets: nothing completes "
                "such a layout"
            )
        reach = size * stride


def _flat(tree: layouts.IntTree) -> list[int]:
    return [leaf for branch in tree for leaf in _flat(branch)] if isinstance(tree, tuple) else [tree]
