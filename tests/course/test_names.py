"""Which names a cell uses: through imports, aliases and assignments, and not what a function hides."""

from __future__ import annotations

import pytest

from cutetut.course.names import explains, kernels, resolved, used

IMPORTS = """
import cutlass, torch
import cutlass.cute as cute
from cutlass.cute.nvgpu import warp
from cutetut.check import check
from cutetut import figures as plots, reference
"""


def names(source: str) -> list[str]:
    aliases: dict[str, str] = {}
    assert used(IMPORTS, aliases) == []
    return used(source, aliases)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("cute.arch.thread_idx()", ["cute.arch.thread_idx"]),
        ("x = cutlass.Float32(1)", ["cutlass.Float32"]),
        ("check(y, 2)", ["cutetut.check.check"]),
        ("plots.tiles(1); plots.tiles(2)", ["cutetut.figures.tiles"]),
        ("warp.MmaF16BF16Op(a)", ["cute.nvgpu.warp.MmaF16BF16Op"]),
        ("cute.nvgpu.LoadCacheMode.ALWAYS", ["cute.nvgpu.LoadCacheMode"]),
        ("tiled_mma.get_slice(0).partition_C(gC)", [".partition_C", ".get_slice"]),
        ("kernel(x).launch(grid=(1, 1, 1))", [".launch"]),
        ("torch.launch(x)", [".launch"]),
        ("torch.mm(a, b)", []),
        ("x.other(1)", []),
        ("import cutlass.utils as more\nmore.f()", ["cutlass.utils.f"]),
        ("import cutlass.utils\ncutlass.utils.f()", ["cutlass.utils.f"]),
        ("make = cute.make_layout\nmake(4)", ["cute.make_layout"]),
        ("cute = 3\ncute.size", []),
        ("def check(a): pass\ncheck(1)", []),
        ("def f(warp): return warp.MmaF16BF16Op", []),
        ("def f():\n    warp = 1\n    return warp.x + cute.size(1)", ["cute.size"]),
        ("lambda cute: cute.size", []),
        ("def f(x: cute.Tensor = cute.size(1)) -> cute.Layout: pass", ["cute.size", "cute.Tensor", "cute.Layout"]),
        ("@cute.kernel\ndef k(): cute.copy(1)", ["cute.kernel", "cute.copy"]),
        ("'cute.copy(a)'  # cute.gemm", []),
        ("f'{cute.size(x)}'", ["cute.size"]),
        ("%time cute.size(x)", []),
    ],
)
def test_names_that_a_cell_uses(source: str, found: list[str]) -> None:
    assert sorted(names(source)) == sorted(found)


def test_the_kernels_of_a_cell() -> None:
    source = "X = 1\n\n@cute.kernel\ndef k(): a\n\n@functools.cache\ndef f(): b\n\n@cute.jit\ndef g(): c\n\ndef h(): d"
    assert kernels(source) == "@cute.kernel\ndef k():\n    a\n\n@cute.jit\ndef g():\n    c"
    assert kernels("%time f()") == ""


def test_an_alias_lasts_for_the_cells_after_it() -> None:
    aliases: dict[str, str] = {}
    assert used("cute.size(1)", aliases) == []
    used("import cutlass.cute as cute", aliases)
    assert used("cute.size(1)", aliases) == ["cute.size"]
    used("import numpy as cute", aliases)
    assert used("cute.size(1)", aliases) == []


@pytest.mark.parametrize(
    ("mention", "name", "alone", "explained"),
    [
        ("cute.size", "cute.size", False, True),
        ("size", "cute.size", False, False),
        ("size", "cute.size", True, True),
        ("make_layout", "cute.make_layout", False, True),
        ("Float32", "cutlass.Float32", False, True),
        ("arch.thread_idx", "cute.arch.thread_idx", False, True),
        ("cute.thread_idx", "cute.arch.thread_idx", False, False),
        (".load", "cutetut.course.notebooks.load", True, False),
        ("sA.load", "cutetut.course.notebooks.load", True, False),
        ("notebooks.load", "cutetut.course.notebooks.load", False, True),
        ("cute.gemm", "cutetut.reference.gemm", True, False),
        ("read", "cutetut.measure.records.read", False, False),
        ("tagged_source", "cutetut.course.notebooks.tagged_source", False, False),
        ("check", "cutetut.check.check", True, True),
        (".partition_C", ".partition_C", False, True),
        ("partition_C", ".partition_C", False, True),
        ("thr_mma.partition_C", ".partition_C", False, True),
        ("cute.nvgpu.X.fill", ".fill", False, True),
        ("cute.fill", ".fill", False, False),
        ("other", "cute.size", False, False),
    ],
)
def test_what_a_mention_in_backticks_explains(mention: str, name: str, alone: bool, explained: bool) -> None:
    assert explains(mention, name, alone) is explained


def test_a_mention_may_use_the_chapters_aliases() -> None:
    aliases: dict[str, str] = {}
    used("import cutlass.cute as cute, cutlass.utils.hopper_helpers as sm90", aliases)
    assert resolved("sm90.f", aliases) == "cutlass.utils.hopper_helpers.f"
    assert [resolved(text, aliases) for text in ("cute.size", "cutlass.cute.size")] == ["cute.size", "cute.size"]
    assert [resolved(text, aliases) for text in ("x.f", ".f", "sm90")] == ["x.f", ".f", "sm90"]
