"""Source places that CuTe DSL notes for each operation: looked up once, and right after many others."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
import pytest
from cutlass._mlir import ir

from cutetut.emulator.host import compilation, compile_cache

pytestmark = pytest.mark.emulator


def here(frameinfo: Callable[[types.FrameType], Any]) -> Any:
    return frameinfo(sys._getframe(1))


def test_each_place_is_looked_up_once() -> None:
    asked: list[tuple[types.CodeType, int]] = []

    def original(frame: types.FrameType) -> inspect.Traceback:
        asked.append((frame.f_code, frame.f_lasti))
        return inspect.getframeinfo(frame)

    frameinfo = compilation.once_per_place(original)
    found = [[here(frameinfo), here(frameinfo)] for _ in range(3)]
    assert len(asked) == 2 and found[0] == found[1] == found[2]
    first, second = found[0]
    assert first.lineno == second.lineno == inspect.currentframe().f_lineno - 3  # type: ignore[union-attr]
    assert first.positions.col_offset < second.positions.col_offset


def test_places_of_old_functions_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "PLACES", 2)
    lines: list[int] = []

    def original(frame: types.FrameType) -> int:
        lines.append(frame.f_lineno)
        return frame.f_lineno

    frameinfo = compilation.once_per_place(original)
    for number in (1, 1, 2, 3, 1):  # the third place makes the first two go
        code = compile("\n" * (number - 1) + "found = here(frameinfo)", f"{number}.py", "exec")
        for _ in range(2):
            scope: dict[str, Any] = {"here": here, "frameinfo": frameinfo}
            exec(code, scope)
            assert scope["found"] == number
    assert lines == [1, 1, 2, 3, 1]


def test_a_location_belongs_to_the_context_it_was_made_in() -> None:
    """A trace has a context of its own, and two may alternate."""
    made: list[Any] = []

    def original(info: Any) -> ir.Location:
        made.append(info)
        return ir.Location.file(*info)

    location = compilation.once_per_context(original, ir)
    places = [("a.py", 1, 2), ("b.py", 3, 4)]
    for context in (one := ir.Context(), other := ir.Context(), one):
        with context:
            for _ in range(2):
                for place in places:
                    found = location(place)
                    assert found.context is context and found == ir.Location.file(*place)
    assert made == places * 3 and one is not other


LINE = sys._getframe().f_lineno


@cute.jit
def doubled(x: cutlass.Int32) -> None:
    y = x * 2
    cute.printf("%d", y)


def test_operations_carry_the_line_that_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the compiler's module prints its locations; one of the cache has the folder of whoever compiled it."""
    monkeypatch.setenv(compile_cache.VARIABLE, "off")
    text = cute.compile(doubled, cutlass.Int32(3)).ir_module.operation.get_asm(enable_debug_info=True)
    places = {int(line) for line in re.findall(rf'"{re.escape(__file__)}":(\d+):', text)}
    assert {LINE + 5, LINE + 6} <= places <= set(range(LINE + 3, LINE + 7))
