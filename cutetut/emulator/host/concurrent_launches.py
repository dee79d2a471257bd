"""Launches of a program that nothing orders, as each new launch is compared with them (checks/concurrent.py).

Only while a program has the device "cuda" (cuda_torch.py): there everything that makes the host wait is known, and to
whom memory belongs.  As long as it uses one stream nothing is compared, and only what the last launches wrote is kept.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from types import FrameType

from ..checks.concurrent import Footprint, Turn
from ..checks.previous import Written
from ..launch import LaunchReport
from ..ptx.source import describe
from . import live, pool, stream_order
from .ranks import NOT_THE_PROGRAM
from .stream_order import Moment

MOST = 64  # launches that are remembered,
MOST_BYTES = 1 << 25  # and of those before the second stream, as long as their tables are no larger


@dataclass
class _Past:
    moment: Moment
    footprint: Footprint
    owners: dict[int, Hashable]  # by the start of a piece of its memory, whose that was


_past: deque[_Past] = deque(maxlen=MOST)
_early: deque[tuple[Moment, Written, str]] = deque(maxlen=MOST)
_watching = False


def watch() -> None:
    """The device "cuda" is there: compare launches from now on."""
    global _watching
    forget()
    stream_order.forget()
    _watching = True


def stop() -> None:
    """It is no more."""
    global _watching
    forget()
    _watching = False


def forget() -> None:
    """No launch is remembered."""
    _past.clear()
    _early.clear()


def any_unordered() -> bool:
    """Whether a later launch may be unordered with a past one, so that what the host waits for matters."""
    return bool(_past or _early)


def several_streams() -> bool:
    """Whether a program has more streams than one."""
    return _watching and len(stream_order.program.streams) > 1


def turn(moment: Moment, stream: int) -> Turn | None:
    """What a launch on a stream must be compared with; None where nothing can be unordered."""
    if not several_streams():
        return None
    for then, written, launched in _early:
        _remember(then, Footprint.of_written(written, launched))
    _early.clear()
    host = stream_order.program.host
    kept = [past for past in _past if host.get(past.moment.lane, 0) < past.moment.time]
    _past.clear()
    _past.extend(kept)
    others = [_alive(past) for past in kept if not moment.after(past.moment)]
    return Turn(where_launched(stream), tuple(other for other in others if other.pieces))


def over(moment: Moment, stream: int, report: LaunchReport) -> None:
    """A launch has ended: later ones are compared with what it touched."""
    if isinstance(report.footprint, Footprint):
        _remember(moment, report.footprint)
    elif _watching and isinstance(report.written, Written):
        _early.append((moment, report.written, where_launched(stream)))
        while len(_early) > 1 and sum(written.nbytes for _, written, _ in _early) > MOST_BYTES:
            _early.popleft()


def _remember(moment: Moment, footprint: Footprint) -> None:
    owners = {piece.start: _owner(piece.start) for piece in footprint.pieces}
    _past.append(_Past(moment, footprint, {start: owner for start, owner in owners.items() if owner is not None}))


def _alive(past: _Past) -> Footprint:
    """What a launch touched and still belongs to whom it belonged then."""
    pieces = past.footprint.pieces
    return past.footprint.only(p for p in pieces if p.start in past.owners and _owner(p.start) == past.owners[p.start])


def _owner(address: int) -> Hashable | None:
    """To whom the memory at an address belongs, None if that cannot be known."""
    return pool.owner(address) or live.owner(address)


def where_launched(stream: int) -> str:
    """How messages say where and on which stream the program launches."""
    name = "the default stream" if stream <= stream_order.LEGACY else f"stream {stream:#x}"
    places = [describe(frame.f_code.co_filename, frame.f_lineno) for frame in _program(sys._getframe(1))]
    called = f" (called at {places[1]})" if len(places) > 1 else ""
    return f"on {name} at {places[0]}{called}" if places else f"on {name}"


def _program(frame: FrameType | None) -> list[FrameType]:
    """Of the calls under way the innermost one of the program and, if that is the program's too, the one around it."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(NOT_THE_PROGRAM):
        frame = frame.f_back
    around = frame.f_back if frame is not None else None
    if around is not None and around.f_globals.get("__name__", "").startswith((*NOT_THE_PROGRAM, "runpy")):
        around = None
    return [each for each in (frame, around) if each is not None]
