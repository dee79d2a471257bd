"""What the emulator says of each mistake and of the correct kernels, as `python -m tests.emulator.ordering` records it.

The book's page about the emulator shows this record; a test asks the emulator again.
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
import warnings
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from cutetut.emulator.errors import EmulatorError, EmulatorWarning
from cutetut.explore import under
from tests.emulator.mutants import Loaded
from tests.emulator.ordering.cases import CLASSES, HARMLESS, KERNELS, MISTAKES
from tests.emulator.ordering.model import Launch, missing
from tests.emulator.ordering.words import WORDS

FILE = Path(__file__).parents[1] / "data" / "ordering.json"
SCHEDULES = [f"random:{seed}" for seed in range(20)]


@dataclass(frozen=True)
class Answer:
    """What came of a mistake: the error, if any, and the lines that take part and it does not name."""

    what: str
    error: EmulatorError | None
    expected: bool
    left_out: tuple[str, ...]
    right: bool
    warned: bool
    schedule: str = ""

    def __str__(self) -> str:
        if self.error is None:
            said = "A WARNING" if self.warned else "NOTHING"
            return f"{said}, the result is {'right' if self.right else 'wrong'}"
        kind = "told" if self.expected else "another error"
        kind += f" under {self.schedule}" if self.schedule else ""
        if self.left_out:
            kind += f", without {', '.join(self.left_out)}"
        return f"{kind}: {type(self.error).__name__}: {self.error.what}"


@dataclass(frozen=True)
class Row:
    """A mistake as the record has it; `error` is empty where none of the right type was raised.

    `schedule` says under which of those that were tried it was, where it took another than the usual one.
    """

    name: str
    about: str
    what: str
    error: str
    all_lines: bool
    warned: bool
    schedule: str


def ask(name: str) -> Answer:
    """Run a mistake; under other schedules too if nothing is said of it."""
    answer = ask_once(name)
    if answer.error is None and not answer.warned:
        for schedule in SCHEDULES:
            with under(os.environ.get("CUTETUT_ASYNC", "late"), schedule):
                other = ask_once(name)
            if other.error is not None:
                return replace(other, schedule=schedule)
    return answer


def ask_once(name: str) -> Answer:
    """Run a mistake under the schedule that is set."""
    mistake = MISTAKES[name]
    with tempfile.TemporaryDirectory() as folder:
        ran = _run(Path(folder), mistake.kernel, mistake.changes)
        left_out = tuple(missing(ran.loaded, mistake, ran.error)) if ran.error is not None else ()
    right = ran.error is None and ran.launch.right
    return Answer(WORDS[name], ran.error, isinstance(ran.error, mistake.errors), left_out, right, ran.warned)


@dataclass(frozen=True)
class _Ran:
    """A kernel that was launched once."""

    loaded: Loaded
    launch: Launch
    error: EmulatorError | None
    warned: bool


def _run(folder: Path, kernel: str, changes: tuple[tuple[str, str], ...]) -> _Ran:
    """Launch a kernel with some lines replaced."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", EmulatorWarning)
        loaded = KERNELS[kernel].load(folder, changes)
        launch = Launch(KERNELS[kernel], loaded)
        failed: EmulatorError | None = None
        try:
            launch()
        except EmulatorError as error:
            failed = error
    return _Ran(loaded, launch, failed, any(issubclass(w.category, EmulatorWarning) for w in said))


def row(name: str, answer: Answer) -> Row:
    """An answer as the record has it: an error of a type that the mistake does not have counts as none."""
    error = type(answer.error).__name__ if answer.error is not None and answer.expected else ""
    return Row(
        name, CLASSES[name], answer.what, error, bool(error) and not answer.left_out, answer.warned, answer.schedule
    )


def alarms() -> list[str]:
    """The correct kernels of which something is said."""
    found = []
    for name in [*KERNELS, *HARMLESS]:
        with tempfile.TemporaryDirectory() as folder:
            ran = _run(Path(folder), *HARMLESS.get(name, (name, ())))
        if ran.error is not None or ran.warned:
            found.append(name)
    return found


def write(rows: list[Row], policy: str, schedule: str, file: Path = FILE) -> None:
    """Write the record."""
    facts = {"cutlass_dsl": version("nvidia-cutlass-dsl"), "policy": policy, "schedule": schedule,
             "date": datetime.date.today().isoformat()}  # fmt: skip
    correct = {"kernels": len(KERNELS), "variants": len(HARMLESS), "alarms": alarms()}
    record = {"provenance": facts, "correct": correct, "mistakes": [asdict(row) for row in rows]}
    file.write_text(json.dumps(record, indent=1) + "\n")
