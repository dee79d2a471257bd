"""Ranks: a program that runs once for each, as torchrun starts it, in threads of this process.

One rank runs at a time.  It hands over where it waits: for other ranks, or for work of a GPU.  Kernels run only while
every rank waits, so whatever the program launches before it waits has been launched, as on GPUs, which run on while
processes go their way.  What a process has for itself (`own`) is exchanged whenever another rank goes on.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

from ..errors import Deadlock
from ..ptx.source import describe

NOT_THE_PROGRAM = ("cutetut.", "cutlass", "ctypes", "contextlib", "functools", "tvm_ffi", "torch", "nvshmem")


class Slot(NamedTuple):
    """Something that each rank has for itself; it begins with what `fresh` gives, or else with what is there."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    fresh: Callable[[], Any] | None = None


class Ended(BaseException):
    """Another rank has failed: this one goes no further."""


class Failed(Exception):
    """Work of a rank's GPU has failed."""

    def __init__(self, rank: int, error: BaseException) -> None:
        self.rank, self.error = rank, error


@dataclass(eq=False)
class Rank:
    """One rank. It can go on when `until` is true; `waits` says what it waits for, and where."""

    number: int
    kept: list[Any]
    until: Callable[[], bool] = lambda: True
    waits: str = ""
    error: BaseException | None = None  # to be raised where it waits
    over: bool = False
    status: int = 0
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None


_ranks: list[Rank] = []
_current: Rank | None = None
_ending = False
_done = threading.Event()
_slots: list[Slot] = []
move: Callable[[], bool] = lambda: False  # noqa: E731  goes on with the GPUs' work; whether any could
stuck: Callable[[], tuple[list[str], str]] = lambda: ([], "")  # noqa: E731  what waits for whom, and a hint


def several() -> bool:
    """Whether a program runs as ranks."""
    return bool(_ranks)


def number() -> int:
    """The rank that runs; 0 where a program is alone."""
    return _current.number if _current is not None else 0


def count() -> int:
    """How many ranks there are."""
    return len(_ranks)


def run(programs: int, program: Callable[[int], int], slots: list[Slot]) -> int:
    """Run a program as ranks 0, 1, ... at once; returns the first exit status that is not 0.

    program is called with the rank's number and returns its exit status; where that is not 0 the others end with
    `Ended`. slots are what each has for itself, from what is there now.
    """
    global _current, _ending
    _ending = False
    _done.clear()
    _slots[:] = slots
    before = _own()
    _ranks[:] = [Rank(i, [(slot.fresh or slot.read)() for slot in slots]) for i in range(programs)]
    for rank in _ranks:
        rank.thread = threading.Thread(target=_main, args=(rank, program), daemon=True, name=f"rank {rank.number}")
        rank.thread.start()
    first = _current = _ranks[0]
    _set(first.kept)
    first.go.release()
    try:
        while not _done.wait(0.2):
            _refuse_silence()
    except KeyboardInterrupt:
        _interrupt()
        _done.wait()
    finally:
        statuses = [rank.status for rank in _ranks]
        _ranks.clear()
        _current = None
        _set(before)
        _slots.clear()
    return next(filter(None, statuses), 0)


def attribute(owner: Any, name: str, fresh: Callable[[], Any] | None = None) -> Slot:
    """An attribute that each rank has for itself."""
    return Slot(lambda: getattr(owner, name), lambda value: setattr(owner, name, value), fresh)


def _own() -> list[Any]:
    return [slot.read() for slot in _slots]


def _set(values: list[Any]) -> None:
    for slot, value in zip(_slots, values, strict=True):
        slot.write(value)


def _refuse_silence() -> None:
    """Raise RuntimeError where the rank that should run does not: the others would wait for ever."""
    rank = _current
    if rank is not None and rank.thread is not None and not rank.thread.is_alive() and not _done.is_set():
        raise RuntimeError(f"rank {rank.number} has ended without handing over")


def _interrupt() -> None:
    """Ctrl-C ends the rank that runs, which ends the others."""
    if _current is not None and _current.thread is not None and _current.thread.ident is not None:
        thread = ctypes.c_ulong(_current.thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))


def _main(rank: Rank, program: Callable[[int], int]) -> None:
    global _ending
    rank.go.acquire()
    try:
        rank.status = 0 if _ending else program(rank.number)
    except Ended:
        pass
    _ending = _ending or rank.status != 0
    rank.over = True
    _hand_over(rank)


def wait(until: Callable[[], bool], what: str) -> None:
    """The rank that runs goes on only when this is true. what: for the message, if that never comes.

    Raises Ended when another rank has failed, Deadlock when no rank can go on, and what work of its GPU has raised.
    """
    me = _current
    assert me is not None
    if _ending:
        raise Ended
    if until():
        return
    me.until, me.waits = until, f"{what}{where()}"
    _hand_over(me)
    me.until, me.waits = (lambda: True), ""
    if me.error is not None:
        error, me.error = me.error, None
        raise error
    if _ending:
        raise Ended


def _hand_over(me: Rank) -> None:
    """Let the next rank that can go on do so; returns when it is this one's turn again, or when it is over."""
    global _current
    following = _next(me)
    if following is me:
        return
    if following is None:
        _done.set()
        return
    me.kept = _own()
    _current = following
    _set(following.kept)
    following.go.release()
    if not me.over:
        me.go.acquire()


def _next(me: Rank) -> Rank | None:
    """The next rank that can go on, after what work of the GPUs that takes; None when all are over.

    Where that work fails all ranks end, the one first whose work it is.
    """
    global _ending
    at = me.number + 1
    others = [*_ranks[at:], *_ranks[:at]]
    while left := [rank for rank in others if not rank.over]:
        for rank in left:
            if _ending or rank.until():
                return rank
        try:
            if move():
                continue
            first, error = left[0], _deadlock()
        except Failed as failed:
            number, error = failed.rank, failed.error
            first = next((rank for rank in left if rank.number == number), left[0])
        first.error, _ending = error, True
        return first
    return None


def _deadlock() -> BaseException:
    lines, hint = stuck()
    error = Deadlock("no rank can go on", hint=hint)
    error.notes += [*hosts(), *lines, *(f"  rank {rank.number} has ended" for rank in _ranks if rank.over)]
    error.publish()
    return error


def hosts() -> list[str]:
    """What each rank's host waits for, a line for each."""
    return [f"  rank {rank.number} waits for {rank.waits}" for rank in _ranks if not rank.over and rank.waits]


def where() -> str:
    """The line of the program that runs, as messages show it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(NOT_THE_PROGRAM):
        frame = frame.f_back
    return f" at {describe(frame.f_code.co_filename, frame.f_lineno)}" if frame is not None else ""
