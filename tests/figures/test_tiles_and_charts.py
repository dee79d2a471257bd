"""Figures: colours that colour-blind readers can tell apart, and text that says what the picture shows."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from cutetut import figures, widgets
from cutetut.figures import base, tiles
from cutetut.widgets import ThreadMap
from tests.widgets import maps

# Simulated dichromacy in linear RGB, from Vienot, Brettel and Mollon (1999).
VISION = {
    "full": np.eye(3),
    "protanopia": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "deuteranopia": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
    "achromatopsia": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}


def lightness(rgb: np.ndarray, vision: np.ndarray) -> np.ndarray:
    """CIE L* of sRGB bytes."""
    channel = rgb / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    luminance = (linear @ vision.T).clip(0, 1) @ [0.2126, 0.7152, 0.0722]
    return np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize(
    ("table", "grid"),
    [
        (maps.scalar_gemm("(16,4):(4,1)"), (16, 16)),
        (maps.scalar_gemm("(16,4):(1,16)"), (16, 16)),
        (maps.scalar_gemm("(16,8):(8,1)"), (16, 16)),
        (maps.mma_m16n8k16_c(), (8, 4)),
        (maps.wgmma_m64(64), (32, 4)),
    ],
)
def test_neighbours_differ(table: ThreadMap, grid: tuple[int, int], vision: str) -> None:
    """In lightness alone for whoever sees all colours or none; a difference of 2 is just seen."""
    colors = figures.thread_colors(*grid)[table.owner].astype(float)
    seen_as = lab(colors, VISION[vision])
    for axis in (0, 1):
        differs = np.diff(table.owner, axis=axis) != 0
        assert np.linalg.norm(np.diff(seen_as, axis=axis), axis=-1)[differs].min() > 10
        if vision in ("full", "achromatopsia"):
            assert np.abs(np.diff(lightness(colors, VISION[vision]), axis=axis))[differs].min() > 10


def lab(rgb: np.ndarray, vision: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of sRGB bytes, as seen with a vision."""
    channel = rgb / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = (linear @ vision.T).clip(0, 1) @ to_xyz.T / [0.9505, 1, 1.089]
    x, y, z = np.moveaxis(np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116), -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


PAGES = {"light": ("#ffffff", "#1b1f24", "#b3400a"), "dark": ("#14181e", "#e8eaed", "#ffb454")}  # paper, ink, accent


def seen(theme: str, grid: tuple[int, int] = (16, 16)) -> np.ndarray:
    """The colours of threads that are not selected, on a page."""
    paper = 255 * np.array(to_rgb(PAGES[theme][0]))
    return (1 - tiles.DIMMED) * figures.thread_colors(*grid) + tiles.DIMMED * paper


@pytest.mark.parametrize("vision", ["full", "protanopia", "deuteranopia"])
def test_neighbouring_warps_differ_in_hue_for_everybody(vision: str) -> None:
    """The same lane of warps w and w + 1, so of the same lightness; a difference of 2 is just seen."""
    for least, colors in ((20, figures.thread_colors(16, 16)), (10, seen("light")), (10, seen("dark"))):
        warps = lab(np.asarray(colors, dtype=float), VISION[vision]).reshape(8, 32, 3)
        assert np.linalg.norm(warps - np.roll(warps, -1, axis=0), axis=-1).min() >= least


def test_the_lightness_grows_with_the_lane() -> None:
    light = lightness(figures.thread_colors(1, 256), VISION["full"]).reshape(8, 16, 2)
    assert (np.diff(light, axis=1) > 0).all() and np.ptp(light, axis=0).max() < 1


@pytest.mark.parametrize("grid", [(8, 4), (32, 4), (16, 16), (8, 32), (1, 256)])
def test_the_lane_shows_more_than_the_alternation(grid: tuple[int, int]) -> None:
    """At a glance: a quarter of a warp is as light as its lanes, not as its odd or even threads."""
    light = lightness(figures.thread_colors(*grid), VISION["full"]).reshape(-1, 32)
    quarters = light.reshape(-1, 4, 8).mean(axis=2)
    assert (np.diff(quarters, axis=1) > 5).all()
    assert (quarters[:, 3] - quarters[:, 0] > 1.5 * tiles.BY_TURNS).all()
    assert np.abs(light[:, 2:] - light[:, :-2]).min() > 1  # every second lane differs, too


@pytest.mark.parametrize("theme", PAGES)
def test_what_is_selected_and_what_is_written_stand_out(theme: str) -> None:
    def luminance(color: np.ndarray) -> np.ndarray:
        return ((lightness(color, VISION["full"]) + 16) / 116) ** 3

    _, ink, accent = (255 * np.array(to_rgb(color)) for color in PAGES[theme])
    pair = np.stack(np.broadcast_arrays(luminance(ink), luminance(seen(theme)))) + 0.05
    assert (pair.max(axis=0) / pair.min(axis=0)).min() >= 4.5
    for vision in VISION.values():
        assert np.linalg.norm(lab(seen(theme), vision) - lab(accent, vision), axis=-1).min() > 15


def test_the_browser_dims_as_the_pictures_do() -> None:
    script = (Path(widgets.__file__).parent / "thread_picker.js").read_text(encoding="utf-8")
    assert re.search(r"^const DIM = ([\d.]+);", script, re.MULTILINE)[1] == str(tiles.DIMMED)  # type: ignore[index]


def test_pictures_say_what_they_show() -> None:
    table = maps.scalar_gemm("(16,4):(4,1)")
    state = figures.picker_state(table.owner, 17, thread_grid=(16, 16))
    assert repr(state) == (
        "128x128 tile owned by 256 threads, 64 elements by thread 17\n"
        "thread 17 owns 64 elements: C[4][4], C[4][5], C[4][6], C[4][7], ..."
    )
    ladder = figures.ladder({"scalar": 10.0, "tiled": 25.0}, vendor=("cuBLAS", 50.0))
    assert repr(ladder) == "scalar: 10 TFLOP/s, 20.0% of cuBLAS\ntiled: 25 TFLOP/s, 50.0% of cuBLAS\ncuBLAS: 50 TFLOP/s"
    assert repr(figures.bars({"a": 2.0}, unit="sectors")) == "a: 2 sectors"
    assert repr(figures.lines([1, 2], {"ours": [3.0, 4.0]}, xlabel="n", ylabel="s")) == "ours: 1: 3, 2: 4"
    picture = figures.rows({"before": [1.0, -40.0], "after": [3.0, 2.0]}, unit="column")
    assert repr(picture) == "before: 2 numbers, the largest 40\nafter: 2 numbers, the largest 3"
    before, after = picture.figure.axes
    assert before.get_ylim() == after.get_ylim() and [len(axes.patches) for axes in (before, after)] == [2, 2]


def test_curves_that_are_one_both_show() -> None:
    picture = figures.curves({"ours": [3.3, 2.0, 1.0], "theirs": [3.3, 2.0, 1.04]}, xlabel="step", ylabel="loss")
    assert repr(picture) == "ours: 3 steps, from 3.3 to 1.0\ntheirs: 3 steps, from 3.3 to 1.0"
    (axes,), (legend,) = picture.figure.axes, picture.figure.legends
    below, above = axes.get_lines()
    assert np.array_equal(below.get_xdata(), [1, 2, 3]) and np.array_equal(above.get_ydata(), [3.3, 2.0, 1.04])
    assert above.get_linewidth() < below.get_linewidth() and above.get_color() != below.get_color()
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "theirs"] and axes.get_ylim()[0] == 0


def test_the_names_of_lines_cover_no_line() -> None:
    series = {f"{stage} stages, a long name": [0.9, 0.5, 0.1 * stage] for stage in range(4)}
    picture = figures.lines([1024, 2048, 4096], series, xlabel="M = N = K", ylabel="speed")
    picture.png()  # lays the figure out
    figure = picture.figure
    (legend,), (axes,) = figure.legends, figure.axes
    assert axes.get_legend() is None and not legend.get_window_extent().overlaps(axes.get_window_extent())
    assert figure.bbox.contains(*legend.get_window_extent().max)


def test_pictures_are_small_pngs_and_keep_the_accent() -> None:
    owners = {name: table.owner for name, table in maps.scalar_gemm_maps().items()}
    first = owners["(16,4):(4,1)"]
    pictures = [
        figures.compare_owners(owners, thread=17, thread_grid=(16, 16)),
        figures.tile_owners(first, thread=17),
        figures.picker_state(first, 17),
        figures.ladder({"scalar": 10.0, "tiled": 25.0}),
    ]
    accent = np.array([0xB3, 0x40, 0x0A])
    for picture in pictures:
        png = picture.png()
        assert len(png) < 40_000
        pixels = np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int)
        assert (np.abs(pixels - accent).max(axis=-1) < 12).sum() > 20, repr(picture)
    assert len(figures.thread_elements(first, 17).png()) < 40_000


def test_the_readers_own_settings_stay() -> None:
    import matplotlib as mpl

    before = mpl.rcParams["axes.spines.top"], mpl.rcParams["font.size"]
    figures.bars({"a": 1.0}, unit="x")
    assert (mpl.rcParams["axes.spines.top"], mpl.rcParams["font.size"]) == before


def test_a_figure_of_ones_own_gets_the_look_and_stays_out_of_pyplot() -> None:
    import matplotlib.pyplot as plt

    seen = {}

    @base.one_look
    def mine(width: float) -> figures.Picture:
        """Draw a line."""
        figure = base.blank_figure(width, 2.0)
        seen["size"] = figure.add_subplot().xaxis.label.get_fontsize()
        return figures.Picture(figure, "a line")

    picture = mine(width=3.0)
    assert tuple(picture.figure.get_size_inches()) == (3.0, 2.0) and seen["size"] == base.LOOK["font.size"]
    assert mine.__doc__ == "Draw a line." and not plt.get_fignums()


def test_column_banks_names_the_banks_of_a_row_and_a_column() -> None:
    m, n = np.indices((32, 32))
    picture = figures.column_banks({"plain": 64 * m + n, "swizzled": 64 * m + (n ^ m)}, column=5)
    plain, swizzled = picture.text.splitlines()
    assert plain == "plain: row 0 in banks 0, 1, 2, 3, ...; column 5 in banks 5 only"
    assert swizzled.endswith("column 5 in banks 5, 4, 7, 6, ...")
    assert Image.open(BytesIO(picture.png())).size[0] > 500
    for column in (-1, 32):
        with pytest.raises(ValueError, match=f"column {column} is not in every table"):
            figures.column_banks({"plain": m}, column=column)
    with pytest.raises(ValueError, match="b: the offsets must be a table"):
        figures.column_banks({"b": -m - 1})
