"""Errors that the user lets a kernel go on after: undefined in PTX, but often harmless on the hardware.

Four kinds can be tolerated, because going on is possible after them:

    uninitialized   a register or shared memory is used that nothing has written: it holds what it happens to hold
    shuffle         the member mask of a warp-wide instruction is not that of the lanes that execute it
    race            accesses to the same memory that nothing orders
    fragment        an element of A is read from its register while a WGMMA reads it, too

CUTETUT_WARN=1 turns all of them into warnings, CUTETUT_WARN=race,shuffle some.  CUTETUT_WAIVE=KIND@FILE:LINE (several
with ; between them) accepts one kind at one line; FILE is the end of a path, or a place as errors name it, such as
"notebook cell 5, line 12"; PTX without lines of source is FILE "PTX".  A waiver is reported once, not its errors.

Where such an error would be raised, build it and ask the scheduler, which reports it if it is tolerated:

    if not scheduler.tolerates("race", error, inst):
        raise error
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import EmulatorError, LaunchError, warn
from ..ptx.source import describe
from ..ptx.syntax import Instruction

KINDS = ("uninitialized", "shuffle", "race", "fragment")
WARN, WAIVE = "CUTETUT_WARN", "CUTETUT_WAIVE"
_shown: dict[Any, Any] = {}  # what Python's warnings have shown: the same text is shown once, launch after launch


@dataclass(frozen=True)
class Waiver:
    """One kind of error, accepted at one line."""

    kind: str
    place: str

    def covers(self, kind: str, insts: Iterable[Instruction]) -> bool:
        """Whether an error of this kind is at this line, by any of the instructions that it is about."""
        if kind != self.kind:
            return False
        names = [name for inst in insts for name in _names(inst)]
        return any(name == self.place or name.endswith(f"/{self.place}") for name in names)


def _names(inst: Instruction) -> tuple[str, ...]:
    """What a line may be called."""
    if inst.loc is None:
        return (f"PTX:{inst.line}",)
    return f"{inst.loc.file}:{inst.loc.line}", describe(inst.loc.file, inst.loc.line)


@dataclass
class Tolerance:
    """What the user tolerates, and what has been reported of it in this launch."""

    kinds: frozenset[str] = frozenset()
    waivers: tuple[Waiver, ...] = ()
    reported: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Tolerance:
        """Raises LaunchError for a kind that does not exist and a waiver that names no line."""
        return cls(_kinds(environment.get(WARN, "")), _waivers(environment.get(WAIVE, "")))

    def of(self, kind: str, error: EmulatorError, inst: Instruction) -> bool:
        """Whether the kernel may go on after an error at an instruction; then it has been reported, once per line."""
        insts = [inst] if error.inst is None else [inst, error.inst]
        waiver = next((waiver for waiver in self.waivers if waiver.covers(kind, insts)), None)
        if waiver is None and kind not in self.kinds:
            return False
        if (kind, _names(inst)[0]) not in self.reported:
            self.reported.add((kind, _names(inst)[0]))
            text = f"{kind}: {type(error).__name__}: {error}"
            _warn(text if waiver is None else f"{kind}: waived at {waiver.place}", error, inst)
        return True


def _warn(text: str, error: EmulatorError, inst: Instruction) -> None:
    file, line = (inst.loc.file, inst.loc.line) if inst.loc is not None else ("PTX", inst.line)
    warn(text, error, file, line, _shown)


def _kinds(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names in ([], ["0"]):
        return frozenset()
    if names in (["1"], ["all"]):
        return frozenset(KINDS)
    for name in names:
        _check_kind(name, WARN)
    return frozenset(names)


def _waivers(text: str) -> tuple[Waiver, ...]:
    found = []
    for item in filter(None, (item.strip() for item in text.split(";"))):
        kind, at, place = item.partition("@")
        if not at or not place[-1:].isdigit():
            raise LaunchError(f"{item!r} is not a waiver: it is KIND@FILE:LINE, such as race@kernel.py:12")
        _check_kind(kind, WAIVE)
        found.append(Waiver(kind, place))
    return tuple(found)


def _check_kind(name: str, variable: str) -> None:
    if name not in KINDS:
        raise LaunchError(f"{name!r} in {variable} cannot be tolerated; these can: {', '.join(KINDS)}")
