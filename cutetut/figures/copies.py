"""What a copy engine does: a box of a tensor and where it lies, and a ring of stages with the parities to wait for."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from cutetut.figures.base import ACCENT, INK, LINE, MUTED, OURS, PAPER, Picture, blank_figure, one_look

ZERO = "#eceef1"  # what a copy fills in


@one_look
def tensor_box(shape: tuple[int, int], box: tuple[int, int], which: tuple[int, int], *, title: str = "") -> Picture:
    """Draw a (rows, columns) tensor cut into boxes, and one of them beside it as it arrives in shared memory.

    which: the box's number along rows and columns. Raises ValueError for a box that has no element of the tensor.
    """
    first = tuple(size * number for size, number in zip(box, which, strict=True))
    inside = tuple(max(0, min(size, whole - at)) for size, whole, at in zip(box, shape, first, strict=True))
    if min(inside) < 1 or min(first) < 0:
        raise ValueError(f"box {which} of {box} lies outside a tensor of {shape}")
    figure = blank_figure(7.6, 2.9)
    left, right = figure.subplots(1, 2, width_ratios=[shape[1] + box[1], 2 * box[1]])
    _draw_tensor(left, shape, box, first)
    _draw_arrival(right, box, inside)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return Picture(
        figure,
        f"{title}: a {shape[0]}x{shape[1]} tensor in boxes of {box[0]}x{box[1]}; of box {which} "
        f"{inside[0]}x{inside[1]} elements lie inside, the others arrive as zeros",
    )


def _draw_tensor(axes: Axes, shape: tuple[int, int], box: tuple[int, int], first: tuple[int, ...]) -> None:
    boxes = [-(-whole // size) for whole, size in zip(shape, box, strict=True)]
    axes.add_patch(Rectangle((0, 0), shape[1], shape[0], facecolor="#dbe6f0", edgecolor=OURS))
    for row in range(boxes[0]):
        for column in range(boxes[1]):
            corner = column * box[1], row * box[0]
            axes.add_patch(Rectangle(corner, box[1], box[0], fill=False, edgecolor=LINE, linestyle="--"))
    axes.add_patch(Rectangle((first[1], first[0]), box[1], box[0], fill=False, edgecolor=ACCENT, linewidth=2))
    axes.text(0.3, 0.3, "tensor (global memory)", color=OURS, va="top")
    axes.text(first[1] + 0.3, first[0] + 0.3, f"box at ({first[1]}, {first[0]})", color=ACCENT, va="top")
    axes.set(xlim=(-0.5, boxes[1] * box[1] + 0.5), ylim=(boxes[0] * box[0] + 0.5, -0.5), aspect="equal")
    axes.set_xlabel("innermost dimension, coordinate 0")
    axes.set_ylabel("coordinate 1")


def _draw_arrival(axes: Axes, box: tuple[int, int], inside: tuple[int, ...]) -> None:
    axes.add_patch(Rectangle((0, 0), box[1], box[0], facecolor=ZERO, edgecolor=ACCENT, linewidth=2))
    axes.add_patch(Rectangle((0, 0), inside[1], inside[0], facecolor="#dbe6f0", edgecolor=OURS))
    axes.text(0.3, 0.3, "from the tensor", color=OURS, va="top")
    axes.text(box[1] - 0.3, box[0] - 0.3, "zeros", color=MUTED, ha="right", va="bottom")
    axes.text(box[1] / 2, box[0] + 0.8, f"shared memory: all {box[0]}x{box[1]}\ncount at the mbarrier", va="top",
              ha="center", color=INK)  # fmt: skip
    axes.set(xlim=(-0.5, box[1] + 0.5), ylim=(box[0] + 4, -0.5), aspect="equal")
    axes.axis("off")


@one_look
def ring_turns(stages: int, tiles: int, *, title: str = "") -> Picture:
    """Draw which stage each K tile goes to, and with which parities its readers and its writer wait.

    A column per K tile, in the order of time, and a row per stage. Raises ValueError without a stage or a tile.
    """
    if stages < 1 or tiles < 1:
        raise ValueError(f"{stages} stages and {tiles} tiles: at least one of each")
    figure = blank_figure(1.2 + 0.86 * tiles, 1.0 + 0.62 * stages)
    axes = figure.add_subplot()
    lines = []
    for tile in range(tiles):
        stage, turn = tile % stages, tile // stages
        full, empty = turn & 1, turn & 1 ^ 1
        color = (OURS, ACCENT)[turn % 2]
        axes.add_patch(Rectangle((tile + 0.04, stage + 0.06), 0.92, 0.88, facecolor=color, edgecolor=color))
        words = f"tile {tile}\nempty {empty}\nfull {full}"
        axes.text(tile + 0.5, stage + 0.5, words, color=PAPER, ha="center", va="center", linespacing=1.35)
        lines.append(f"tile {tile} in stage {stage}: wait(empty, {empty}) to fill it, wait(full, {full}) to read it")
    for turn in range(-(-tiles // stages)):
        middle = min(turn * stages + stages / 2, tiles - 0.5)
        axes.text(middle, -0.12, f"turn {turn}", ha="center", va="bottom", color=(OURS, ACCENT)[turn % 2])
        axes.axvline(turn * stages, color=LINE, linewidth=1, zorder=0)
    axes.set(xlim=(0, tiles), ylim=(stages, -0.35))
    axes.set_yticks([s + 0.5 for s in range(stages)], [f"stage {s}" for s in range(stages)])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.set_title(title)
    return Picture(figure, "\n".join(filter(None, [title, *lines])))
