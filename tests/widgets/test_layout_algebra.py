"""The layout algebra of the browser against CuTe DSL's own, on random calls; and the laws that the viewer checks.

    pytest tests/widgets/test_layout_algebra.py --layout-cases 5000

asks for that many calls of each operation with another seed. CuTe DSL 4.8.1 does not refuse everything that has no
meaning; what was decided about each of these:

- Strides that overlap or leave no whole gap make it return a shape with 0, or end the process with a division by
  zero. The browser refuses both.
- A composition whose steps, or whose right modes together, cross the end of a left mode is answered, but is not
  A(B(c)). The browser gives CuTe's answer, as a reader will get it, and says where the law fails.
- The same goes for a complement of a layout whose strides are no multiples of one another, and for a recast of one
  whose strides are no whole number of wider elements.
- A complement of a layout with a negative stride has negative shapes. The browser refuses it.
- A swizzle whose M would fall below 0 in a recast wraps around to some 4 billion. The browser refuses it.
- make_ordered_layout gives modes of the same order the same stride, unflatten drops the modes that its profile has no
  place for, max_common_layout goes past the end of a first layout that is shorter than the second, and make_layout_like
  orders negative strides as numbers. The browser gives CuTe's answers, and says where the law fails.
- nullspace(4:0) raises a TypeError, and nullspace((4):(0)) does not. The browser refuses the first.
- make_swizzle(3, 4, 2), with S less than B, is taken for no swizzle at all. The browser refuses it.
"""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from tests.widgets import node
from tests.widgets.layout_laws import LAWS, keeps_law
from tests.widgets.layout_oracle import CRASHED, REFUSED, Case, Lay, answers, read
from tests.widgets.random_cases import OPERATIONS, random_case

# A call that ends CuTe's process costs a new one: fewer of those.
FEWER = ("logical_product", "blocked_product", "raked_product", "zipped_product", "tiled_product", "flat_product",
         "tile_to_shape", "make_layout_tv")  # fmt: skip
# What has a meaning whenever CuTe answers, so that the viewer finds no fault in it.
ALWAYS = ("slice_", "dice", "select", "group_modes", "append", "prepend", "coalesce", "flatten", "filter",
          "filter_zeros", "right_inverse", "nullspace")  # fmt: skip
COMPUTE = """
const one = ([name, first, other]) => {
  try {
    const computed = compute(name, first, other);
    const { result, tiler } = computed;
    const text = tiler ? `(${write(tiler)},${writeLayout(result)})` : writeLayout(result);
    return { text, layout: writeLayout(result), broken: brokenLaw(name, computed) };
  } catch (error) {
    if (!(error instanceof LayoutError)) throw error;
    return { text: "refused", reason: error.message };
  }
};
return data.map(one);
"""


def compute(cases: list[Case]) -> list[dict[str, Any]]:
    """What the browser's algebra makes of the cases: `text`, the `layout` in it and where its law fails (`broken`).

    Of what it refuses the `reason` is there instead.
    """
    typed = [(case.operation, case.texts()[0], ",".join(case.texts()[1:])) for case in cases]
    found = node.run(COMPUTE, typed)
    assert isinstance(found, list)
    return found


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> tuple[int, int]:
    """(how many calls of an operation, seed)"""
    more = request.config.getoption("--layout-cases")
    return (more, random.randrange(1 << 30)) if more else (250, 13)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_and_refusals_are_cutes(operation: str, cases: tuple[int, int]) -> None:
    wanted, seed = cases
    rng = random.Random(seed)
    asked = [random_case(rng, operation) for _ in range(wanted // (3 if operation in FEWER else 1))]
    answered = 0
    for case, cute, browser in zip(asked, answers(asked), compute(asked), strict=True):
        where = f"{case.operation}({'; '.join(case.texts())}), seed {seed}: CuTe {cute}, browser {browser}"
        if cute in (REFUSED, CRASHED) or _empty(cute):
            assert browser["text"] == "refused" and browser["reason"], where
        else:
            assert browser["text"].replace(" ", "") == cute.replace(" ", ""), where
            assert operation not in ALWAYS or browser["broken"] is None, where
            answered += 1
    assert answered > len(asked) / 2


def _empty(answer: str) -> bool:
    """Whether a shape has a number below 1, or the swizzle an M that wrapped around: no layout."""
    if "S<" in answer and not re.match(r"S<\d,\d{1,2},\d> o ", answer):
        return True
    shape = answer.split(" o ")[-1].split(":")[0]
    return any(int(number) < 1 for number in re.findall(r"-?\d+", shape))


# Random calls that the algebra or the check of a law once had wrong: steps that cross a mode's end, and a tile that
# is larger than what it divides.
FOUND = [
    Case("logical_divide", (Lay(((1,), (6, 4), (4, 4, 1)), ((1,), (1, 8), (3, 1, 3))), Lay(4, 1))),
    Case("logical_divide", (Lay(((5, 4, 1), 5), ((1, 6, 2), 2)), (Lay((1, 2), (1, 1)),))),
    Case("logical_divide", (Lay((3, 3, 8), (3, 12, 8)), Lay(2, 1))),
    Case("flat_divide", (Lay(((5, 4, 2),), ((2, 12, 4),)), Lay(3, 1))),
    Case("logical_divide", (Lay(3, 0), Lay((8, 3, 3), (32, 4, 1)))),
    Case("logical_divide", (Lay((5, 6), (6, 1)), Lay(4, 1))),
    Case("logical_product", (Lay(((4,), (2,), 4), ((32,), (24,), 8)), Lay(2, 0))),
]


def test_what_was_wrong_once_is_right() -> None:
    for case, cute, browser in zip(FOUND, answers(FOUND), compute(FOUND), strict=True):
        assert browser["text"] == cute, case
        assert case.operation not in LAWS or keeps_law(case, read(cute)) == (browser["broken"] is None), case


def test_the_law_of_a_common_layout_names_cutes_common_vector() -> None:
    rng = random.Random(23)
    asked = [random_case(rng, "max_common_layout") for _ in range(300)]
    asked = [case for case, browser in zip(asked, compute(asked), strict=True) if browser["text"] != "refused"]
    said = node.run(
        "return data.map(([one, two]) => lawOf('max_common_layout', compute('max_common_layout', one, two)).text);",
        [case.texts() for case in asked],
    )
    cutes = answers([Case("max_common_vector", case.arguments) for case in asked])
    assert said == [f"A(R(k)) = B(R(k)) = k for k below {number}, which is cute.max_common_vector" for number in cutes]
    assert len(set(cutes)) > 8


def test_every_operation_has_a_definition() -> None:
    assert set(LAWS) == set(OPERATIONS)


@pytest.mark.parametrize("operation", LAWS)
def test_the_viewer_says_where_a_law_fails(operation: str, cases: tuple[int, int]) -> None:
    """A result keeps its law by a definition of its own in Python if, and only if, the browser finds no fault."""
    wanted, seed = cases
    rng = random.Random(seed + 1)
    asked = [random_case(rng, operation) for _ in range(wanted // (3 if operation in FEWER else 1))]
    asked = [case for case in asked if isinstance(case.arguments[0], Lay) and case.arguments[0].swizzle is None]
    kept = 0
    for case, browser in zip(asked, compute(asked), strict=True):
        if browser["text"] == "refused":
            continue
        keeps = keeps_law(case, read(browser["layout"]))
        assert keeps == (browser["broken"] is None), f"{case.operation}({'; '.join(case.texts())}): {browser}"
        kept += keeps
    assert kept > len(asked) / 2
