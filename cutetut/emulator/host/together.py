"""Launches on several GPUs: each runs in turn for a while, so that one may wait for what another writes.

With one GPU a launch runs to its end when it is issued.  With several it is only noted then.  When the host waits for
something, all launches that nothing holds back go on in turns until what the host waits for has ended.  Where a program
runs as ranks (ranks.py), that is once all hosts wait.  What NCCL would do takes its turns among them (exchanges.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..checks.peers import Company, Peer
from ..errors import EmulatorError, MissingBarrier
from ..machine.memory import GlobalMemory
from . import ranks, stream_order
from .stream_order import Known, Moment

if TYPE_CHECKING:
    from ..launch import UnderWay

MOST = 64  # launches that are remembered after their end
HOST_WAITS = "this wait of the host"
EARLY = "or the program launches what this waits for only after {}: issue launches that wait for each other together"

Begin = Callable[[Peer], "UnderWay"]


class Done(Protocol):
    """Something that has its place in the order of a program."""

    moment: Moment


class Work(Done, Protocol):
    """What a GPU has been given to do, at a moment, by a rank."""

    gpu: int
    rank: int

    def holds_up(self, known: Known) -> bool:
        """Whether work of torch on the same GPU, which comes after all this, comes after the end of it."""

    def begins(self) -> bool:
        """It may begin, since what comes before it has ended; whether it has begun."""

    def goes_on(self) -> bool:
        """It has its turn; whether it has ended."""

    def has_ended(self) -> None:
        """It has ended."""

    def close(self) -> None:
        """Nobody will go on with it."""


@dataclass(eq=False)
class Issued:
    """A launch that the host has issued on a GPU. begin starts it; ended hears of its end."""

    moment: Moment
    gpu: int
    launched: str
    begin: Begin
    ended: Callable[[UnderWay], None]
    peer: Peer | None = None
    running: UnderWay | None = None
    rank: int = field(default_factory=ranks.number)

    def holds_up(self, known: Known) -> bool:
        return True

    def begins(self) -> bool:
        if self.running is None:
            self.moment = stream_order.program.whole(self.moment)
            known = (past for past in _past if self.moment.after(past.moment))
            before = frozenset(past.peer.number for past in known if isinstance(past, Issued) and past.peer is not None)
            self.peer = Peer(_company, self.gpu, self.launched, before)
            self.running = self.begin(self.peer)
            self.running.scheduler.world = _world
            self.running.scheduler.all_idle = _all_idle
        return True

    def goes_on(self) -> bool:
        assert self.running is not None
        return self.running.go_on(self.running.machine.schedule.turns())

    def has_ended(self) -> None:
        assert self.running is not None
        self.ended(self.running)
        for check in checks:
            check(self)

    def close(self) -> None:
        if self.running is not None:
            self.running.close()


_queue: list[Work] = []  # that have not ended, in the order in which they were issued
_steps = 0  # how often work was issued or has ended
_past: list[Done] = []  # that have, and with which later ones are compared
_company = Company()
checks: list[Callable[[Issued], None]] = []  # what looks at every launch that has ended


def issue(work: Work) -> None:
    """The host launches a kernel, or something else."""
    global _steps
    _queue.append(work)
    _steps += 1


def settle() -> None:
    """The host has waited: run what it has waited for to its end."""
    host = stream_order.program.host
    run_until(lambda each: host.get(each.moment.lane, 0) >= each.moment.time, HOST_WAITS)


def torch_uses(known: dict[int, Known], call: str) -> None:
    """A function of torch is about to use tensors of these GPUs: launches there come before it.

    known: for each GPU, what its current stream comes after.
    """
    run_until(lambda each: each.gpu in known and each.holds_up(known[each.gpu]), call)


def run_until(wanted: Callable[[Work], bool], what: str = "") -> None:
    """Run launches in turns until none is left that is wanted. Raises what they raise.

    what: what the host does that has to wait for them, if it may launch more afterwards.
    """
    if ranks.several():
        return ranks.wait(lambda: not any(map(wanted, _queue)), "its GPU" if what == HOST_WAITS else what)
    try:
        while any(map(wanted, _queue)):
            for each in list(_queue):
                _turn(each)
    except BaseException as error:
        abandon()
        if isinstance(error, EmulatorError) and error.kind == "deadlock" and what:
            error.hint = "; ".join(filter(None, (error.hint, EARLY.format(what))))
        raise
    if not _queue:
        _forget()
    return None


def all_wait() -> bool:
    """Every rank's host waits: one turn for each piece of work. Whether any has had one. Raises ranks.Failed."""
    had = False
    for each in list(_queue):
        try:
            had |= _turn(each)
        except BaseException as error:
            if isinstance(error, EmulatorError) and error.kind == "deadlock":
                error.notes += [*ranks.hosts(), *ranks.stuck()[0]]
            abandon()
            raise ranks.Failed(each.rank, error) from None
    if not _queue:
        _forget()
    return had


ranks.move = all_wait


def what_is_left() -> EmulatorError | None:
    """A rank has failed: run the work under way as far as it goes; the race that this shows, if any."""
    try:
        while all_wait():
            pass
    except ranks.Failed as failed:
        if isinstance(failed.error, MissingBarrier):
            return failed.error
    return None


def _turn(each: Work) -> bool:
    """Give one piece of work its turn; whether it had one."""
    global _steps
    if _held_up(each) or not each.begins():
        return False
    if each.goes_on():
        _queue.remove(each)
        _steps += 1
        remember(each)
        each.has_ended()
    return True


def _held_up(each: Work) -> bool:
    """Whether work that has not ended comes before it."""
    return any(each.moment.after(other.moment) for other in _queue if other is not each)


def remember(work: Done) -> None:
    """Keep work that has ended: what comes later is compared with it."""
    _past.append(work)
    if len(_past) > MOST:
        first = _past.pop(0)
        if isinstance(first, Issued) and first.peer is not None:
            _company.forget(frozenset({first.peer.number}))


def past() -> list[Done]:
    """What has ended, and with which later work is compared."""
    return _past


def under_way() -> list[Work]:
    """What has not ended."""
    return _queue


def heard(launch: Issued) -> set[int]:
    """The numbers of launches of which this one has heard by a flag, or by one that came before it."""
    word = _company.learned.get(launch.peer.number) if launch.peer is not None else None
    return {name[0] for name in word.names} if word is not None else set()


def _world() -> Hashable:
    """What all work has done so far: it grows with whatever may change something for others."""
    moved = [each.running.scheduler.moved for each in _queue if isinstance(each, Issued) and each.running is not None]
    return _steps, *moved


def _all_idle() -> bool:
    """Whether every launch that is under way does nothing but look, and no other work can begin."""
    world = _world()
    launches = [each for each in _queue if isinstance(each, Issued) and not _held_up(each)]
    return all(each.running is not None and each.running.scheduler.idle == world for each in launches)


def _forget() -> None:
    """Where all hosts have waited for everything, what comes later is in order."""
    hosts = stream_order.program.all_hosts_know()
    if all(host.get(past.moment.lane, 0) >= past.moment.time for past in _past for host in hosts):
        _company.forget(frozenset(p.peer.number for p in _past if isinstance(p, Issued) and p.peer is not None))
        _past.clear()
        stream_order.program.forget_exchanges()


def memories() -> list[GlobalMemory]:
    """What the launches under way can reach."""
    return [each.running.machine.memory for each in _queue if isinstance(each, Issued) and each.running is not None]


def abandon() -> None:
    """No launch goes on, and none is remembered."""
    global _company
    for each in _queue:
        each.close()
    _queue.clear()
    _past.clear()
    _company = Company()
