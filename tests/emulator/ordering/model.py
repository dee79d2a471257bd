"""What a kernel of this folder is, what a mistake in it is, and how either is launched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cutetut.emulator.errors import EmulatorError, MissingBarrier, MissingFence
from cutetut.emulator.findings import KINDS, Report
from tests.emulator.mutants import Case, Loaded, Mutant, load


@dataclass(frozen=True)
class Kernel:
    """A host function of a file in tests/emulator/bugs, and what it is called with."""

    file: str
    function: str
    case: Callable[[], Case]

    def load(self, folder: Path, changes: tuple[tuple[str, str], ...] = ()) -> Loaded:
        """Its module with some lines replaced."""
        return load(self.file, folder, *(Mutant(self.file, old, new) for old, new in changes))


@dataclass(frozen=True)
class Mistake:
    """Lines of a kernel that are replaced, and what the report must be: its type, and the lines that it names.

    `new`: what the emulator did not tell as long as only the last access of a warp to a place was remembered.
    """

    kernel: str
    changes: tuple[tuple[str, str], ...]
    errors: tuple[type[Exception], ...]
    lines: tuple[str, ...]
    new: bool = False


Harmless = dict[str, tuple[str, tuple[tuple[str, str], ...]]]  # other lines that are right too: kernel, changes
NOTHING = "pass"  # in place of a line
RACE: tuple[type[EmulatorError], ...] = (MissingBarrier,)
UNORDERED: tuple[type[EmulatorError], ...] = (MissingBarrier, MissingFence)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """1, 2, 3, ... modulo 100."""
    return (1 + torch.arange(torch.Size(shape).numel()) % 100).to(dtype).view(shape)


def elementwise(
    shape: tuple[int, ...], function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype = torch.float32
) -> Callable[[], Case]:
    """One input, one result of the same type."""

    def case() -> Case:
        x = numbers(*shape, dtype=dtype)
        want = function(x.double())
        return [x, torch.zeros(want.shape, dtype=dtype)], want

    return case


def mirrored(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose address is a multiple of 128, which a tensor map needs."""
    size = tensor.element_size()
    room = torch.empty(tensor.numel() + 128 // size, dtype=tensor.dtype, device=tensor.device)
    start = -room.data_ptr() % 128 // size
    return room[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)


class Launch:
    """A kernel compiled for its case: every call starts from the same arguments."""

    def __init__(self, kernel: Kernel, loaded: Loaded, device: str = "cpu") -> None:
        import cutlass.cute as cute
        from cutlass.cute.runtime import from_dlpack

        arguments, self.want = kernel.case()
        self.fresh = [t.to(device) for t in arguments]
        self.tensors = [aligned(t) for t in self.fresh]
        self.views = [from_dlpack(t, assumed_align=128) for t in self.tensors]
        self.function: Any = cute.compile(getattr(loaded.module, kernel.function), *self.views)

    def __call__(self) -> None:
        for tensor, fresh in zip(self.tensors, self.fresh, strict=True):
            tensor.copy_(fresh)
        self.function(*self.views)

    @property
    def right(self) -> bool:
        """Whether the last argument holds what it must."""
        return torch.equal(self.tensors[-1].cpu().double(), self.want.double())


def unnamed(loaded: Loaded, parts: Iterable[str], report: Report) -> list[str]:
    """The lines that no side of a report is at: file, line and text, each as data."""
    at = {(side.source.removeprefix("after "), f"{Path(side.file).name}:{side.line}") for side in report.sides}
    return [line for line in map(loaded.line, parts) if (line, line) not in at]


def check_report(report: Report, text: str) -> None:
    """What every report must have, whatever it is about; it survives JSON."""
    assert report.kind in KINDS and report.kind != "other"
    assert report.text == text and report.explanation in text
    assert report.remedy and report.remedy in text
    assert report.kernel and report.sides and all(side.kernel for side in report.sides)
    assert not (report.locations and [side for side in report.sides if side.role == "executes"]), report.sides
    assert Report.from_json(json.loads(json.dumps(report.as_json()))) == report


def missing(loaded: Loaded, mistake: Mistake, error: Exception) -> list[str]:
    """The lines that the report does not name."""
    wanted = [loaded.line(part) for part in mistake.lines]
    words = str(error).replace(":  ", " ").split()
    return [line for line in wanted if line not in words]
