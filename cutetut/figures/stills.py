"""Still pictures of the layout viewer, the swizzle view and the descriptor decoder, for where no JavaScript runs."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import numpy.typing as npt

from cutetut.figures.base import ACCENT, INK, LINE, MUTED, PAPER, Picture, blank_figure, one_look
from cutetut.inspect.descriptors import FIELDS, fields

Ints = npt.NDArray[np.int64]
RAMP = np.asarray(mpl.colormaps["cividis"](np.linspace(0.0, 1.0, 64))[:, :3] * 255 + 0.5, dtype=np.uint8)

TINTS = ("#3b82c4", "#d9722e", "#8a9a1b", "#a96fc0", "#8a8f98")  # of a descriptor's fields, as in the decoder's css


def ramp() -> str:
    """The colours of the drawings from dark blue to yellow, which colour-blind readers see alike, for the browser."""
    return base64.b64encode(RAMP.tobytes()).decode("ascii")


@one_look
def layout_grid(offsets: Ints, selected: tuple[int, int], *, title: str, text: str) -> Picture:
    """Draw a (rows, cols) table of offsets, coloured by offset, with one (row, col) marked."""
    rows, cols = offsets.shape
    cell = min(0.5, 8.0 / cols)
    figure = blank_figure(max(2.6, cell * cols + 0.6), max(1.0, min(8.0, max(cell, 0.24) * rows + 0.7)))
    axes = figure.add_subplot()
    span = max(1, int(offsets.max() - offsets.min()))
    shades = np.rint((offsets - offsets.min()) / span * (len(RAMP) - 1)).astype(np.int64)
    axes.imshow(RAMP[shades], interpolation="nearest", extent=(0, cols, rows, 0), aspect="auto")
    axes.add_patch(mpl.patches.Rectangle(selected[::-1], 1, 1, facecolor=ACCENT, edgecolor=INK, linewidth=1.5))
    size = min(9.0, 72 * cell / (0.62 * len(str(offsets.max())) + 0.6))
    if size >= 4.5:
        for (row, col), offset in np.ndenumerate(offsets):
            dark = (row, col) == selected or RAMP[shades[row, col]] @ [0.2126, 0.7152, 0.0722] < 118
            ink = PAPER if dark else INK
            axes.text(col + 0.5, row + 0.5, str(offset), ha="center", va="center", fontsize=size, color=ink)
    axes.set_xticks(np.arange(cols, step=max(1, cols // 8)) + 0.5, [str(c) for c in range(0, cols, max(1, cols // 8))])
    axes.set_yticks(np.arange(rows, step=max(1, rows // 8)) + 0.5, [str(r) for r in range(0, rows, max(1, rows // 8))])
    axes.set_title(title)
    return Picture(figure, text)


@one_look
def bank_tiles(banks: Mapping[tuple[str, int], Ints], asked: Ints, *, title: str, text: str) -> Picture:
    """Draw (rows, words) tables of banks side by side, each under its (name, wavefronts), in full what is asked for.

    asked: flat indices of words. In the accent colour: those for which an earlier one is in the same bank.
    """
    figure = blank_figure(8.4, 2.5 if next(iter(banks.values())).shape[0] <= 8 else 4.4)
    for axes, ((name, count), table) in zip(figure.subplots(1, len(banks)), banks.items(), strict=True):
        image = RAMP[np.rint(table / 31 * (len(RAMP) - 1)).astype(np.int64)] / 255
        dimmed = (0.35 * image + 0.65).reshape(-1, 3)
        dimmed[asked] = image.reshape(-1, 3)[asked]
        seen = set[int]()
        for word in np.sort(asked).tolist():
            bank = int(table.flat[word])
            if bank in seen:
                dimmed[word] = mpl.colors.to_rgb(ACCENT)
            seen.add(bank)
        rows, cols = table.shape
        axes.imshow(dimmed.reshape(image.shape), interpolation="nearest", extent=(0, cols, rows, 0), aspect="auto")
        axes.set_xticks(range(0, cols + 1, 4))
        axes.set_yticks(range(0, rows + 1, 8 if rows > 8 else 1))
        axes.grid(color=PAPER, linewidth=0.8)
        axes.set(title=f"{name}: {count} wavefront{'s' if count > 1 else ''}", xlabel="4-byte word", ylabel="row")
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    return Picture(figure, text)


@one_look
def descriptor_bits(bits: int, notes: Mapping[str, str], *, title: str, text: str) -> Picture:
    """Draw the 64 bits of a matrix descriptor in two rows, its fields in tints, and below what each field holds."""
    figure = blank_figure(8.4, 3.1)
    axes = figure.add_subplot()
    tints = [tuple(0.45 * part + 0.55 for part in mpl.colors.to_rgb(tint)) for tint in TINTS]
    for bit in range(64):
        column, row = 31 - bit % 32, 1 - bit // 32
        owner = next((i for i, (_, low, width, _) in enumerate(FIELDS) if low <= bit < low + width), None)
        color = PAPER if owner is None else tints[owner]
        axes.add_patch(mpl.patches.Rectangle((column, 1.6 * row), 1, 1, facecolor=color, edgecolor=LINE, linewidth=0.6))
        axes.text(column + 0.5, 1.6 * row + 0.5, str(bits >> bit & 1), ha="center", va="center", fontsize=8)
        if bit % 8 == 0:
            axes.text(column + 0.5, 1.6 * row - 0.25, str(bit), ha="center", va="center", fontsize=6.5, color=MUTED)
    for line, (name, where, raw, nbytes) in enumerate(fields(bits)):
        amount = str(raw) if nbytes is None else f"{nbytes} bytes"
        note = f"  ({notes[name]})" if name in notes else ""
        at = 3.2 + 0.75 * line
        axes.add_patch(mpl.patches.Rectangle((0, at - 0.3), 0.8, 0.6, facecolor=tints[line]))
        axes.text(1.2, at, f"bits {where}  {name}: {amount}{note}", va="center", fontsize=8.5)
    axes.set(xlim=(-0.2, 32.2), ylim=(6.7, -0.6), title=title)
    axes.axis("off")
    return Picture(figure, text)
