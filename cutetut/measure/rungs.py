"""The rungs of the ladder: the chapters whose kernels are compared with each other, and which rows are theirs.

A row of a rung's own kernel gets the field `rung` when it is measured: from the chapter, which passes `rung=True` to
`bench.compare`, or else from here, by the name of its kernel. Whoever reads rows looks at the field alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MARK = "rung"


@dataclass(frozen=True)
class Rung:
    """One step of the ladder: its chapter, its idea, and what its own kernel is called in the rows, of which table."""

    notebook: str
    idea: str
    kernel: str = ""  # a regular expression for the whole of a row's `kernel`; empty if the chapter marks its rows
    part: str = ""  # of the chapter's measurements; empty for the table of `benchmark`


RUNGS = (
    Rung("04_scalar_fma_gemm", "scalar FMA, float32", r"04 scalar FMA"),
    Rung("06_smem_tiling", "shared memory, float32"),
    Rung("07_mma_sync", "mma.sync", r"07 \d+x\d+x\d+, \d+ warps"),
    Rung("08_wgmma", "WGMMA"),
    Rung("10_wgmma_async", "WGMMA, async"),
    Rung("12_tma_pipeline", "TMA pipeline"),
    Rung("13_warp_specialized", "warp specialized"),
    Rung("14_persistent", "persistent"),
    Rung("15_past_cublas", "clusters, early launch"),
)
ATTENTION = Rung("21_fa_pingpong", "FlashAttention-3", r"21", "long")


def marked(notebook: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a chapter, those of its rung's own kernel with the mark."""
    kernel = next((rung.kernel for rung in (*RUNGS, ATTENTION) if rung.notebook == notebook), "")
    return [row | ({MARK: True} if re.fullmatch(kernel, row["kernel"]) else {}) if kernel else row for row in rows]


def own(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the mark."""
    return [row for row in rows if row.get(MARK)]
