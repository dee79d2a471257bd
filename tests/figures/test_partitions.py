"""Pictures of a partition: what they say, that colours tell neighbours apart, and that texts stay in their boxes."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from cutetut import figures
from cutetut.figures import partitions, tiles

ROWS = np.array([0, 1, 2, 3, 64, 65, 66, 67])
STEPS = [
    ("gC", "Where?", "(M,N)", "(128,128):(128,1)"),
    ("4 zipped_divide", "Which thread has which instruction?", "((ThrV,(ThrM,ThrN)),(FrgV,(RestM,RestN)))",
     "(((4,8),(2,2)),((2,2),(4,8))):(((2,128),(2048,8)),((1,1024),(4096,16)))"),
]  # fmt: skip


def test_strips_say_who_owns_the_first_positions() -> None:
    blocks, spread = np.arange(128) % 64 // 4, np.arange(128) % 16
    picture = figures.strips({"blocks": blocks, "spread": spread}, pitch=128, unit="position")
    first, second = repr(picture).splitlines()
    assert first.startswith("blocks: positions 0 to 19 belong to 0, 0, 0, 0, 1,")
    assert second.endswith("0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3")
    labels = [label.get_text() for label in picture.figure.axes[-1].get_xticklabels()]
    assert labels[1] == "16\n2048" and labels[-1] == "128\n16384"
    written = [text.get_text() for text in picture.figure.axes[0].texts]
    assert written == [str(group) for _ in range(2) for group in range(16)]
    assert list(picture.figure.axes[1].texts) == []  # no room for numbers


def test_neighbouring_owners_of_a_strip_differ() -> None:
    colors = partitions._strip_colors(np.arange(16))
    assert np.linalg.norm(np.diff(colors, axis=0), axis=1).min() > 0.15
    assert np.unique(colors, axis=0).shape == (16, 3)


def test_a_derivation_lists_its_layouts_and_keeps_them_in_their_boxes() -> None:
    picture = figures.derivation(STEPS)
    assert repr(picture) == f"gC: {STEPS[0][3]}\n4 zipped_divide: {STEPS[1][3]}"
    picture.png()  # lays the figure out
    (axes,) = picture.figure.axes
    box = axes.patches[1].get_window_extent()
    modes, layout = (t.get_window_extent() for t in axes.texts if t.get_text() in STEPS[1][2:])
    assert box.x0 < modes.x0 and modes.x1 < layout.x0 and layout.x1 < box.x1


def test_the_arrows_start_and_end_where_they_say() -> None:
    arrows = [("1", (0, 0), (0, 1)), ("8192", (0, 0), (4, 0))]
    picture = figures.stride_arrows(128 * ROWS[:, None] + ROWS, arrows, title="Thread 0")
    lines = repr(picture).splitlines()
    assert lines[4].split()[0] == "8192" and lines[-1] == "1: (0, 0) to (0, 1), 8192: (0, 0) to (4, 0)"
    (axes,) = picture.figure.axes
    assert len(axes.patches) == 64


@pytest.mark.parametrize("hue", tiles.WARP_HUES)
def test_ink_is_readable_on_every_strip(hue: str) -> None:
    def luminance(color: np.ndarray) -> float:
        linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    ink, cell = np.array(to_rgb("#1b1f24")), 0.75 * np.array(to_rgb(hue)) + 0.25
    assert (luminance(cell) + 0.05) / (luminance(ink) + 0.05) >= 4.5
