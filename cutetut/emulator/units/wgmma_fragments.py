"""Fragments: the registers of an operand of WGMMAs, and what is noted when ordinary instructions write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..machine.opcodes import Selection
from ..machine.threads import WARPGROUP

Rows = slice | np.ndarray


def compact(rows: list[int]) -> Rows:
    """Rows of a table as a slice where they follow each other: that is far cheaper."""
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows))
    return np.array(rows, np.intp)


def among(groups: Iterable[int], sel: Selection) -> list[int]:
    """Which warpgroups have threads in a selection."""
    if isinstance(sel, slice):
        return [group for group in groups if sel.start < group + WARPGROUP and group < sel.stop]
    ends = {group: sel.searchsorted((group, group + WARPGROUP)) for group in groups}
    return [group for group, (first, end) in ends.items() if first < end]


@dataclass(eq=False)
class Fragment:
    """The registers of an operand, and what each warpgroup (by its first thread) does with them."""

    names: tuple[str, ...]
    rows: Rows  # in the table of Wgmma
    bank: Rows  # in the machine's bank
    busy: np.ndarray  # whose they are under way: True for each thread of these warpgroups
    uses: set[tuple[str, str]] = field(default_factory=set)  # as "A" or "D", and of which shape
    overlapping: list[Fragment] = field(default_factory=list)  # other fragments with some of these registers
    flying: dict[int, int] = field(default_factory=dict)  # how many WGMMAs under way own it
    matrix: dict[int, tuple[str, np.ndarray]] = field(default_factory=dict)  # D and its type, newer than the registers
    writes: int = 0  # how often ordinary instructions have written some of it,
    fenced: dict[int, int] = field(default_factory=dict)  # and how often when it was last found fenced

    @property
    def contested(self) -> bool:
        """Whether anything but WGMMAs of one shape uses it, and as D only or as A only."""
        return len(self.uses) > 1 or bool(self.overlapping)

    def reset(self) -> None:
        self.flying.clear()
        self.busy[:] = False
        self.matrix.clear()
        self.fenced.clear()


@dataclass(frozen=True)
class Note:
    """Ordinary instructions have written registers of fragments, whose rows these are in Wgmma.written_by.

    `value` is 1 + the instruction, one for all rows or a column of one for each; `copied` the row of a register that
    was copied there, which needs a fence as much as that one does.
    """

    rows: list[int]
    value: int | np.ndarray
    copied: int | None
    changed: tuple[Fragment, ...]

    def write(self, written_by: np.ndarray, sel: Selection) -> None:
        """Note it for some threads."""
        if self.copied is not None:
            for row in self.rows:
                written_by[row, sel] = written_by[self.copied, sel]
        elif isinstance(self.value, int):
            for row in self.rows:
                written_by[row, sel] = self.value
        elif isinstance(rows := compact(self.rows), slice) or isinstance(sel, slice):
            written_by[rows, sel] = self.value
        else:
            written_by[rows[:, None], sel] = self.value
        for fragment in self.changed:
            fragment.writes += 1


def joined_notes(notes: Sequence[Note]) -> list[Note]:
    """The same in their order, as few as possible: those between copies are one."""
    result: list[Note] = []
    values: dict[int, int | np.ndarray] = {}
    changed: dict[Fragment, None] = {}

    def end() -> None:
        if values:
            rows = sorted(values)
            column = np.array([values[row] for row in rows], np.int32)[:, None]
            result.append(Note(rows, column, None, tuple(changed)))
            values.clear()
            changed.clear()

    for note in notes:
        if note.copied is not None:
            end()
            result.append(note)
            continue
        values.update(dict.fromkeys(note.rows, note.value))
        changed.update(dict.fromkeys(note.changed))
    end()
    return result
