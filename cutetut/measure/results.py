"""Measured rows in a shorter form: one line for what several methods measured of one thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cutetut.measure import bench
from cutetut.measure.bench import Row
from cutetut.measure.rungs import MARK

MEASURED = ("method", "ours_tflops", "vendor_tflops", "ratio", *bench.NOT_SHOWN)  # what is no label of a row


@dataclass(frozen=True)
class Line:
    """The rows of one measurement, one for each method: what was measured, these rows, and other numbers."""

    labels: dict[str, str]
    rows: dict[str, Row]
    extra: dict[str, str]

    def cell(self, method: str) -> str:
        """The ratio, the lowest and the highest of its repeats if known, and the speeds that it comes from."""
        row = self.rows.get(method)
        return "" if row is None else f"{bench.ratio(row)} {_both(row)}"


def speeds(row: Row) -> str:
    """A row as "0.579 (447 / 773)": the ratio, ours and the vendor's TFLOP/s."""
    return f"{bench.shown(row['ratio'])} {_both(row)}"


def _both(row: Row) -> str:
    return f"({bench.shown(row['ours_tflops'])} / {bench.shown(row['vendor_tflops'])})"


def lines(rows: Iterable[Row]) -> list[Line]:
    """One line for the rows of one thing measured by several methods.

    Labels are the fields that hold no measured number, with M, N and K as one. Each other number
    becomes an extra field, with all its values where the methods differ; another library's speed has its unit.
    """
    found: list[Line] = []
    latest: dict[tuple[tuple[str, str], ...], Line] = {}
    for row in rows:
        labels = _sized({key: str(value) for key, value in row.items() if _is_label(key, value)})
        line = latest.get(tuple(labels.items()))
        if line is None or row["method"] in line.rows:  # measured once more
            line = latest[tuple(labels.items())] = Line(labels, {}, {})
            found.append(line)
        line.rows[row["method"]] = row
    for line in found:
        extra = [
            (key.replace("_tflops", f" {row.get('unit', bench.TFLOPS)}"), value)
            for row in line.rows.values() for key, value in row.items() if _is_extra(key, value)
        ]  # fmt: skip
        for key in dict.fromkeys(key for key, _ in extra):
            values = dict.fromkeys(bench.shown(value) for other, value in extra if other == key)
            line.extra[key] = ", ".join(values)
    return found


def _is_label(key: str, value: Any) -> bool:
    return key not in MEASURED and not isinstance(value, float)


def _is_extra(key: str, value: Any) -> bool:
    return key not in MEASURED and isinstance(value, float)


def _sized(labels: dict[str, str]) -> dict[str, str]:
    """M, N and K as one label, in front: 4096³, or 8192×8192×1."""
    if not {"M", "N", "K"} <= labels.keys():
        return labels
    sides = [labels[side] for side in "MNK"]
    size = f"{sides[0]}³" if len(set(sides)) == 1 else "×".join(sides)
    return {"size": size, **{key: value for key, value in labels.items() if key not in "MNK"}}


def best(listed: Sequence[Line]) -> list[Line]:
    """The fastest line for each size (of attention: D, S, causal), vendor and type; of a rung, of its own kernel."""
    own = [line for line in listed if any(row.get(MARK) for row in line.rows.values())]
    found: dict[tuple[str, ...], Line] = {}
    for line in own or listed:
        key = tuple(line.labels.get(name, "") for name in ("size", "D", "S", "causal", "vendor", "dtype"))
        if key not in found or _speed(line) > _speed(found[key]):
            found[key] = line
    return list(found.values())


def _speed(line: Line) -> float:
    """The speed by the last method, which is the sustained one where both were used."""
    return float(list(line.rows.values())[-1]["ours_tflops"])
