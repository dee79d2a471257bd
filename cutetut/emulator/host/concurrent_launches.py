"""Launches of a program that nothing orders, as each new launch is compared with them (checks/concurrent.py).

Only while a program has the device "cuda" (cuda_torch.py): there everything that makes the host wait is known, and to
whom memory belongs.  As long as it uses one stream nothing is compared, and only what the last launches wrote is kept.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import FrameType

from ..checks.concurrent import Footprint, Turn
from ..checks.previous import Written
from ..launch import LaunchReport
from ..ptx.source import describe
from ..ptx.source import text as source_text
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
_torch: deque[_Past] = deque(maxlen=MOST)  # what torch's own operations wrote, once there are several streams
_watching = False


def watch() -> None:
    """The device "cuda" is there: compare launches from now on."""
    global _watching
    forget()
    stream_order.forget()
    _watching = True


def stop() -> None:
    """The device "cuda" is gone: compare nothing any more."""
    global _watching
    forget()
    _watching = False


def forget() -> None:
    """No launch is remembered."""
    _past.clear()
    _early.clear()
    _torch.clear()


def any_unordered() -> bool:
    """Whether a later launch may be unordered with past work, so that what the host waits for matters."""
    return bool(_past or _early or _torch)


def several_streams() -> bool:
    """Whether a program has more than one stream."""
    return _watching and len(stream_order.program.streams) > 1


def a_stream_beside() -> bool:
    """Whether a program has a stream besides the default one, which it may use at any time."""
    return _watching and bool(stream_order.program.streams - {stream_order.DEFAULT})


def turn(moment: Moment, stream: int) -> Turn | None:
    """What a launch on a stream must be compared with; None where nothing can be unordered."""
    if not several_streams():
        return None
    for then, written, launched in _early:
        _remember(then, Footprint.of_written(written, launched))
    _early.clear()
    host = stream_order.program.host
    others = []
    for work in (_past, _torch):
        kept = [past for past in work if host.get(past.moment.lane, 0) < past.moment.time]
        work.clear()
        work.extend(kept)
        others += [_alive(past) for past in kept if not moment.after(past.moment)]
    return Turn(where_launched(stream), tuple(other for other in others if other.pieces))


def over(moment: Moment, stream: int, report: LaunchReport) -> None:
    """A launch has ended: later ones are compared with what it touched."""
    if isinstance(report.footprint, Footprint):
        _remember(moment, report.footprint)
    elif _watching and isinstance(report.written, Written):
        _early.append((moment, report.written, where_launched(stream)))
        while len(_early) > 1 and sum(written.nbytes for _, written, _ in _early) > MOST_BYTES:
            _early.popleft()


def torch_wrote(name: str, stream: int, written: Sequence[tuple[int, int, int]]) -> None:
    """A function of torch has written memory: starts of allocations, and addresses from and to."""
    places = [(frame.f_code.co_filename, frame.f_lineno) for frame in _program(sys._getframe(1))[:1]]
    source, text = (describe(*places[0]), source_text(*places[0])) if places else ("", "")
    footprint = Footprint.of_host(f"torch's {name}", source, text, written, where_launched(stream))
    _remember(stream_order.program.issue(stream), footprint, _torch)


def _remember(moment: Moment, footprint: Footprint, work: deque[_Past] = _past) -> None:
    owners = {piece.start: _owner(piece.start) for piece in footprint.pieces}
    work.append(_Past(moment, footprint, {start: owner for start, owner in owners.items() if owner is not None}))


def _alive(past: _Past) -> Footprint:
    """What a launch touched of memory that still has the same owner."""
    pieces = past.footprint.pieces
    return past.footprint.only(p for p in pieces if p.start in past.owners and _owner(p.start) == past.owners[p.start])


def _owner(address: int) -> Hashable | None:
    """The owner of the memory at an address, None if that cannot be known."""
    return pool.owner(address) or live.owner(address)


def where_launched(stream: int) -> str:
    """How messages say where and on which stream the program launches."""
    name = "the default stream" if stream <= stream_order.LEGACY else f"stream {stream:#x}"
    places = [describe(frame.f_code.co_filename, frame.f_lineno) for frame in _program(sys._getframe(1))]
    called = f" (called at {places[1]})" if len(places) > 1 else ""
    return f"on {name} at {places[0]}{called}" if places else f"on {name}"


def _program(frame: FrameType | None) -> list[FrameType]:
    """The innermost call under way that is the program's and, if that is the program's as well, the one around it."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(NOT_THE_PROGRAM):
        frame = frame.f_back
    around = frame.f_back if frame is not None else None
    if around is not None and around.f_globals.get("__name__", "").startswith((*NOT_THE_PROGRAM, "runpy")):
        around = None
    return [each for each in (frame, around) if each is not None]
