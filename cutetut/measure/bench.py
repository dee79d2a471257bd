"""Side-by-side timing on a GPU, and the recorded tables that show everywhere.

A speed is only meaningful beside a vendor kernel measured in the same process on the same inputs, so `compare`
alternates the two and returns both. It never times the emulator: that would say nothing about a GPU.

The contract for a notebook: its cell tagged `bench` defines

    def benchmark() -> list[dict]:
        ...  # allocate random normal inputs, call bench.compare for each size, return all the rows

and may use whatever the cells tagged `imports` and `kernel` define. `python -m cutetut bench NAME` calls it on a
GPU host and writes `book/data/NAME.json`; `recorded("NAME")` in another cell prints that table on any machine.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cutetut.columns import aligned
from cutetut.course import notebooks, provenance
from cutetut.measure import journal, rungs, turns

WARM_UP = 10  # launches of each before anything is timed
BURST = 40  # launches back to back, after a rest: what a GPU does while it is cool
REST = 0.1  # seconds of rest before a burst, so that clocks recover
ROUNDS = 5  # times that ours and the vendor's bursts take turns; the median counts
WINDOWS = 3  # the same for sustained windows, each of which is a long average already
BURST_LIMIT = 1.0  # seconds that a burst may take, so that a slow kernel does not take minutes

TFLOPS = "TFLOP/s"  # the unit of speeds in rows that name no other

BENCH_TAGS = ("imports", "kernel", "bench")
CHOICE = "choice"  # a kernel cell that chooses among plans: rows say what was chosen, so another choice ages no row
REQUIRED = ("kernel", "vendor", "method", "inputs", "ours_tflops", "vendor_tflops", "ratio")
RANGES = ("ours_us_range", "vendor_us_range", "ratio_range")  # lowest and highest of the repeats; older rows lack them
NOT_SHOWN = (  # in a row for whoever looks closer
    "ours_us", "vendor_us", "launches", "sm_mhz", "vendor_sm_mhz", *RANGES, rungs.MARK,
)  # fmt: skip

Row = dict[str, Any]


class NeedsGPU(RuntimeError):
    """A measurement was asked for where kernels do not run on a GPU."""


class BenchError(RuntimeError):
    """A benchmark or its recorded table is missing or malformed; the message says what to do."""


class Timed(NamedTuple):
    """What launches back to back took."""

    seconds: float  # of GPU time, from the first one's start to the last one's end
    mhz: int | None  # the mean clock of the SMs meanwhile; None if it could not be read


class Timer(Protocol):
    """What `measure` needs from a GPU; the tests pass one with a known clock."""

    def timed(self, function: Callable[[], Any], launches: int) -> Timed:
        """Time this many calls back to back."""

    def rest(self, seconds: float) -> None:
        """Let the GPU idle."""


class CudaTimer:
    """Times with CUDA events on torch's current stream, which is where both kernels have to launch."""

    def __init__(self) -> None:
        import torch

        from cutetut.measure import clock

        self._cuda, self._clock = torch.cuda, clock.of_gpu(torch.cuda.current_device())

    def timed(self, function: Callable[[], Any], launches: int) -> Timed:
        """Seconds between an event before the first launch and one after the last, and the SMs' mean clock."""
        start, end = self._cuda.Event(enable_timing=True), self._cuda.Event(enable_timing=True)
        self._cuda.synchronize()
        self._clock.begin()
        start.record()
        for _ in range(launches):
            function()
        end.record()
        self._clock.end()
        end.synchronize()
        return Timed(float(start.elapsed_time(end)) / 1e3, self._clock.mhz())

    def seconds(self, function: Callable[[], Any], launches: int) -> float:
        """The seconds of `timed` alone."""
        return self.timed(function, launches).seconds

    def clock_mhz(self, function: Callable[[], Any], launches: int) -> int | None:
        """The clock of `timed` alone, in MHz."""
        return self.timed(function, launches).mhz

    def rest(self, seconds: float) -> None:
        """Let everything finish, then wait."""
        self._cuda.synchronize()
        time.sleep(seconds)


def compare(
    ours: Callable[[], Any],
    vendor: Callable[[], Any] | Mapping[str, Callable[[], Any]],
    *,
    flops: float,
    size: Mapping[str, Any],
    vendor_name: str = "",
    kernel: str = "ours",
    inputs: str = "random normal",
    seconds: float = 0.2,
    rung: bool = False,
    unit: str = TFLOPS,
) -> list[Row]:
    """Time two kernels that compute the same thing, taking turns in this process; return two rows.

    ours, vendor: callables without arguments that launch on torch's current stream. `vendor` may be several, by their
    names: all take turns, a row compares with the one that is fastest by its method, and has the speeds of all as
    `NAME_tflops`, whatever the unit; `vendor_name` is for one alone. flops: floating-point
    operations of one launch. size: what to call this measurement, such as {"M": 4096, ...}; it opens each
    row. seconds: length of a sustained window. rung: whether these rows stand for the chapter beside the others'.
    unit: of the speeds where it is not TFLOP/s: with the bytes of one launch as `flops` they are TB/s. Each
    side is warmed up with 10 launches, then five bursts each (40 launches after 0.1 s of rest, fewer if they would take
    over a second) and three sustained windows each take turns; a row holds the median of a method: `ours_tflops`,
    `vendor_tflops`, `ratio`, `ours_us`, `vendor_us` (microseconds per launch, its overhead included), `launches`,
    `sm_mhz` and `vendor_sm_mhz`, the mean clock of each side's SMs while it was timed. `ours_us_range` and
    `vendor_us_range` are [lowest, highest] of the repeats, and `ratio_range` that of the ratios of two repeats that
    took turns. Raises NeedsGPU on the emulator.
    """
    _require_gpu("bench.compare")
    labels: dict[str, Any] = {"kernel": kernel, "vendor": vendor_name, "inputs": inputs}
    if rung:
        labels[rungs.MARK] = True
    if unit != TFLOPS:
        labels["unit"] = unit
    labels = {**size, **labels}
    sides = sorted(vendor) if isinstance(vendor, Mapping) else []
    what = {"labels": labels, "sides": sides, "flops": flops, "seconds": seconds}
    return journal.once(
        what, lambda: measure(ours, vendor, flops=flops, labels=labels, seconds=seconds, timer=CudaTimer())
    )


def measure(
    ours: Callable[[], Any],
    vendor: Callable[[], Any] | Mapping[str, Callable[[], Any]],
    *,
    flops: float,
    labels: Mapping[str, Any],
    seconds: float,
    timer: Timer,
) -> list[Row]:
    """The measurement behind `compare`, on any timer; raises ValueError for flops or seconds that are not positive."""
    if not (flops > 0 and seconds > 0):
        raise ValueError(f"flops and seconds must be positive, got {flops} and {seconds}")
    several = vendor if isinstance(vendor, Mapping) else {"vendor": vendor}
    if not several or "ours" in several:
        raise ValueError(f"vendors are one or more, by names other than 'ours', got {list(several)}")
    sides = {"ours": ours, **several}
    once = {}
    for side, function in sides.items():
        timer.timed(function, WARM_UP)
        once[side] = max(timer.timed(function, WARM_UP).seconds / WARM_UP, 1e-9)
    burst = {side: max(1, min(BURST, int(BURST_LIMIT / t))) for side, t in once.items()}
    window = {side: max(1, math.ceil(seconds / t)) for side, t in once.items()}
    rows: list[Row] = []
    for method, launches, rest, rounds in (
        (f"burst of {BURST} launches", burst, REST, ROUNDS),
        (f"sustained {seconds * 1e3:.0f} ms", window, 0.0, WINDOWS),
    ):
        timed = _take_turns(sides, launches, rest, rounds, timer)
        times = {side: [each.seconds / launches[side] for each in found] for side, found in timed.items()}
        median = {side: statistics.median(values) for side, values in times.items()}
        tflops = {side: flops / t / 1e12 for side, t in median.items()}
        best = min(several, key=lambda side: median[side])
        named = {"vendor": best, **{f"{name}_tflops": tflops[name] for name in several}} if several is vendor else {}
        rows.append(
            {
                **labels,
                **named,
                "method": method,
                "ours_tflops": tflops["ours"],
                "vendor_tflops": tflops[best],
                "ratio": tflops["ours"] / tflops[best],
                "ours_us": median["ours"] * 1e6,
                "vendor_us": median[best] * 1e6,
                **_ranges({"ours": times["ours"], "vendor": times[best]}),
                "launches": launches["ours"],
                "sm_mhz": _clock(timed["ours"]),
                "vendor_sm_mhz": _clock(timed[best]),
            }
        )
    return rows


def _clock(found: Sequence[Timed]) -> int | None:
    """The median of the clocks that were read."""
    clocks = [each.mhz for each in found if each.mhz is not None]
    return round(statistics.median(clocks)) if clocks else None


def _ranges(times: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """The lowest and highest of the repeats, given as seconds of each side in each round: the fields in RANGES."""
    ours, vendor = ([1e6 * t for t in times[side]] for side in ("ours", "vendor"))
    ratios = [theirs / own for own, theirs in zip(ours, vendor, strict=True)]
    return {name: [min(values), max(values)] for name, values in zip(RANGES, (ours, vendor, ratios), strict=True)}


def _take_turns(
    sides: Mapping[str, Callable[[], Any]],
    launches: Mapping[str, int],
    rest: float,
    rounds: int,
    timer: Timer,
) -> dict[str, list[Timed]]:
    """Each side's launches in each round; which one goes first alternates, so that neither runs cooler."""
    found: dict[str, list[Timed]] = {side: [] for side in sides}
    order = list(sides.items())
    for turn in range(rounds):
        for side, function in order if turn % 2 == 0 else reversed(order):
            if rest:
                timer.rest(rest)
            found[side].append(timer.timed(function, launches[side]))
    return found


def run(name: str, part: str = "", keep: bool = False) -> Path:
    """Call a notebook's `benchmark()` on this GPU, write `book/data/<name>.json` and print its table.

    If it is interrupted, finished comparisons stay in `.cache/measured`, and the next run continues from there.
    keep: what the table has of the same code and a machine of the same kind is kept, and only the rest is measured.
    part: of a benchmark that would take too long in one piece: its function is `benchmark_<part>`, and its table
    `book/data/<name>_<part>.json`. Raises provenance.NotRecordable without a Hopper GPU, NeedsGPU if the emulator was
    asked for, BenchError if the rows are malformed or the file cannot be written, and NotebookError if the notebook has
    no bench cell.
    """
    chapter, facts = _ready(name)
    module = chapter.load(BENCH_TAGS)
    function = f"benchmark_{part}" if part else "benchmark"
    if not callable(getattr(module, function, None)):
        raise BenchError(f"{chapter.name}: a cell tagged `bench` must define `def {function}()`, which returns rows")
    head = {"notebook": chapter.name, "provenance": facts, "code_hash": _hash(chapter)}
    kept = notebooks.project_root() / ".cache" / "measured" / f"{stem(chapter.name, part)}.jsonl"
    of = head | {"provenance": _machine(facts)}
    table = _table_of(of, chapter.name, part) if keep else []
    with turns.taken(), journal.written(kept, of, table) as compared:
        measured = getattr(module, function)()
        rows = rungs.marked(chapter.name, validated(measured, chapter.name))
        if keep:
            print(f"comparisons kept from the table: {compared.kept}")
        path = _write(head, rows, rows, part)
        compared.end()
    return path


def add(name: str, expression: str) -> Path:
    """Evaluate an expression with the names of a notebook's bench cells, and add its rows to the recorded table.

    For more of the same without measuring everything again, such as another size or longer windows; the file keeps
    the expression. Raises what `run` raises, and BenchError if the table was measured with other code or on a machine
    that differs in more than the date, or if the expression cannot be read.
    """
    chapter, facts = _ready(name)
    stem = chapter.name
    content = read(stem)
    again = f"measure all: python -m cutetut bench {stem}"
    if content["code_hash"] != _hash(chapter):
        raise BenchError(f"{stem} has changed since its table was measured, and rows must be of one kernel; {again}")
    for key, value in _machine(facts).items():
        if value != content["provenance"].get(key):
            there = content["provenance"].get(key)
            raise BenchError(f"{stem}'s table was measured with {key} {there}, this machine has {value}; {again}")
    try:
        code = compile(expression, "<rows to add>", "eval")
    except SyntaxError as error:
        raise BenchError(f"{expression!r} is not a Python expression: {error.msg}") from error
    names = dict(vars(chapter.load(BENCH_TAGS)))
    with turns.taken():
        measured = eval(code, names)
    rows = rungs.marked(stem, validated(measured, stem))
    before = content.pop("rows")
    return _write({**content, "added": [*content.get("added", []), expression]}, [*before, *rows], rows)


def _table_of(of: Mapping[str, Any], name: str, part: str) -> list[Row]:
    """The rows of a table, if it was measured with this code on such a machine; else none."""
    try:
        content = read(name, part)
    except BenchError:
        return []
    found = {"notebook": name, "provenance": _machine(content["provenance"]), "code_hash": content["code_hash"]}
    return list(content["rows"]) if found == of else []


def _machine(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that must match before rows from different days share a table."""
    return {key: value for key, value in facts.items() if key != "date"}


def _ready(name: str) -> tuple[notebooks.Notebook, dict[str, str]]:
    """The notebook and this machine's facts. Raises if it cannot be measured here or its table cannot be written."""
    facts = provenance.collect()
    _require_gpu("python -m cutetut bench")
    chapter = notebooks.notebook(name)
    facts = provenance.of_several(facts, chapter.gpus)
    folder = data_file(chapter.name).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"{folder} cannot be made: {error}; nothing was measured") from error
    if not os.access(folder, os.W_OK):
        raise BenchError(f"no permission to write {folder}: nothing was measured")
    return chapter, facts


def _write(head: Mapping[str, Any], rows: Sequence[Row], new: Sequence[Row], part: str = "") -> Path:
    """Write a notebook's file, or that of a part, with a line for each row, and print the table of the new ones."""
    about = ",\n".join(json.dumps({key: value}, allow_nan=False)[1:-1] for key, value in head.items())
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    path = data_file(stem(head["notebook"], part))
    notebooks.replace_text(path, f'{{{about},\n"rows": [\n{lines}\n]}}\n')
    print(table(new))
    return path


def validated(rows: Any, name: str) -> list[Row]:
    """The rows without unmeasured values, if a table can be made of them; raises BenchError."""
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, dict) for row in rows):
        raise BenchError(f"{name}: benchmark() must return a non-empty list of rows, as bench.compare does")
    for number, row in enumerate(rows):
        missing = [key for key in REQUIRED if key not in row]
        if missing:
            raise BenchError(f"{name}: row {number} of benchmark() lacks {', '.join(missing)}")
        for key in ("ours_tflops", "vendor_tflops", "ratio"):
            value = row[key]
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise BenchError(f"{name}: row {number} of benchmark() has {key} = {value!r}, not a positive number")
    return [{key: value for key, value in row.items() if not _unmeasured(value)} for row in rows]


def _unmeasured(value: Any) -> bool:
    """None and NaN in a row's other columns mean that this was not measured for the row."""
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def recorded(name: str, part: str = "") -> None:
    """Print a notebook's measured table, or a part's, on any machine, and say where and when it was measured.

    Raises BenchError if none was recorded, saying how to record one.
    """
    content = read(name, part)
    print(origin(name, content))
    print(table(content["rows"]))


def origin(name: str, content: Mapping[str, Any]) -> str:
    """Where and when a notebook's file was measured, in a sentence, and whether the kernels have changed since."""
    text = f"Measured on {provenance.sentence(content['provenance'])}"
    if content["code_hash"] != current_hash(name):
        text += "\nThe kernels have changed since: these numbers belong to an earlier version of this notebook."
    return text


def read(name: str, part: str = "") -> dict[str, Any]:
    """The content of `book/data/<name>.json` or `<name>_<part>.json`: notebook, provenance, code_hash and rows.

    Raises BenchError.
    """
    content = content_of(name, data_file(stem(name, part)), "rows", part)
    content["rows"] = validated(content["rows"], name)
    return content


def content_of(name: str, path: Path, what: str, part: str = "") -> dict[str, Any]:
    """The content of a file of a notebook's, or of its benchmark's part: provenance, code_hash and `what`.

    Raises BenchError.
    """
    again = f"on a Hopper GPU host, type: python -m cutetut bench {name}" + (f" --part {part}" if part else "")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BenchError(f"nothing was measured for {path.stem} yet; {again}") from None
    except (OSError, ValueError) as error:
        raise BenchError(f"{path.name} cannot be read ({error}); {again}") from error
    if not isinstance(content, dict) or not {"provenance", "code_hash", what} <= content.keys():
        raise BenchError(f"{path.name} is not a recorded table; {again}")
    return content


def current_hash(name: str) -> str:
    """The hash that a measurement of the notebook as it is now would carry: over its bench and kernel cells.

    Those tagged `choice` do not count.
    """
    return _hash(notebooks.notebook(name))


def _hash(chapter: notebooks.Notebook) -> str:
    return chapter.code_hash(BENCH_TAGS, CHOICE)


def stem(name: str, part: str) -> str:
    """What the table of a notebook's measurements, or of a part of them, is called."""
    return f"{name}_{part}" if part else name


def data_file(name: str) -> Path:
    """Where a notebook's measurements live."""
    return notebooks.project_root() / "book" / "data" / f"{name}.json"


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text: sizes, then speeds and their ratio; what all rows share stands in a line above.

    A ratio is followed by the lowest and the highest of its repeats, where they were recorded.
    """
    keys = dict.fromkeys(key for row in rows for key in row)
    named = [key for key in keys if key not in NOT_SHOWN]
    measured = {key for row in rows for key, value in row.items() if isinstance(value, float)}
    columns = [key for key in named if key in measured or len({str(row.get(key)) for row in rows}) > 1]
    constant = [f"{key}: {rows[0][key]}" for key in named if key not in columns]
    units = {row.get("unit", TFLOPS) for row in rows}
    unit = f" {units.pop()}" if len(units) == 1 else ""  # rows of several units have a column of them
    titles = [re.sub("_tflops$", unit, column) for column in columns]
    cells = [[_with_range(row, column) for column in columns] for row in rows]
    lines = aligned([titles, *cells], right=range(len(titles)))
    return "\n".join(filter(None, [", ".join(constant), lines]))


def _with_range(row: Row, column: str) -> str:
    return ratio(row) if column == "ratio" else shown(row.get(column))


def ratio(row: Row) -> str:
    """The ratio of a row with the lowest and the highest of its repeats in brackets: 0.926 [0.921, 0.929].

    Rows that were recorded without their repeats have the ratio alone.
    """
    return f"{shown(row['ratio'])}{_interval(row.get('ratio_range'))}"


def against(rows: Sequence[Row], other: str) -> list[Row]:
    """The rows of kernels that took turns with `other`; "cuDNN" is any version of it, as in "cuDNN 9.19.0"."""
    return [row for row in rows if row["vendor"] == other or row["vendor"].startswith(f"{other} ")]


def gain(row: Row, before: Row) -> str:
    """How many times as fast our kernel is in `row` as in `before`, for one problem: 1.25 [1.24, 1.27].

    The brackets have the least and the most that the repeats of the two allow. Where 1 lies between them, the
    repeats show no difference.
    """
    spread = None
    if "ours_us_range" in row and "ours_us_range" in before:
        (fastest, slowest), (fastest_before, slowest_before) = row["ours_us_range"], before["ours_us_range"]
        spread = fastest_before / slowest, slowest_before / fastest
    return f"{shown(before['ours_us'] / row['ours_us'])}{_interval(spread)}"


def _interval(spread: Sequence[float] | None) -> str:
    return f" [{shown(spread[0])}, {shown(spread[1])}]" if spread else ""


def shown(value: Any) -> str:
    """Three significant digits for a measured number, nothing for a missing one, the rest as it is."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _require_gpu(what: str) -> None:
    from cutetut import backend

    if not backend.activate(announce=False).on_gpu:
        raise NeedsGPU(
            f"{what} measures a GPU, but here kernels run in the emulator, whose speed says nothing about a GPU's. "
            "Show the measured table with bench.recorded(name), or run `python -m cutetut bench` on a Hopper GPU host"
        )
