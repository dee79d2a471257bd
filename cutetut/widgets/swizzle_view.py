"""A swizzle as an exclusive-or of address bits, and the bank conflicts that it takes away."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets

from cutetut import figures
from cutetut.emulator.measure.coalescing import matrix_wavefronts, wavefronts
from cutetut.figures import stills
from cutetut.widgets.base import Picker, source

BITS = 12  # of a byte offset: the largest tile, 32 rows of 128 bytes, has 4096
WORD = 4  # bytes of one bank
LINE = 128  # bytes of all 32 banks
ROWS = {"core matrix": 8, "row": 32, "column": 32}  # rows of the tile that an access is shown in
ROW_BYTES = (16, 32, 64, 128)


class SwizzleView(Picker):
    """Show Swizzle<B,M,S> bit by bit, and the bank conflicts of an access with it and without it.

    The tile has rows of 16 to 128 bytes, of which a cell is one 4-byte word, in the colour of its bank. The swizzle
    applies to byte offsets from the start of the tile, which lies at a multiple of 4096 bytes: bits M+S to M+S+B-1 are
    exclusive-ored onto bits M to M+B-1. CuTe's S<3,3,3> of 16-bit elements is S<3,4,3> of bytes.

    Args:
        swizzle: (B, M, S). The layout atoms of WGMMA have (B, 4, 3): B = 3 for SW128, 2 for SW64, 1 for SW32, 0 for
            INTER.
        row_bytes: bytes of a row: 128, 64, 32 or 16, in the order of these atoms.
        access: "core matrix", 8 rows of one 16-byte column, which ldmatrix and WGMMA read at once; "row", a warp
            that reads 32 words in order; "column", a warp that reads one word of each of 32 rows.
        word: (row, word of the row) that is selected at first; the access goes through it.
        title: a heading.

    Traits (both ways, also from the browser): `swizzle`, `row_bytes`, `access` and `word`. Where a new access or
    row has no such word, the word wraps around.

    Raises:
        traitlets.TraitError: a swizzle with M < 4, with S < B, or that reaches beyond 12 bits; another row or access;
            or a word outside the tile.
    """

    _esm = source("common.js", "tile.js", "swizzle_view.js")
    _css = source("common.css", "swizzle_view.css")

    title = traitlets.Unicode("").tag(sync=True)
    swizzle = traitlets.Tuple(traitlets.Int(), traitlets.Int(), traitlets.Int(), default_value=(3, 4, 3)).tag(sync=True)
    row_bytes = traitlets.Enum(ROW_BYTES, default_value=128).tag(sync=True)
    access = traitlets.Enum(tuple(ROWS), default_value="core matrix").tag(sync=True)
    word = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(0, 0)).tag(sync=True)
    _ramp = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        swizzle: tuple[int, int, int] = (3, 4, 3),
        *,
        row_bytes: int = 128,
        access: str = "core matrix",
        word: tuple[int, int] = (0, 0),
        title: str = "",
    ) -> None:
        super().__init__(swizzle=swizzle, row_bytes=row_bytes, access=access, title=title, _ramp=stills.ramp())
        self.word = word

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, words of a row) of the tile."""
        return ROWS[self.access], self.row_bytes // WORD

    @traitlets.validate("swizzle")
    def _check_swizzle(self, proposal: Any) -> tuple[int, int, int]:
        b, m, s = proposal.value
        if min(b, m, s) < 0:
            raise traitlets.TraitError(f"swizzle {proposal.value}: B, M and S are whole numbers from 0 on")
        if m < 4:
            raise traitlets.TraitError(f"M is {m}: at least 4 bits stay as they are, so that 16 bytes stay together")
        if s < b:
            raise traitlets.TraitError(
                f"S is {s}, less than B, {b}: the bits that are read would be bits that are changed"
            )
        if m + s + b > BITS:
            raise traitlets.TraitError(f"M + S + B is {m + s + b}: the offsets here have {BITS} bits")
        return b, m, s

    @traitlets.validate("word")
    def _check_word(self, proposal: Any) -> tuple[int, int]:
        (row, col), (rows, cols) = proposal.value, self.shape
        if not (0 <= row < rows and 0 <= col < cols):
            raise traitlets.TraitError(f"word {(row, col)} is outside the tile of {rows} rows and {cols} words")
        return row, col

    @traitlets.observe("row_bytes", "access")
    def _keep_word(self, change: Any) -> None:
        rows, cols = self.shape
        self.word = (self.word[0] % rows, self.word[1] % cols)

    def asked(self) -> np.ndarray:
        """Byte offsets, before the swizzle, at which the access's lanes begin; int64."""
        row, col = self.word
        if self.access == "core matrix":
            return np.arange(8) * self.row_bytes + col // 4 * 16
        if self.access == "row":
            return row * self.row_bytes // LINE * LINE + np.arange(32) * WORD
        return np.arange(32) * self.row_bytes + col * WORD

    def moved(self, offset: np.ndarray) -> np.ndarray:
        """Byte offsets after the swizzle."""
        b, m, s = self.swizzle
        return offset ^ (offset >> s & (1 << b) - 1 << m)

    def wavefronts(self) -> tuple[int, int]:
        """How often the banks deliver for the access, (without, with) the swizzle, by the emulator's counter."""
        return self._count(self.asked()), self._count(self.moved(self.asked()))

    def _count(self, offset: np.ndarray) -> int:
        if self.access == "core matrix":
            return matrix_wavefronts(offset[None, :])[0]
        return wavefronts(offset, WORD, np.zeros(32, np.int64), np.arange(32), load=True)[0]

    def __repr__(self) -> str:
        b, m, s = self.swizzle
        without, with_it = self.wavefronts()
        return (
            f"SwizzleView(S<{b},{m},{s}>, rows of {self.row_bytes} bytes, {self.access} through word {self.word}: "
            f"{without} wavefronts without, {with_it} with)"
        )

    def still(self) -> figures.Picture:
        rows, cols = self.shape
        offset = np.arange(rows * cols) * WORD
        words = 4 if self.access == "core matrix" else 1
        asked = (self.asked()[:, None] // WORD + np.arange(words)).ravel()
        b, m, s = self.swizzle
        counts = dict(zip(("without a swizzle", f"with S<{b},{m},{s}>"), self.wavefronts(), strict=True))
        banks = [(o // WORD % 32).reshape(rows, cols) for o in (offset, self.moved(offset))]
        return stills.bank_tiles(
            dict(zip(counts.items(), banks, strict=True)), asked, title=self.title, text=repr(self)
        )
