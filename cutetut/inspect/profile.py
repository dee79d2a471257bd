"""Count what a kernel asks of the machine: instructions, sectors, bank conflicts, bytes, flops.

    counts = profile.count(launch, A, B, C)
    print(counts)                                          # one row for each memory space and operation
    print(counts.by_line())                                # the same for each line of Python
    counts.line("tCgB").sectors_per_request("ld")          # of the lines that contain a text

The emulator counts, on every machine, so the numbers are the same everywhere.  Those of memory accesses and
matrix instructions are what Nsight Compute counts on a Hopper GPU; instructions are those of PTX.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from cutetut.columns import aligned
from cutetut.emulator.measure.counters import Counting, Line
from cutetut.emulator.measure.observe import observing
from cutetut.emulator.measure.tally import GLOBAL, SHARED, Tally, Traffic
from cutetut.emulator.ptx import source
from cutetut.inspect import run

__all__ = ["Counts", "LineTable", "NothingLaunched", "count", "counting"]

ORDER = (GLOBAL, SHARED, "cluster", "local", "const")


class NothingLaunched(RuntimeError):
    """No kernel ran in the emulator where one was to be counted; the message says what to do."""


class LineTable(dict[Line, Tally]):
    """Counts by (file, line), in the order of the source; printed as a table."""

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("line", "warp instructions", "", "")]
        for (file, number), tally in self.items():
            where = source.describe(file, number) if number else "(no line)"
            text = source.text(file, number).strip()
            accesses = [_summary(key, traffic) for key, traffic in _ordered(tally)] or [""]
            rows.append((where, f"{tally.warp_instructions:,}", accesses[0], text))
            rows += [("", "", more, "") for more in accesses[1:]]
        return aligned(rows, right=(1,))

    __repr__ = __str__


class Counts(Tally):
    """Counts of all launches together and by line; `Tally`, in cutetut.emulator.measure, says what can be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0
        self._lines: dict[Line, Tally] = {}

    def take(self, counting: Counting) -> None:
        """Add what was counted."""
        self.add(counting.total())
        self.launches += counting.launches
        for line, tally in counting.lines.items():
            self._lines.setdefault(line, Tally()).add(tally)

    def by_line(self) -> LineTable:
        """The counts of each line of Python that was executed."""
        return LineTable({line: self._lines[line] for line in sorted(self._lines) if self._lines[line].warps})

    def line(self, text: str) -> Tally:
        """The counts of the lines that contain a text, added up; raises ValueError if none was executed."""
        found = [tally for line, tally in self.by_line().items() if text in source.text(*line)]
        if not found:
            raise ValueError(f"no line with {text!r} was executed; by_line() shows those that were")
        total = Tally()
        for tally in found:
            total.add(tally)
        return total

    def __str__(self) -> str:
        work = ", ".join(f"{self.flops(unit):,} {unit} flops" for unit in ("scalar", "matrix") if self.flops(unit))
        launches = "1 launch" if self.launches == 1 else f"{self.launches} launches"
        head = f"{launches}: {self.warp_instructions:,} warp instructions"
        rows: list[tuple[str, ...]] = [("", "requests", "bytes asked", "bytes moved", "")]
        for (space, operation), traffic in _ordered(self):
            numbers = (f"{n:,}" for n in (traffic.requests, traffic.asked, traffic.moved))
            rows.append((f"{space} {operation}", *numbers, _per_request(traffic)))
        return "\n".join([f"{head}, {work}" if work else head, aligned(rows, right=(1, 2, 3))])

    __repr__ = __str__


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """Count every kernel that the block compiles and calls; the counts are complete when it ends.

    Its kernels run in the emulator on every machine, so on a GPU host compile them inside the block, for
    tensors on the CPU. Raises NothingLaunched when no kernel ran in the emulator.
    """
    counts, counter = Counts(), Counting()
    try:
        with run.emulated(), observing(counter):
            yield counts
    finally:
        counts.take(counter)
    if not counts.launches:
        raise NothingLaunched(
            "no kernel ran in the emulator inside this block: compile the function inside it too, and on a GPU host "
            "give it tensors on the CPU; profile.count(function, *args) does both"
        )


def count(function: Callable[..., Any], *args: Any) -> Counts:
    """Compile a `@cute.jit` function, run it once in the emulator and return what its kernels asked of the machine.

    args: what the function takes, Constexpr arguments included. Torch tensors, on any device, become CuTe tensors
    over copies with the same shape, strides and alignment, so the tensors stay as they are and the counts are the
    same on every machine. Raises NothingLaunched when the function launches nothing, TypeError for a CuTe tensor,
    and whatever compiling and running raise.
    """
    for position, arg in enumerate(args):
        if hasattr(arg, "mark_layout_dynamic"):
            raise TypeError(f"argument {position} is a CuTe tensor: pass the torch tensor, or use profile.counting()")
    with counting() as counts:
        run.prepare(function, args, run.as_placed)()
    return counts


# -- tables ----------------------------------------------------------------------------------------


def _ordered(tally: Tally) -> list[tuple[tuple[str, str], Traffic]]:
    return sorted(tally.traffic.items(), key=lambda item: (ORDER.index(item[0][0]), item[0][1]))


def _summary(key: tuple[str, str], traffic: Traffic) -> str:
    return " ".join(filter(None, [*key, f"{traffic.requests:,} x", _per_request(traffic)])).removesuffix(" x")


def _per_request(traffic: Traffic) -> str:
    """What one request costs on average."""
    if traffic.sectors:
        return f"{traffic.sectors / traffic.requests:.2f} sectors"
    if traffic.wavefronts:
        conflicts = f", {traffic.conflicts:,} bank conflicts" if traffic.conflicts else ""
        return f"{traffic.wavefronts / traffic.requests:.2f} wavefronts{conflicts}"
    return ""
