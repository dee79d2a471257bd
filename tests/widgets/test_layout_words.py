"""What the layout viewer reads and writes, under node: arguments, numbers of a layout, loops, lines of CuTe DSL."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Any

import cutlass.cute as cute
import pytest

from cutetut import layouts
from cutetut.widgets.layout_operations import KINDS
from cutetut.widgets.layout_viewer import ALGEBRA
from tests.widgets import node
from tests.widgets.layout_oracle import CRASHED, REFUSED, Lay, answers, written
from tests.widgets.random_cases import BACKWARDS, OPERATIONS, SWIZZLES, random_case, random_layout
from tests.widgets.test_layout_viewer import BAD_ARGUMENTS

WIDGET = (*ALGEBRA, "layout_panels.js")


def swizzled(rng: random.Random) -> Lay:
    layout = random_layout(rng, strides=BACKWARDS)
    return Lay(layout.shape, layout.stride, rng.choice((None, *SWIZZLES)))


def test_the_operations_are_those_of_python() -> None:
    assert node.run("return Object.entries(OPERATIONS).map(([name, { other }]) => [name, other]);", None) == [
        [name, kind] for name, kind in KINDS.items()
    ]


def test_bad_arguments_are_refused_as_in_python() -> None:
    said = node.run(
        """return data.map(([name, text]) => {
             try { READERS[OPERATIONS[name].other](text); return null; } catch (error) { return error.message; }
           });""",
        [(operation, other) for operation, other, _ in BAD_ARGUMENTS],
    )
    assert said == [says for _, _, says in BAD_ARGUMENTS]


def test_a_mistake_has_its_place() -> None:
    places = node.run(
        "return data.map((text) => { try { readLayout(text); } catch (error) { return error.at; } });",
        ["(4,x):(1,4)", "(4,8):(1,4))", "(4,8):(1,", "((4,2),8:(1,4)", "(4,?):(1,4)", "(4,8):4", "4:99999999999"],
    )
    assert places == [3, 11, 9, 0, 3, None, 2]


def test_offsets_and_coordinates_are_cutes() -> None:
    """Of swizzled layouts, and with strides below 0, too."""
    rng = random.Random(31)
    chosen = [swizzled(rng) for _ in range(200)]

    def read() -> list[Any]:
        found = []
        for lay in chosen:
            layout = lay.cute()
            size = cute.size(layout)
            values = [int(layout(index)) for index in range(size)]
            coords = [written(cute.idx2crd(index, lay.shape)) for index in range(size)]
            numbers = [size, cute.rank(layout), cute.depth(layout)]
            found.append([values, coords, numbers])
        return found

    browser = node.run(
        """return data.map((text) => {
             const layout = readPlain(text);
             const size = sizeOf(layout.shape), indices = [...Array(size).keys()];
             return [allValues(layout), indices.map((i) => write(idx2crd(i, layout.shape))),
               [size, modesOf(layout).length, depthOf(layout.shape)]];
           });""",
        [str(lay) for lay in chosen],
    )
    for lay, cutes, browsers in zip(chosen, layouts.evaluate(read), browser, strict=True):
        assert cutes == browsers, lay
    assert sum(lay.swizzle is not None for lay in chosen) > 50


def test_a_swizzle_with_an_offset_is_evaluated_as_cute_does() -> None:
    def read() -> list[int]:
        plain = cute.make_layout((8, 64), stride=(64, 1))
        layout = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 192, plain)
        return [int(layout(index)) for index in range(512)]

    assert node.run("return allValues(readPlain(data));", "S<3,4,3> o 192 o (8,64):(64,1)") == layouts.evaluate(read)


def test_the_arithmetic_adds_up_to_cutes_offset() -> None:
    """Each line is an equation; the one named "offset" ends in CuTe's."""
    rng = random.Random(12)
    for lay in (swizzled(rng) for _ in range(40)):
        values, lines = node.run(
            "const layout = readLayout(data); return [allValues(layout), arithmetic(layout, layout.size - 1)];",
            str(lay),
        )
        named = dict(lines)
        assert named["offset"].split(" = ")[1] == str(values[-1])
        for name in {"offset", "before the swizzle", "mode by mode", "1-D index"} & set(named):
            left, right = named[name].split(" = ")
            assert eval(left.replace("×", "*").replace("xor", "^")) == int(right), (lay, name, named[name])


def test_the_loops_give_the_offsets_in_order() -> None:
    """The text is Python; it is run, and the index selected has its numbers in the comments."""
    rng = random.Random(8)
    for lay in (swizzled(rng) for _ in range(40)):
        values, text = node.run(
            "const layout = readLayout(data); return [allValues(layout), loopOf(layout, layout.size - 1)];",
            str(lay),
            WIDGET,
        )
        inner = max(len(line) - len(line.lstrip()) for line in text.splitlines())
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(text + "\n" + " " * inner + "print(offset)", {})
        assert [int(line) for line in said.getvalue().split()] == values
        assert text.splitlines()[-1].split("# ")[1] == str(values[-1])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_line_of_cute_dsl_gives_the_result(operation: str) -> None:
    rng = random.Random(5)
    cases = [random_case(rng, operation) for _ in range(25)]
    cases = [case for case, answer in zip(cases, answers(cases), strict=True) if answer not in (REFUSED, CRASHED)]
    lines = node.run(
        """return data.map(([name, first, other]) =>
             dslCall(name, readPlain(first), READERS[OPERATIONS[name].other](other)));""",
        [(case.operation, case.texts()[0], ",".join(case.texts()[1:])) for case in cases],
    )
    said = layouts.evaluate(lambda: [str(eval(line, {"cute": cute})) for line in lines])
    plain = [text.replace(" ", "").replace(",)", ")") for text in said]  # a tile is one of Python's tuples
    assert plain == [answer.replace(" ", "") for answer in answers(cases)]
    assert len(cases) > 8
