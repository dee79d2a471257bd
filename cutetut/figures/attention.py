"""A figure of the online softmax: blocks of scores, the maximum so far, and how the sum is corrected."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from cutetut.figures.base import ACCENT, INK, LINE, MUTED, OURS, PAPER, Picture, blank_figure, one_look

Floats = npt.NDArray[np.float64]
DARKEST = "#6f9fcf"  # of a score's cell: the number on it keeps a contrast of 5


@one_look
def online_softmax(scores: npt.ArrayLike, *, block: int, row: int = 0) -> Picture:
    """Draw the scores (queries, keys) in blocks of keys, and how one row's maximum and sum grow block by block.

    Three parts below one another: the table of scores; the scores of `row` with the maximum so far; its sum of
    exponentials after each block, in units of e**maximum: what was there times the correction, and what is new.
    Raises ValueError unless scores is a table of finite numbers that blocks divide, and row one of its rows.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all() or not 0 <= row < len(table):
        raise ValueError(f"scores of shape {table.shape} and row {row}: a table of finite numbers and one of its rows")
    if block < 1 or table.shape[1] % block:
        raise ValueError(f"blocks of {block} do not divide {table.shape[1]} keys")
    blocks = table[row].reshape(-1, block)
    top = np.maximum.accumulate(blocks.max(axis=1))
    factor = np.exp(np.concatenate([[-np.inf], top[:-1]]) - top)  # there is no sum before the first block
    new = np.exp(blocks - top[:, None]).sum(axis=1)
    kept = np.zeros(len(top))
    for j in range(1, len(top)):
        kept[j] = (kept[j - 1] + new[j - 1]) * factor[j]
    figure = blank_figure(4.3, 1.2 + 0.3 * len(table) + 3.3)
    parts = figure.subplots(3, 1, height_ratios=[0.3 * len(table) + 0.2, 1.4, 1.0])
    _draw_scores(parts[0], table, block, row)
    _draw_maximum(parts[1], table[row], block, top)
    _draw_sums(parts[2], kept, new, factor)
    steps = "; ".join(
        f"block {j}: maximum {t:.1f}, factor {f:.2f}, sum {k:.2f} + {n:.2f} = {k + n:.2f}"
        for j, (t, f, k, n) in enumerate(zip(top, factor, kept, new, strict=True))
    )
    return Picture(figure, f"row {row} of {len(table)}x{table.shape[1]} scores by blocks of {block} keys\n{steps}")


def _draw_scores(axes: Axes, table: Floats, block: int, row: int) -> None:
    """The numbers, darker for larger ones; thick lines part the blocks, and the row is framed."""
    rows, cols = table.shape
    most = max(float(np.abs(table).max()), 1e-9)
    shade = mpl.colors.LinearSegmentedColormap.from_list("scores", [PAPER, DARKEST])((table / most + 1) / 2)
    axes.imshow(shade, extent=(0, cols, rows, 0), aspect="auto")
    for (y, x), score in np.ndenumerate(table):
        axes.text(x + 0.5, y + 0.5, f"{score:.1f}", ha="center", va="center", fontsize=8, color=INK)
    for edge in range(block, cols, block):
        axes.axvline(edge, color=PAPER, linewidth=4)
    axes.add_patch(mpl.patches.Rectangle((0, row), cols, 1, fill=False, edgecolor=ACCENT, linewidth=2, clip_on=False))
    axes.set(title=f"S = Q K$^T$, blocks of {block} keys", ylabel="query", yticks=np.arange(rows) + 0.5, xticks=[])
    axes.set_yticklabels([str(r) for r in range(rows)])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_maximum(axes: Axes, scores: Floats, block: int, top: Floats) -> None:
    """A dot per score, and a step per block at the maximum so far."""
    axes.plot(np.arange(scores.size) + 0.5, scores, "o", color=OURS, markersize=4)
    for j, level in enumerate(top):
        axes.hlines(level, j * block, (j + 1) * block, color=ACCENT, linewidth=2)
        axes.annotate(f"{level:.1f}", ((j + 0.5) * block, level), (0, 3), textcoords="offset points", ha="center")
        if j:
            axes.vlines(j * block, scores.min(), top.max(), color=LINE, linewidth=1)
            axes.vlines(j * block, top[j - 1], level, color=ACCENT, linewidth=1, linestyle=":")
    spread = float(top.max() - scores.min()) or 1.0
    axes.set(xlim=(0, scores.size), ylim=(scores.min() - 0.1 * spread, top.max() + 0.25 * spread), xticks=[])
    axes.set(title="the framed row: scores and maximum so far", ylabel="score")


def _draw_sums(axes: Axes, kept: Floats, new: Floats, factor: Floats) -> None:
    """A bar per block: the corrected old sum, then the block's own terms."""
    names = [f"block {j}" for j in range(len(new))]
    axes.barh(names, kept, color=PAPER, edgecolor=MUTED, hatch="////", linewidth=0.8, height=0.62)
    axes.barh(names, new, left=kept, color=OURS, height=0.62)
    for j, (old, own) in enumerate(zip(kept, new, strict=True)):
        factor_text = f"old sum x {factor[j]:.2f}, now {old + own:.2f}" if j else f"{own:.2f}"
        axes.text(old + own, j, f" {factor_text}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set(title="its sum: corrected (hatched) and new", xlim=(0, 1.9 * float((kept + new).max())))
    axes.tick_params(axis="y", length=0)
