"""The finished comparisons of a measurement; if it is interrupted, the next run continues from there.

A table takes minutes, and a GPU host may be gone before they are over. So each comparison goes into a file once it
is done, and a later run of the same code on a machine of the same kind takes it from there; or, if it is asked to, from
the table that is there already.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


class Journal:
    """The rows of finished comparisons, by what was compared; several of the same in their order.

    path: a file of JSON lines, the first of which says of what code and machine they are. One of another code or
    machine, or a damaged one, counts as empty and is overwritten. A line that was cut off is left out: what is written
    after it begins a line of its own. table: rows of a whole table of this code and machine, to take what the file
    does not have.
    """

    def __init__(self, path: Path, of: Mapping[str, Any], table: Sequence[dict[str, Any]] = ()) -> None:
        self._path, self._of, self._table = path, json.dumps(of, sort_keys=True), list(table)
        self.kept = 0  # comparisons that were taken from the table
        self._rows: dict[str, list[Rows]] = {}
        try:
            first, *lines = path.read_text().splitlines()
        except (OSError, ValueError):
            first, lines = "", []
        self._begun = first == self._of
        for line in lines if self._begun else []:
            try:
                key, rows = json.loads(line)
            except ValueError:
                continue
            self._rows.setdefault(key, []).append(rows)

    def __len__(self) -> int:
        """Comparisons that have not been taken yet."""
        return sum(map(len, self._rows.values()))

    def take(self, what: Mapping[str, Any]) -> Rows | None:
        """The rows of a comparison that is done, once; None if it has to be measured."""
        if left := self._rows.get(_key(what)):
            return left.pop(0)
        for place in range(len(self._table) - 1):
            both = slice(place, place + 2)  # a comparison's rows are neighbours
            if _compares(rows := self._table[both], what):
                del self._table[both]
                self.kept += 1
                return rows
        return None

    def add(self, what: Mapping[str, Any], rows: Rows) -> None:
        """Write down a comparison. Where the file cannot be written, it is lost if the measurement is cut off."""
        line = f"\n{json.dumps([_key(what), rows])}\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a" if self._begun else "w") as file:
                file.write(line if self._begun else self._of + line)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return
        self._begun = True

    def end(self) -> None:
        """Everything has been measured and stored in the table."""
        self._path.unlink(missing_ok=True)


_current: Journal | None = None  # of the table that is being measured


@contextlib.contextmanager
def written(path: Path, of: Mapping[str, Any], table: Sequence[dict[str, Any]]) -> Iterator[Journal]:
    """What is compared in the body, by `once`, is written to a journal; the arguments are those of `Journal`."""
    global _current
    _current = Journal(path, of, table)
    if found := len(_current):
        print(f"comparisons taken over from a run that was cut off: {found}; to measure them again, delete {path}")
    try:
        yield _current
    finally:
        _current = None


def once(what: Mapping[str, Any], measure: Callable[[], Rows]) -> Rows:
    """The rows of a comparison: the journal's, if it has them, or what `measure` returns, which it then has."""
    if _current is not None and (done := _current.take(what)):
        return done
    rows = measure()
    if _current is not None:
        _current.add(what, rows)
    return rows


def _compares(pair: Rows, what: Mapping[str, Any]) -> bool:
    """Whether two rows of a table, of bursts and of sustained windows, are of this comparison."""
    labels = {name: value for name, value in what["labels"].items() if name != "vendor" or not what["sides"]}
    speeds = {f"{name}_tflops" for name in (*what["sides"], "ours", "vendor")}
    return pair[1]["method"] == f"sustained {what['seconds'] * 1e3:.0f} ms" and all(
        labels.items() <= row.items()
        and speeds == {name for name in row if name.endswith("_tflops")}
        and math.isclose(row["ours_tflops"] * row["ours_us"] * 1e6, what["flops"], rel_tol=1e-6)
        for row in pair
    )


def _key(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True, default=str)
