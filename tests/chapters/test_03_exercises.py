"""Chapter 03's exercises: what the checks say of wrong answers, and right answers of any form."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from tests.chapters import exercises

CHAPTER = "03_tensors_and_jit"

GUARDED = '''
@cute.kernel
def {name}(x: cute.Tensor, y: cute.Tensor, copy: cute.TiledCopy):
    tid, _, _ = cute.arch.thread_idx()
    m, n, _ = cute.arch.block_idx()
    {body}
'''
BODIES = {
    "by_hand": """
    for i in range(T * T // THREADS):
        row, column = m * T + (tid + i * THREADS) // T, n * T + (tid + i * THREADS) % T
        if row < x.shape[0] and column < x.shape[1]:
            y[row, column] = x[row, column]""",
    "ignores_x": """
    for i in range(T * T // THREADS):
        row, column = m * T + (tid + i * THREADS) // T, n * T + (tid + i * THREADS) % T
        if row < x.shape[0] and column < x.shape[1]:
            y[row, column] = cutlass.Float32(0.0)""",
    "writes_nan": """
    for i in range(T * T // THREADS):
        row, column = m * T + (tid + i * THREADS) // T, n * T + (tid + i * THREADS) % T
        if row < x.shape[0] and column < x.shape[1]:
            y[row, column] = cutlass.Float32(float("nan"))""",
    "changes_x": """
    for i in range(T * T // THREADS):
        row, column = m * T + (tid + i * THREADS) // T, n * T + (tid + i * THREADS) % T
        if row < x.shape[0] and column < x.shape[1]:
            x[row, column] = cutlass.Float32(0.0)
            y[row, column] = cutlass.Float32(0.0)""",
    "each_by_its_coordinate": """
    thr_copy = copy.get_slice(tid)
    cut = lambda tensor: thr_copy.partition_S(cute.local_tile(tensor, (T, T), (m, n)))
    source, target, coordinates = cut(x), cut(y), cut(cute.make_identity_tensor(x.shape))
    for i in cutlass.range_constexpr(cute.size(source)):
        if cute.elem_less(coordinates[i], x.shape):
            target[i] = source[i]""",
    "a_row_for_each_of_the_first_threads": """
    row = m * T + tid
    if tid < T and row < x.shape[0]:
        for column in range(n * T, cutlass.min(n * T + T, x.shape[1])):
            y[row, column] = x[row, column]""",
    "rows_only": """
    thr_copy = copy.get_slice(tid)
    cut = lambda tensor: thr_copy.partition_S(cute.local_tile(tensor, (T, T), (m, n)))
    source, target, coordinates = cut(x), cut(y), cut(cute.make_identity_tensor(x.shape))
    guard = cute.make_rmem_tensor(coordinates.shape, cutlass.Boolean)
    for i in cutlass.range_constexpr(cute.size(guard)):
        guard[i] = coordinates[i][0] < x.shape[0]
    fragment = cute.make_fragment_like(source)
    cute.copy(copy, source, fragment, pred=guard)
    cute.copy(copy, fragment, target, pred=guard)""",
    "unguarded_store": """
    thr_copy = copy.get_slice(tid)
    cut = lambda tensor: thr_copy.partition_S(cute.local_tile(tensor, (T, T), (m, n)))
    source, target, coordinates = cut(x), cut(y), cut(cute.make_identity_tensor(x.shape))
    fragment = cute.make_fragment_like(source)
    cute.copy(copy, source, fragment, pred=inside(coordinates, x.shape))
    cute.copy(copy, fragment, target)""",
    "nothing": "pass",
    "unknown": "y[tid, 0] = nothing_of_this_name",
}
MARKS = '''
def static(t):
    return from_dlpack(t, assumed_align=16)


def rows_static(t):
    return from_dlpack(t, assumed_align=16).mark_compact_shape_dynamic(mode=1, divisibility=4)


def erasing(t):
    return right_mark(t.zero_())


def of_another(t):
    return right_mark(torch.zeros_like(t))


def ordered(t):
    tensor = from_dlpack(t, assumed_align=32)
    tensor = tensor.mark_compact_shape_dynamic(mode=1, stride_order=t.dim_order(), divisibility=4)
    return tensor.mark_compact_shape_dynamic(mode=0, stride_order=t.dim_order())


def columns_first_marked(t):
    tensor = from_dlpack(t, assumed_align=16).mark_compact_shape_dynamic(mode=1, divisibility=4)
    return tensor.mark_compact_shape_dynamic(mode=0)


class Marker:
    def __call__(self, t):
        return right_mark(t)
'''


def variants(source: str, name: str, changes: dict[str, tuple[str, str]]) -> list[str]:
    """A kernel of this name under each other name, with the one text replaced that is given with it."""
    for other, (old, _) in changes.items():
        assert source.count(old) == 1, other
    return [source.replace(old, new).replace(name, other) for other, (old, new) in changes.items()]


PADDED = {
    "padded_by_three": ("(T + 1, 1)", "(T + 3, 1)"),
    "columns_first": ("(T + 1, 1)", "(1, T + 1)"),
    "padded_in_nested_modes": ("((T, T), stride=(T + 1, 1))", "((T, (8, T // 8)), stride=(T + 1, (1, 8)))"),
    "padded_by_two": ("(T + 1, 1)", "(T + 2, 1)"),
    "padded_and_swizzled": (
        "stride=(T + 1, 1))\n    sA = smem.allocate_tensor(mA.element_type, rows, byte_alignment=1024)",
        "stride=(2 * T, 1))\n    swizzle = cute.make_swizzle(5, 2, 7)\n"
        "    sA = smem.allocate_tensor(mA.element_type, rows, byte_alignment=1024, swizzle=swizzle)",
    ),
    "padded_no_barrier": ("    cute.arch.sync_threads()\n", ""),
    "padded_nan": ("cute.copy(write, tWsA, tWrA)", "tWrA.fill(float('nan'))"),
    "padded_zeros": ("cute.copy(read, tRgA, tRrA, pred=tRpA)", "cute.copy(read, tRrA, tRgA, pred=tRpA)"),
    "padded_no_guard": ("cute.copy(write, tWrA, tWgB, pred=tWpA)", "cute.copy(write, tWrA, tWgB)"),
}
SPARE = {  # the tile as the chapter has it, swizzled, and some room that nothing uses
    "swizzled_with_a_spare": (
        "    rows = cute.make_layout(",
        "    smem.allocate_tensor(mA.element_type, cute.make_layout(T), byte_alignment=16)\n"
        "    rows = cute.make_layout(",
    )
}
PAIRS = {
    "pairs_unswizzled": (", swizzle=cute.make_swizzle(5, 2, 6)", ""),
    "pairs_by_elements": ("cute.autovec_copy(tWsA, tWrA)", "cute.basic_copy(tWsA, tWrA)"),
    "pairs_autovec": ("cute.copy(write, tWrA, tWgB)", "cute.autovec_copy(tWrA, tWgB)"),
    "pairs_nan": ("cute.autovec_copy(tWsA, tWrA)", "tWrA.fill(float('nan'))"),
    "pairs_zeros": ("cute.copy(read, tRgA, tRrA)", "tRrA.fill(0.0)\n    cute.copy(read, tRrA, tRgA)"),
    "pairs_no_barrier": ("    cute.arch.sync_threads()\n", ""),
    "pairs_not_turned": ("cute.copy(write, tWrA, tWgB)", "tWrA.fill(1.0)\n    cute.copy(write, tWrA, tWgB)"),
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The exercises' checks with what they use, and answers that are kernels or functions."""
    renamed = partial(exercises.renamed, CHAPTER)
    padded = renamed("ex3-solution", "padded_kernel", "right_padded")
    pairs = renamed("ex5-solution", "pairs_kernel", "right_pairs")
    answers = [
        *(GUARDED.format(name=name, body=body) for name, body in BODIES.items()),
        renamed("ex2", "guarded_kernel", "unguarded_kernel"),
        renamed("ex2-solution", "guarded_kernel", "right_guarded"),
        *(padded, *variants(padded, "right_padded", PADDED)),
        renamed("ex3-solution", "padded_kernel", "padded_without_xor"),
        *variants(renamed("kernel", "transpose_kernel", "transposes"), "transposes", SPARE),
        renamed("ex4-solution", "def mark", "def right_mark"),
        MARKS,
        renamed("ex5", "pairs_kernel", "single_kernel"),
        *(pairs, *variants(pairs, "right_pairs", PAIRS)),
    ]
    rng = torch.Generator().manual_seed(3)  # of the cell that problem is in
    folder = tmp_path_factory.mktemp("cells")
    return exercises.defined(CHAPTER, ["checks"], folder, "\n\n\n".join(answers), rng=rng)


CHECKS = {1: "check_passes", 2: "check_guarded", 3: "check_padded", 4: "check_mark", 5: "check_pairs"}
NO_FUNCTION = {
    "None": "not None",
    "'kernel'": "not text",
    "3.0": "not float",
    "float('nan')": "not float",
    "(1, 2)": "not tuple",
    "np.float32(1)": "not float32",
}
NO_KERNEL = NO_FUNCTION | dict.fromkeys(("torch.mm", "lambda A, B, *rest: A @ B.T", "lambda *tensors: None"), "")
WRONG: dict[int, dict[str, str]] = {  # a part of what the check has to say
    1: {
        "(1, 1, 1, 1)": "p = 2",
        "(2, 4, 8, 1)": "p = 16",
        "(2, 4, 16, 2)": "p = 33",
        "(2, 4, 16)": "4 numbers",
        "(2, 4, float('nan'), 1)": "whole number",
        "('2', '4', '16', '1')": "whole number",
        "float('nan')": "4 numbers",
        "'2, 4, 16, 1'": "4 numbers",
        "None": "4 numbers",
        "np.float64(2)": "4 numbers",
        "lambda p: p": "4 numbers",
    },
    2: {
        "unguarded_kernel": "OutOfBounds",
        "rows_only": "OutOfBounds",
        "unguarded_store": "the store has elements that no load has filled",
        "ignores_x": "elements of y are wrong",
        "writes_nan": "elements of y are wrong",
        "changes_x": "your answer changes x",
        "nothing": "elements of y are wrong",
        "unknown": "nothing_of_this_name",
        **NO_KERNEL,
    },
    3: {
        "staged_kernel": "32 wavefronts",
        "transpose_kernel": "nothing is padded",
        "straight_kernel": "does not go through shared memory",
        "padded_by_two": "2 wavefronts",
        "padded_and_swizzled": "padding alone is enough",
        "swizzled_with_a_spare": "nothing is padded",
        "padded_nan": "elements of B are wrong",
        "padded_zeros": "your answer changes mA",
        "padded_no_barrier": "MissingBarrier",
        "padded_no_guard": "70x133",
        "unguarded_kernel": "",
        **NO_KERNEL,
    },
    4: {
        "static": "4 kernels",
        "rows_static": "3 kernels",
        "dynamic": "alignment",
        "of_another": "not copied",
        "erasing": "changes",
        "from_dlpack": "alignment",
        "lambda t: t": "Tensor, and a tensor of CuTe's",
        "lambda t: None": "NoneType",
        "torch.mm": "",
        **NO_FUNCTION,
    },
    5: {
        "single_kernel": "128 requests",
        "pairs_no_barrier": "MissingBarrier",
        "pairs_nan": "elements of B are wrong",
        "pairs_zeros": "your answer changes mA",
        "pairs_not_turned": "elements of B are wrong",
        "transpose_kernel": "",
        **NO_KERNEL,
    },
}
RIGHT = {
    1: [
        "(2, 4, 16, 1)",
        "np.array([2.0, 4.0, 16.0, 1.0])",
        "[2, torch.tensor(4), np.int64(16), 1]",
        "torch.tensor([2, 4, 16, 1])",
    ],
    2: ["right_guarded", "by_hand", "each_by_its_coordinate", "a_row_for_each_of_the_first_threads"],
    3: ["right_padded", "padded_without_xor", "padded_by_three", "columns_first", "padded_in_nested_modes"],
    4: ["right_mark", "ordered", "Marker()", "columns_first_marked"],
    5: ["right_pairs", "pairs_unswizzled", "pairs_autovec", "pairs_by_elements"],
}


test_wrong_answers_are_told_why = exercises.wrong_answers_are_told_why(CHECKS, exercises.with_no_answers(WRONG))
test_right_answers_of_any_form_are_accepted = exercises.right_answers_are_accepted(CHECKS, RIGHT)
