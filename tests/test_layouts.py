"""Layouts read through CuTe DSL, against index arithmetic written out by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest

from cutetut import layouts
from cutetut.widgets import ThreadMap

Permutation = tuple[tuple[int, ...], tuple[int, ...]]


def fma_grid(permutation: Permutation | None, atoms: Any = ((16, 16, 1), (16, 1, 0))) -> Callable[[], cute.TiledMma]:
    """Return a builder of 256 scalar FMA atoms, dealt by `permutation` in M and in N."""

    def make() -> cute.TiledMma:
        perm = None if permutation is None else cute.make_layout(permutation[0], stride=permutation[1])
        grid = cute.make_layout(atoms[0], stride=atoms[1])
        return cute.make_tiled_mma(cute.nvgpu.MmaUniversalOp(cutlass.Float32), grid, permutation_mnk=(perm, perm, None))

    return make


def tensor_core() -> cute.TiledMma:
    return cute.make_tiled_mma(cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16)), (2, 2, 1))


def test_text_is_what_cute_prints() -> None:
    assert layouts.text(lambda: cute.make_layout((4, (2, 3)), stride=(6, (1, 2)))) == "(4,(2,3)):(6,(1,2))"


def test_offsets_count_the_first_mode_fastest() -> None:
    table = layouts.offsets(lambda: cute.make_layout((4, (2, 3)), stride=(100, (1, 10))))
    expected = [[100 * i + (j % 2) + 10 * (j // 2) for j in range(6)] for i in range(4)]
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("swizzled", [False, True])
def test_offsets_of_every_coordinate(swizzled: bool) -> None:
    """A swizzle is no sum over the modes; without one there are several modes, nested, constant and downwards."""

    def build() -> Any:
        if not swizzled:
            return cute.make_layout(((2, 2), (3, (2, 2)), 5), stride=((1, 8), (2, (40, 0)), -3))
        return cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout((8, 64), stride=(64, 1)))

    def expected(*at: int) -> int:
        if not swizzled:
            i, j, k = at
            return i % 2 + 8 * (i // 2) + 2 * (j % 3) + 40 * (j // 3 % 2) - 3 * k
        offset = 64 * at[0] + at[1]
        return offset ^ (offset >> 3 & 7 << 4)

    table = layouts.offsets(build)
    assert table.shape == ((8, 64) if swizzled else (4, 12, 5)) and table.dtype == np.int64
    assert all(value == expected(*at) for at, value in np.ndenumerate(table))


def test_looking_at_a_layout_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from cutlass.base_dsl.compiler import Compiler

    with monkeypatch.context() as patched:
        patched.setattr(Compiler, "compile", None)
        assert layouts.evaluate(lambda n: cute.size(cute.make_layout((n, 3))), 5) == 15
    cute.compile(cute.jit(lambda x: None), cutlass.Int32(1))(2)  # functions are compiled and run afterwards


def test_offsets_of_a_rank_one_layout() -> None:
    np.testing.assert_array_equal(layouts.offsets(lambda: cute.make_layout(5, stride=3)), [0, 3, 6, 9, 12])


def test_offsets_refuse_a_run_time_layout() -> None:
    with pytest.raises(layouts.LayoutError, match="run-time"):
        layouts.offsets(lambda: cute.make_layout((cutlass.Int32(4), 2)))


def test_evaluate_hands_out_the_result_and_passes_exceptions() -> None:
    assert layouts.evaluate(lambda n: cute.size(cute.make_layout((n, 3))), 4) == 12
    with pytest.raises(KeyError, match="mine"):
        layouts.evaluate(dict[str, int]().__getitem__, "mine")


@pytest.mark.parametrize(
    ("permutation", "position"),
    [
        (((16, 4), (4, 1)), lambda t, i: t * 4 + i % 4 + 64 * (i // 4)),
        (((16, 4), (1, 16)), lambda t, i: t + 16 * i),
        (((16, 8), (8, 1)), lambda t, i: t * 8 + i),
        (None, lambda t, i: t + 16 * i),
    ],
)
def test_partition_c_is_the_index_arithmetic_of_the_permutation(
    permutation: Permutation | None, position: Callable[[int, int], int]
) -> None:
    dealt = layouts.partition(fma_grid(permutation), (128, 128))
    for thread in range(256):
        # The 64 values are an 8x8 block whose row index runs fastest.
        rows = [position(thread // 16, v % 8) for v in range(64)]
        cols = [position(thread % 16, v // 8) for v in range(64)]
        np.testing.assert_array_equal(dealt.place[thread], np.stack([rows, cols], axis=1))
        np.testing.assert_array_equal(dealt.offset[thread], 128 * np.array(rows) + np.array(cols))
    assert (dealt.claims() == 1).all() and dealt.outside() == 0


def test_partition_c_of_the_tensor_core_atom_is_the_isa_formula() -> None:
    """PTX ISA 9.7.14.5.8: value i of lane 4g+t is row g (+8 for i >= 2), column 2t + i % 2."""
    dealt = layouts.partition(tensor_core, (32, 16), stride=(1, 32))
    warp, lane = np.divmod(np.arange(128), 32)
    for i in range(4):
        np.testing.assert_array_equal(dealt.place[:, i, 0], 16 * (warp % 2) + lane // 4 + 8 * (i // 2))
        np.testing.assert_array_equal(dealt.place[:, i, 1], 8 * (warp // 2) + 2 * (lane % 4) + i % 2)
    np.testing.assert_array_equal(dealt.offset, dealt.place[..., 0] + 32 * dealt.place[..., 1])


@pytest.mark.parametrize(("operand", "coordinate"), [("A", lambda t: t // 16), ("B", lambda t: t % 16)])
def test_operands_are_shared_along_the_other_mode(operand: str, coordinate: Callable[[int], int]) -> None:
    dealt = layouts.partition(fma_grid(((16, 4), (4, 1))), (128, 8), operand=operand)
    assert dealt.layout == "(1,(4,2),8):(0,(8,512),1)"
    for thread in (0, 1, 17, 255):
        rows = [coordinate(thread) * 4 + i % 4 + 64 * (i // 4) for i in range(8)]
        assert sorted(set(dealt.place[thread, :, 0].tolist())) == rows
    assert (dealt.claims() == 16).all()


def test_what_is_remembered_of_one_partition_is_no_other_ones() -> None:
    """By each of mma, tile, stride and operand; and who changes a table changes a copy."""
    narrow = fma_grid(((4, 2), (2, 1)), ((4, 8, 1), (8, 1, 0)))
    asked: list[tuple[Any, ...]] = [
        (tensor_core, (32, 32), None, "A"),
        (tensor_core, (32, 32), None, "B"),
        (tensor_core, (32, 32), (1, 32), "A"),
        (tensor_core, (32, 64), None, "A"),
        (narrow, (32, 32), None, "A"),
    ]
    first = [layouts.partition(*each) for each in asked]
    layouts.partition(*asked[0]).place[:] = layouts.partition(*asked[0]).offset[:] = -1
    again = [layouts.partition(*each) for each in reversed(asked)][::-1]
    layouts._known.clear()
    for (mma, tile, stride, operand), *both in zip(asked, first, again, strict=True):
        alone = layouts.partition(mma, tile, stride, operand)
        layouts._known.clear()
        for each in both:
            assert (each.layout, each.coords, each.tile) == (alone.layout, alone.coords, alone.tile)
            np.testing.assert_array_equal(each.offset, alone.offset)
            np.testing.assert_array_equal(each.place, alone.place)


def test_tables_feed_the_picker() -> None:
    dealt = layouts.partition(fma_grid(((16, 4), (4, 1))), (128, 128))
    tables = dealt.tables()
    assert tables["owner"][66, 3] == 0 and tables["owner"][4, 8] == 18
    # The coordinate of value 46 is (0, (2, 1), (1, 1)): 2 + 4 rows of four, then 8 x (1 + 4) columns.
    assert dealt.coords[46] == (0, (2, 1), (1, 1)) and tables["value"][66, 65] == 46
    np.testing.assert_array_equal(tables["offset"], np.arange(128 * 128).reshape(128, 128))
    assert ThreadMap(**tables).find(0, 46) == (66, 65)


@pytest.mark.parametrize(
    "permutation", [((16, 4), (2, 1)), ((16, 8), (4, 1)), ((16, 4), (1, 1)), ((2, 2, 4), (1, 5, 1))]
)
def test_an_overlapping_permutation_is_refused_by_name(permutation: Permutation) -> None:
    with pytest.raises(layouts.LayoutError, match=r"the permutation of M, .* keep the modes apart"):
        layouts.partition(fma_grid(permutation), (128, 128))


@pytest.mark.parametrize("permutation", [((16, 4), (-1, 2)), ((4, 16), (-1, 4))])
def test_a_permutation_with_a_negative_stride_is_refused_by_name(permutation: Permutation) -> None:
    """On the first CuTe DSL 4.8.1 would end the process."""
    with pytest.raises(layouts.LayoutError, match=r"the permutation of M, .* stride -1: it leads to places before 0$"):
        layouts.partition(fma_grid(permutation), (128, 128))


@pytest.mark.parametrize("permutation", [((64,), (2,)), ((8, 8), (8, 1)), ((4, 16), (1, 4)), ((2, 8), (32, 2))])
def test_an_unusual_permutation_still_deals_each_element_once(permutation: Permutation) -> None:
    dealt = layouts.partition(fma_grid(permutation), (128, 128))
    assert (dealt.claims() == 1).all() and dealt.outside() == 0


def test_a_permutation_that_overshoots_the_tile_is_no_ownership_map() -> None:
    dealt = layouts.partition(fma_grid(((16, 5), (5, 1))), (128, 128))
    assert dealt.outside() == 160 * 160 - 128 * 128
    with pytest.raises(layouts.LayoutError, match="tile: 9216 .thread, value. pairs lie outside it$"):
        dealt.tables()


def test_a_thread_grid_with_the_wrong_stride_claims_half_the_tile_twice() -> None:
    dealt = layouts.partition(fma_grid(((16, 4), (4, 1)), atoms=((16, 16, 1), (32, 1, 0))), (128, 128))
    assert np.bincount(dealt.claims().ravel()).tolist() == [8192, 0, 8192]
    with pytest.raises(layouts.LayoutError, match=r"element \(.*\) is named [02] times"):
        dealt.tables()


def test_another_operand_is_refused() -> None:
    with pytest.raises(layouts.LayoutError, match="'D'"):
        layouts.partition(fma_grid(None), (128, 128), operand="D")


@pytest.mark.parametrize("side", ["S", "D"])
def test_a_copy_is_dealt_by_its_threads_and_values(side: str) -> None:
    def make() -> cute.TiledCopy:
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32, num_bits_per_copy=128)
        return cute.make_tiled_copy_tv(atom, cute.make_layout((8, 4), stride=(4, 1)), cute.make_layout((1, 4)))

    dealt = layouts.copied(make, (16, 32), stride=(1, 16), side=side)
    thread, value = np.indices((32, 16))
    row = thread // 4 + 8 * (value // 4 % 2)
    column = thread % 4 * 4 + value % 4 + 16 * (value // 8)
    np.testing.assert_array_equal(dealt.place, np.stack([row, column], axis=-1))
    np.testing.assert_array_equal(dealt.offset, row + 16 * column)
    assert (dealt.claims() == 1).all()


def test_another_side_of_a_copy_is_refused() -> None:
    with pytest.raises(layouts.LayoutError, match="'A'"):
        layouts.copied(fma_grid(None), (128, 128), side="A")


@pytest.mark.parametrize(
    ("permutation", "threads", "rows"),
    [(((12, 4), (4, 1)), 16, 128), (((4, 6), (6, 1)), 32, 48), (((8, 4), (1, 16)), 48, 48)],
)
def test_a_permutation_that_the_threads_do_not_divide_is_refused(
    permutation: Permutation, threads: int, rows: int
) -> None:
    """On the second and the third CuTe DSL 4.8.1 would end the process."""
    make = fma_grid(permutation, atoms=((threads, 1, 1), (1, threads, 0)))
    with pytest.raises(layouts.LayoutError, match="cannot deal .* must be a whole number of atoms"):
        layouts.partition(make, (rows, 128))


def test_some_permutations_that_the_threads_do_not_divide_are_dealt() -> None:
    """Chapter 05 counts what comes of them."""
    dealt = layouts.partition(fma_grid(((2, 3), (1, 2)), atoms=((4, 1, 1), (1, 4, 0))), (24, 8))
    assert (dealt.claims() > 1).any() or dealt.outside()


class OfAGpu:
    """What would call CUDA to free memory, in a forked process, too, where that does not work."""

    def __init__(self) -> None:
        self.owner, self.itself = os.getpid(), self

    def __del__(self) -> None:
        if os.getpid() != self.owner:
            os.abort()


@pytest.mark.parametrize(
    ("call", "survives"),
    [(list, True), (lambda: print("said"), True), (lambda: 1 // 0, True), (sys.exit, True), (os.abort, False)],
)
def test_a_trial_tells_what_ends_the_process_from_what_raises(
    call: Callable[[], object], survives: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert layouts.survives(call) is survives
    assert capfd.readouterr() == ("", "")


def test_a_trial_collects_no_garbage_of_this_process() -> None:
    OfAGpu()
    assert layouts.survives(lambda: [[] for _ in range(10**6)])
