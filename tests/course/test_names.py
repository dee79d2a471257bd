"""Which names a cell uses: through imports, aliases and assignments, and not what a function hides."""

from __future__ import annotations

import pytest

from cutetut.course.names import used

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


def test_an_alias_lasts_for_the_cells_after_it() -> None:
    aliases: dict[str, str] = {}
    assert used("cute.size(1)", aliases) == []
    used("import cutlass.cute as cute", aliases)
    assert used("cute.size(1)", aliases) == ["cute.size"]
    used("import numpy as cute", aliases)
    assert used("cute.size(1)", aliases) == []
