"""Launches on several GPUs: each runs in turn for a while, so that one may wait for what another writes.

With one GPU a launch runs to its end when it is issued.  With several it is only noted then.  When the host waits for
something, all launches that nothing holds back go on in turns until what the host waits for has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..checks.peers import Company, Peer
from ..errors import EmulatorError
from ..machine.memory import GlobalMemory
from . import stream_order
from .stream_order import Moment

if TYPE_CHECKING:
    from ..launch import UnderWay

MOST = 64  # launches that are remembered after their end
EARLY = "or the program launches what this waits for only after {}: issue launches that wait for each other together"

Begin = Callable[[Peer], "UnderWay"]


@dataclass
class Issued:
    """A launch that the host has issued on a GPU. begin starts it; ended hears of its end."""

    moment: Moment
    gpu: int
    launched: str
    begin: Begin
    ended: Callable[[UnderWay], None]
    peer: Peer | None = None
    running: UnderWay | None = None


_queue: list[Issued] = []  # that have not ended, in the order in which they were issued
_past: list[Issued] = []  # that have, and with which later ones are compared
_company = Company()


def issue(issued: Issued) -> None:
    """The host launches a kernel."""
    _queue.append(issued)


def settle() -> None:
    """The host has waited: run what it has waited for to its end."""
    host = stream_order.program.host
    run_until(lambda each: host.get(each.moment.lane, 0) >= each.moment.time, "this wait of the host")


def torch_uses(used: set[int], call: str) -> None:
    """A function of torch is about to use tensors of these GPUs: launches there come before it."""
    run_until(lambda each: each.gpu in used, call)


def run_until(wanted: Callable[[Issued], bool], what: str = "") -> None:
    """Run launches in turns until none is left that is wanted. Raises what they raise.

    what: what the host does that has to wait for them, if it may launch more afterwards.
    """
    try:
        while any(map(wanted, _queue)):
            for each in list(_queue):
                if each.running is None and not _begins(each):
                    continue
                assert each.running is not None
                if each.running.go_on(each.running.machine.schedule.turns()):
                    _ended(each)
    except BaseException as error:
        abandon()
        if isinstance(error, EmulatorError) and error.kind == "deadlock" and what:
            error.hint = "; ".join(filter(None, (error.hint, EARLY.format(what))))
        raise
    if not _queue:
        _forget()


def _begins(each: Issued) -> bool:
    """Begin a launch unless one that it comes after has not ended; whether it has begun."""
    if any(each.moment.after(other.moment) for other in _queue if other is not each):
        return False
    before = frozenset(past.peer.number for past in _past if past.peer is not None and each.moment.after(past.moment))
    each.peer = Peer(_company, each.gpu, each.launched, before)
    each.running = each.begin(each.peer)
    each.running.scheduler.others_moved = _watch(each)
    return True


def _watch(each: Issued) -> Callable[[], bool]:
    """Whether any other launch has done something since this was asked last."""
    seen: list[tuple[int, ...]] = [()]

    def moved() -> bool:
        others = [other.running.scheduler.moved for other in _queue if other is not each and other.running is not None]
        waiting = [other for other in _queue if other.running is None]
        before, seen[0] = seen[0], (len(_past), len(waiting), *others)
        return before != seen[0]

    return moved


def _ended(each: Issued) -> None:
    assert each.running is not None
    _queue.remove(each)
    _past.append(each)
    each.ended(each.running)
    if len(_past) > MOST and (first := _past.pop(0)).peer is not None:
        _company.forget(frozenset({first.peer.number}))


def _forget() -> None:
    """Where the host has waited for everything, what comes later is in order."""
    host = stream_order.program.host
    if all(host.get(past.moment.lane, 0) >= past.moment.time for past in _past):
        _company.forget(frozenset(past.peer.number for past in _past if past.peer is not None))
        _past.clear()


def memories() -> list[GlobalMemory]:
    """What the launches under way can reach."""
    return [each.running.machine.memory for each in _queue if each.running is not None]


def abandon() -> None:
    """No launch goes on, and none is remembered."""
    global _company
    for each in _queue:
        if each.running is not None:
            each.running.close()
    _queue.clear()
    _past.clear()
    _company = Company()
