"""Chapter 02's kernel and layouts, loaded from the notebook: results, refusals, costs, claims, mistakes."""

from __future__ import annotations

import re
from itertools import product
from types import ModuleType
from typing import Any

import cutlass.cute as cute
import numpy as np
import pytest
import torch

from cutetut import layouts
from cutetut.course import notebooks
from cutetut.inspect import profile
from cutetut.measure import mistakes
from tests.chapters import exercises

CHAPTER = "02_layout_algebra"
WAYS = ("warp down a column", "own block", "one by one", "by fours", "by fours, tiles across")
KERNELS = ("by_index_kernel", "add_kernel")


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, exercises.HELPER_TAGS)


def pair(rng: np.random.Generator, device: str, shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = (torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(device) for _ in range(2))
    return x, y


def test_a_composition_is_right_exactly_where_the_text_says(chapter: ModuleType) -> None:
    def answers() -> list[tuple[bool, bool]]:
        """For A = (s,8):(1,10 s) and B = n:d, what the two conditions of the text say, and whether CuTe is right."""
        return [
            ((n - 1) * d < s or d % s == 0 or (s % d == 0 and n % (s // d) == 0),
             chapter.asked_of(((s, 8), (1, 10 * s)), (n, d)).endswith("right"))
            for s, n, d in product(range(4, 13), range(2, 9), range(1, 17)) if (n - 1) * d < 8 * s
        ]  # fmt: skip

    found = layouts.evaluate(answers)
    assert {(True, True), (False, False)} == set(found), found


def test_every_way_is_tested(chapter: ModuleType) -> None:
    assert tuple(chapter.WAYS) == WAYS


@pytest.mark.parametrize("shape", [(32, 256), (96, 768), (32, 1280)], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("way", WAYS)
def test_adds_as_float64_does(
    chapter: ModuleType, rng: np.random.Generator, device: str, way: str, kernel: str, shape: tuple[int, int]
) -> None:
    x, y = pair(rng, device, shape)
    expected = x.cpu().numpy().astype(np.float64) + y.cpu().numpy()
    kept = x.clone()
    assert chapter.add(x, y, chapter.WAYS[way], getattr(chapter, kernel)) is y
    assert np.abs(y.cpu().numpy() - expected).max() <= 1e-6 and torch.equal(x, kept)


def test_nan_stays_where_it_is_and_neighbours_in_memory_are_left_alone(chapter: ModuleType, device: str) -> None:
    x, memory = torch.ones(16, 256, device=device), torch.zeros(3, 16, 256, device=device)
    x[3, 77] = float("nan")
    chapter.add(x, memory[1])
    assert (memory[0] == 0).all() and (memory[2] == 0).all()
    assert torch.equal(memory[1].isnan(), x.isnan()) and int((memory[1] == 1).sum()) == 16 * 256 - 1


@pytest.mark.parametrize(
    ("shapes", "dtype", "says"),
    [
        (((24, 256), (24, 256)), torch.float32, "whole tiles of"),
        (((16, 128), (16, 128)), torch.float32, "whole tiles of"),
        (((16, 256), (16, 512)), torch.float32, "whole tiles of"),
        (((0, 256), (0, 256)), torch.float32, "whole tiles of"),
        (((16, 16, 256), (16, 16, 256)), torch.float32, "must be a matrix"),
        (((16, 256), (16, 256)), torch.float64, "float32 is supported"),
    ],
    ids=str,
)
def test_refuses_what_it_is_not_written_for(
    chapter: ModuleType, device: str, shapes: tuple[Any, Any], dtype: torch.dtype, says: str
) -> None:
    x, y = (torch.zeros(shape, dtype=dtype, device=device) for shape in shapes)
    with pytest.raises((ValueError, TypeError), match=says):
        chapter.add(x, y)


def test_refuses_what_has_gaps_or_starts_between_16_bytes(chapter: ModuleType, device: str) -> None:
    good = torch.zeros(16, 256, device=device)
    memory = torch.zeros(16 * 256 + 1, device=device)
    for bad in (torch.zeros(256, 16, device=device).T, torch.zeros(16, 512, device=device)[:, :256],
                memory[1:].reshape(16, 256)):  # fmt: skip
        with pytest.raises(ValueError, match="row-major without gaps"):
            chapter.add(good, bad)


# What it costs ------------------------------------------------------------------------------------------------

BY_HAND = {  # sectors of a load, loads of a warp for a 512x512 matrix: by index, and by composition
    "warp down a column": ((32, 16384), (32, 16384)),
    "own block": ((32, 16384), (32, 4096)),
    "one by one": ((4, 16384), (4, 16384)),
    "by fours": ((16, 16384), (16, 4096)),
    "by fours, tiles across": ((16, 16384), (16, 4096)),
}


@pytest.mark.parametrize("way", WAYS)
def test_sectors_are_those_that_the_layout_predicts(chapter: ModuleType, way: str) -> None:
    zeros = torch.zeros(512, 512)
    for kernel, (sectors, requests) in zip(KERNELS, BY_HAND[way], strict=True):
        launch = chapter.launcher(getattr(chapter, kernel), *chapter.WAYS[way])
        counts = profile.count(launch, zeros, zeros.clone())
        assert (counts.sectors_per_request("ld"), counts.requests("ld")) == (sectors, requests)
        assert counts.sectors_per_request("st") == sectors and counts.requests("st") == requests / 2
        together = chapter.TOGETHER[way] if kernel == "add_kernel" else 1
        assert chapter.request(chapter.WAYS[way][0], together)[0] == sectors


@pytest.mark.parametrize("way", WAYS[:4])
def test_the_first_picture_shows_the_layouts(chapter: ModuleType, way: str) -> None:
    names: dict[str, Any] = {"np": np, "plots": type("", (), {"warp_requests": staticmethod(lambda *a, **k: None)})}
    exec(exercises.cell(CHAPTER, "look"), names)
    shown = names["ASKED"][way]
    deal = chapter.WAYS[way][0]
    rows = layouts.evaluate(lambda: chapter.dealt(deal())[0][0])
    place = layouts.offsets(lambda: chapter.dealt(deal())[1])[:32]
    asked = np.full((64, 512), -1)
    asked[place % rows, place // rows] = np.arange(place.shape[1]) // chapter.TOGETHER[way]
    asked = asked[: shown.shape[0], : shown.shape[1]]
    assert np.array_equal(shown == 0, asked == 0) and np.array_equal(shown < 0, asked < 0)


# What the text says of the algebra ----------------------------------------------------------------------------


def test_values_are_what_cute_says(chapter: ModuleType) -> None:
    def compared() -> list[bool]:
        rng = chapter.random.Random(5)
        made = [chapter.random_layout(rng) for _ in range(30)]
        made += [chapter.cute.make_layout(((4, 2), (3, (2, 2))), stride=((1, 16), (0, (5, 100))))]
        return [chapter.values(a).tolist() == [a(i) for i in range(chapter.cute.size(a))] for a in made]

    assert all(layouts.evaluate(compared))


@pytest.mark.parametrize("s", [4, 6, 12])
def test_both_conditions_together_make_a_composition_right(chapter: ModuleType, s: int) -> None:
    """And what is refused or wrong fails one of them."""
    B = [(n, d) for n, d in product(range(2, 13), range(1, 13)) if (n - 1) * d < 5 * s]
    answers = layouts.evaluate(lambda: [chapter.asked_of(((s, 5), (1, 7 * s)), each) for each in B])
    for (n, d), answer in zip(B, answers, strict=True):
        fits = s // d  # steps in the first mode, if they divide it
        both = d % s == 0 or (s % d == 0 and (n % fits == 0 or fits % n == 0))
        assert answer.endswith("right") or not both, (n, d, answer)
    found = {word for answer in answers for word in re.findall("refused|right|wrong", answer)}
    assert found == {"refused", "right", "wrong"}


def test_a_complement_is_right_where_each_stride_is_a_multiple_of_what_the_smaller_reach(chapter: ModuleType) -> None:
    def tried() -> list[bool]:
        rng, found = chapter.random.Random(9), []
        for _ in range(300):
            a = chapter.random_layout(rng)
            offsets, reach, multiples = chapter.values(a), 1, True
            for stride, extent in sorted(zip(a.stride, a.shape, strict=True)):
                multiples, reach = multiples and stride > 0 and stride % reach == 0, stride * extent
            if multiples:
                n = 3 * reach
                shifts = chapter.values(chapter.cute.complement(a, n))
                found.append(np.array_equal(np.sort(np.add.outer(shifts, offsets).ravel()), np.arange(n)))
        return found

    found = layouts.evaluate(tried)
    assert len(found) > 150 and all(found)


@pytest.mark.parametrize(("shape", "stride", "tile"), [((8, 6), (6, 1), (4, 3)), ((4, 9), (1, 5), (2, 3))])
def test_divides_and_products_are_regrouped_as_the_text_says(
    shape: tuple[int, int], stride: tuple[int, int], tile: tuple[int, int]
) -> None:
    """Element by element: place (i, j) of tile or copy (k, l), from the strides by hand."""

    def found() -> list[list[int]]:
        whole, rest = cute.make_layout(shape, stride=stride), (shape[0] // tile[0], shape[1] // tile[1])
        divides = [divide(whole, tile) for divide in (cute.logical_divide, cute.zipped_divide, cute.tiled_divide)]
        divides.append(cute.flat_divide(whole, tile))
        block, order = cute.make_layout(tile), cute.make_layout(rest)
        logical, blocked, raked = (
            make(block, order) for make in (cute.logical_product, cute.blocked_product, cute.raked_product)
        )
        rows = []
        for i, j, k, n in product(*map(range, (*tile, *rest))):
            row, column = i + tile[0] * k, j + tile[1] * n
            logical_d, zipped, tiled, flat = divides
            rows.append(
                [
                    row * stride[0] + column * stride[1],
                    logical_d(((i, k), (j, n))), zipped(((i, j), (k, n))), tiled(((i, j), k, n)), flat((i, j, k, n)),
                ]
            )
            inside, copy = i + tile[0] * j, k + rest[0] * n
            rows.append(
                [
                    inside + tile[0] * tile[1] * copy,
                    logical(((i, j), (k, n))), blocked(((i, k), (j, n))), raked(((k, i), (n, j))),
                ]
            )
        return rows

    rows = layouts.evaluate(found)
    assert len(rows) == 2 * shape[0] * shape[1]
    assert all(len(set(row)) == 1 for row in rows)


# Break it -----------------------------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("name", "says", "times", "past"),
    [
        ("half a complement", "no fault", {0, 1}, 0),
        ("values overlap", "MissingBarrier", {0, 1, 2}, 0),
        ("tile too narrow", "MissingBarrier", {1, 2}, 128),
        ("the same, copying", "OutOfBounds", {1, 2}, 128),
    ],
)
def test_mistakes_and_what_the_count_says(
    chapter: ModuleType, name: str, says: str, times: set[int], past: int
) -> None:
    changed = notebooks.changed(CHAPTER, chapter.MISTAKES[name])
    launch = changed.launcher(changed.add_kernel, changed.one_by_one)
    assert says in mistakes.report(launch, torch.randn(64, 512), torch.randn(64, 512)).splitlines()[0]
    counted = chapter.claims(changed.dealt, changed.one_by_one, chapter.tiles_down, 64, 512)
    assert set(counted[: 64 * 512]) == times and np.count_nonzero(counted[64 * 512 :]) == past
    assert set(chapter.claims(chapter.dealt, chapter.one_by_one, chapter.tiles_down, 64, 512)) == {1}


def test_every_mistake_is_tested(chapter: ModuleType) -> None:
    assert len(chapter.MISTAKES) == 4
