"""The PTX line that chapters 00, 01 and 06 read operand by operand is in the kernel, however often it is compiled."""

from __future__ import annotations

import re

import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect


def lines(chapter: str, launch: str, shapes: tuple[tuple[int, ...], ...], *others: object) -> list[str]:
    """The instructions of a kernel's PTX, with single spaces."""
    module = notebooks.load(chapter, ("imports", "kernel", "bench"))
    tensors = [module.from_dlpack(torch.zeros(shape, device=module.cutetut.device)) for shape in shapes]
    given = [getattr(module, other) if isinstance(other, str) else other for other in others]
    ptx = inspect(module.cute.compile(getattr(module, launch), *tensors, *given)).ptx
    return [" ".join(line.split()) for line in ptx.splitlines()]


@pytest.mark.parametrize("_again", range(2))
def test_the_lines_are_what_the_text_reads(_again: int) -> None:
    text = {name: "".join(cell.source for cell in notebooks.read(name).cells if cell.cell_type == "markdown")
            for name in ("00_start_here", "01_layouts", "06_smem_tiling")}  # fmt: skip
    (fma,) = (one for one in lines("00_start_here", "axpb", ((1000,), (1000,)), 2.0, 1.0) if one.startswith("fma"))
    assert f"`{fma}`" in text["00_start_here"]
    odd = lines("01_layouts", "gather", ((128,), (128,)), (3, 5, 7), (35, 1, 5))
    (mad,) = (one for one in odd if one.startswith("mad"))
    result, factor, times, summand = re.sub(r"^\S+ |;", "", mad).split(", ")
    assert (times, mad.split()[0]) == ("-104", "mad.lo.s32")
    assert all(f"`{name}`" in text["01_layouts"] for name in (result, factor, summand))
    copies = [one for one in lines("06_smem_tiling", "ring_launch", ((128, 40), (128, 40), (128, 128)), "IN_RING")
              if one.startswith("cp.async.ca")]  # fmt: skip
    to, source, *sizes = re.sub(r"^\S+ |;", "", copies[1]).split(", ")
    assert f"`{to}`" in text["06_smem_tiling"] and f"`{source}`" in text["06_smem_tiling"] and sizes == ["4", "4"]
