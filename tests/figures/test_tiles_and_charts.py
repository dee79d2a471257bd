"""Figures: colours that colour-blind readers can tell apart, and text that says what the picture shows."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from cutetut import figures
from cutetut.figures import base
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
def test_neighbours_differ_in_lightness(table: ThreadMap, grid: tuple[int, int], vision: str) -> None:
    light = lightness(figures.thread_colors(*grid), VISION[vision])[table.owner]
    for axis in (0, 1):
        differs = np.diff(table.owner, axis=axis) != 0
        assert np.abs(np.diff(light, axis=axis))[differs].min() > 10


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
