"""What several ranks do together on their GPUs without a kernel of the program: NCCL's work, and torch's own on memory
that other GPUs can use.

Such work takes its turn among the launches (together.py): it begins when every rank has issued its part and what comes
before each part has ended.  It is then compared with the launches that nothing orders before or after it, by what
their shadows remember (checks/peers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from ..checks.peers import accesses
from ..checks.shadow import Shadow
from ..checks.stamps import Stamp
from ..errors import EmulatorError, MissingBarrier
from . import live, ranks, stream_order, together
from .stream_order import Known, Moment, join

HOST = -1  # in place of a GPU: the work is the host's
BETWEEN_RANKS = (
    "what makes the one GPU wait for the other: barrier() of the symmetric memory, dist.barrier(), another collective, "
    "or a flag at the scope of the system; that each host waits for its own GPU says nothing of the others"
)
WAIT = "work.wait() of what async_op=True returned, or an event, between the two"


class Touch(NamedTuple):
    """Bytes that are read or written, and what messages call them."""

    start: int
    end: int
    writes: bool
    name: str


def touch(tensor: torch.Tensor, writes: bool) -> Touch:
    """All bytes of a tensor."""
    span = live.torch_span(tensor, "a tensor")
    return Touch(span.start, span.start + span.nbytes, writes, span.label)


@dataclass(eq=False)
class Exchange:
    """Something that some ranks do together, in which each issues a part.

    do: what it does, once all have begun. hint: what to look at if that never comes.
    """

    what: str
    members: tuple[int, ...]
    do: Callable[[Exchange], None]
    hint: str = ""
    parts: dict[int, Part] = field(default_factory=dict)
    known: Known | None = None  # once it is over: what comes before it, and itself

    def complete(self) -> None:
        if self.known is not None:
            return
        known: Known = {}
        for part in self.parts.values():
            known = join(known, {**part.moment.known, part.moment.lane: part.moment.time})
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self.do(self)
        self.known = known
        for part in self.parts.values():
            stream_order.program.exchange_over(part.moment, known)


@dataclass(eq=False)
class Part:
    """What one rank issues for an exchange: its own data, and the memory that is used of it."""

    exchange: Exchange
    rank: int
    gpu: int
    moment: Moment
    data: Any = None
    touches: tuple[Touch, ...] = ()
    where: str = field(default_factory=ranks.where)
    begun: bool = False

    def __post_init__(self) -> None:
        self.exchange.parts[self.rank] = self
        together.issue(self)

    @property
    def name(self) -> str:
        return f"{self.exchange.what} of rank {self.rank}{self.where}"

    def holds_up(self, known: Known) -> bool:
        return known.get(self.moment.lane, 0) >= self.moment.time

    def begins(self) -> bool:
        if not self.begun:
            self.moment = stream_order.program.whole(self.moment)
            self.begun = True
        begun = [part.begun for part in self.exchange.parts.values()]
        return len(begun) == len(self.exchange.members) and all(begun)

    def goes_on(self) -> bool:
        self.exchange.complete()
        return True

    def has_ended(self) -> None:
        assert self.exchange.known is not None
        self.moment = Moment(self.moment.lane, self.moment.time, self.exchange.known)
        _compare_with_launches(self)

    def close(self) -> None:
        """Nothing is open."""

    def wait(self) -> None:
        """The host goes on when it has been done."""
        together.run_until(lambda each: each is self, self.exchange.what)


@dataclass(eq=False)
class Use:
    """A function of torch has used memory that several GPUs can use. It is over when it is noted."""

    what: str
    rank: int
    gpu: int
    moment: Moment
    touches: tuple[Touch, ...]
    where: str = field(default_factory=ranks.where)

    @property
    def name(self) -> str:
        return f"torch's {self.what} by rank {self.rank}{self.where}"


def part(
    exchange: Exchange, gpu: int, lane: Hashable, after: Known, data: Any = None, touches: Iterable[Touch] = ()
) -> Part:
    """The running rank's part of an exchange, after what is known, on a lane in whose order its exchanges are."""
    moment = stream_order.program.exchange(lane, after, gpu)
    return Part(exchange, ranks.number(), gpu, moment, data, tuple(touches))


def stuck() -> tuple[list[str], str]:
    """Which exchanges wait for whom, a line for each, and what to look at."""
    found = {part.exchange: None for part in together.under_way() if isinstance(part, Part)}
    lines = []
    for each in found:
        at = ", ".join(f"rank {rank}{part.where}" for rank, part in sorted(each.parts.items()))
        missing = ", ".join(str(rank) for rank in each.members if rank not in each.parts)
        why = f"it waits for the same call of rank {missing}" if missing else "it waits for work before it"
        lines.append(f"  {each.what} ({at}): {why}")
    return lines, next((each.hint for each in found), "")


ranks.stuck = stuck


# -- order -----------------------------------------------------------------------------------------


def used(what: str, gpu: int, stream: int, touches: Iterable[Touch]) -> None:
    """A function of torch has used memory that several GPUs can use, on a stream."""
    order = stream_order.program
    use = Use(what, ranks.number(), gpu, order.whole(order.issue(stream)), tuple(touches))
    _compare_with_launches(use)
    together.remember(use)


def expect_waited(gpu: int, known: Known, touches: Iterable[Touch], what: str) -> None:
    """Raise MissingBarrier if an exchange uses memory that torch is about to use, and its end has not been waited for.

    known: what torch's work comes after.
    """
    for each in (*together.under_way(), *together.past()):
        if not isinstance(each, Part) or each.gpu != gpu or each.holds_up(known):
            continue
        for theirs in each.touches:
            for mine in touches:
                if mine.start < theirs.end and theirs.start < mine.end and (mine.writes or theirs.writes):
                    does = "writes" if theirs.writes else "reads"
                    raise _reported(MissingBarrier(
                        f"torch's {what} on GPU {gpu} uses {mine.name}{ranks.where()}, which {each.name} {does}, and "
                        "nothing waits for that", hint=WAIT, kind="missing-stream-order",
                    ))  # fmt: skip


def _reported(error: EmulatorError) -> EmulatorError:
    """The error, after everyone who collects findings has its report."""
    error.publish()
    return error


def _compare_with_launches(work: Part | Use) -> None:
    for launch in together.past():
        if isinstance(launch, together.Issued) and work.touches:
            _compare(launch, work)


def _compare_with_past(launch: together.Issued) -> None:
    for work in together.past():
        if isinstance(work, Part | Use) and work.touches:
            _compare(launch, work)


together.checks.append(_compare_with_past)


def _compare(launch: together.Issued, work: Part | Use) -> None:
    """Raise MissingBarrier if the two use the same memory and nothing orders them."""
    assert launch.peer is not None
    if launch.moment.after(work.moment) or work.moment.after(launch.moment):
        return
    for mine in work.touches:
        for shadow in launch.peer.side.regions.values():
            found = _conflict(shadow, mine)
            if found is None or _heard(launch, work):
                continue
            machine, error = launch.peer.side.machine, _race(launch, work, mine, *found)
            if not machine.scheduler.tolerates("race", error, machine.kernel.body[found[0].inst]):
                raise _reported(error)


def _heard(launch: together.Issued, work: Part | Use) -> bool:
    """Whether flags in memory order the two: one has heard of a launch that is in order with the other."""
    assert launch.peer is not None
    past = [each for each in together.past() if isinstance(each, together.Issued) and each.peer is not None]
    known = together.heard(launch)
    return any(each.peer.number in known and each.moment.after(work.moment)
               or work.moment.after(each.moment) and launch.peer.number in together.heard(each)
               for each in past if each.peer is not None)  # fmt: skip


def _conflict(shadow: Shadow, mine: Touch) -> tuple[Stamp, int, bool] | None:
    """The first access of a launch to these bytes that conflicts: its stamp, its address, whether it reads."""
    low, high = max(shadow.start, mine.start), min(shadow.start + shadow.nbytes, mine.end)
    if low >= high:
        return None
    where = np.arange((low - shadow.start) >> shadow.shift, ((high - 1 - shadow.start) >> shadow.shift) + 1)
    for found, reads in accesses(shadow, where, mine.writes):
        at = np.flatnonzero(found > 0)
        if len(at):
            return Stamp.of(int(found[at[0]])), shadow.start + (int(where[at[0]]) << shadow.shift), reads
    return None


def _race(
    launch: together.Issued, work: Part | Use, mine: Touch, stamp: Stamp, address: int, reads: bool
) -> EmulatorError:
    assert launch.peer is not None
    machine = launch.peer.side.machine
    place = launch.peer.side.reports.place_of(address)
    name, does = machine.scheduler.kernel_name, "writes" if mine.writes else "reads"
    error = MissingBarrier(
        f"{work.name} {does} {place}, which {name} of rank {launch.rank} on GPU {launch.gpu} "
        f"{'loads from' if reads else 'writes'} here, and nothing orders the two",
        hint=BETWEEN_RANKS if launch.gpu != work.gpu else WAIT,
        kind="missing-gpu-order" if launch.gpu != work.gpu else "missing-stream-order", locations=(place,),
    )  # fmt: skip
    error.place = machine.scheduler.place(machine.kernel.body[stamp.inst], None)
    error.notes.append(f"  {name} was launched {launch.launched}")
    return error

