"""Which work of a program comes after which: streams, events, the host's waits, graphs.

Here all work is done when it is issued.  On a GPU two streams run at the same time unless something orders them (CUDA
C++ programming guide, "Streams", "Implicit Synchronization"), and this keeps what does: each stream counts what it is
given, and knows up to where it comes after the work of others.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

DEFAULT, LEGACY, PER_THREAD = 0, 1, 2  # streams that nobody creates; the first two are one
# The default stream of GPU number 0 is 0 here, that of GPU 1 is -1, and so on: see `on_gpu`.
Known = dict[Hashable, int]  # of each stream, the number of its last work that is known


@dataclass(frozen=True)
class Moment:
    """The place of one piece of work in the order: the `time`-th of its lane, after all that is `known`."""

    lane: Hashable
    time: int
    known: Known

    def after(self, other: Moment) -> bool:
        """Whether the other work is finished before this begins."""
        same = other.lane == self.lane and other.time <= self.time
        return same or self.known.get(other.lane, 0) >= other.time

    def within(self, start: Moment, replay: int) -> Moment:
        """Captured work as part of the replay of its graph, which starts at a moment."""
        mine: Known = {(replay, lane): time for lane, time in self.known.items()}
        known = {**start.known, **mine}
        return Moment((replay, self.lane), self.time, known)


@dataclass
class Order:
    """What every stream comes after; of a program, or of a capture."""

    known: dict[int, Known] = field(default_factory=dict)
    times: dict[Hashable, int] = field(default_factory=dict)
    events: dict[int, Known] = field(default_factory=dict)
    hosts: dict[int, Known] = field(default_factory=lambda: {0: {}})  # of each rank, what its host has waited for
    rank: int = 0  # the one that runs
    streams: set[int] = field(default_factory=set)  # that work was given to, or that were created
    homes: dict[int, int] = field(default_factory=dict)  # the GPU of each stream that was created
    users: dict[Hashable, int] = field(default_factory=dict)  # which rank has given work to a stream
    lanes: dict[Hashable, int] = field(default_factory=dict)  # of exchanges: the GPU of each
    exchanged: dict[Hashable, tuple[list[int], list[Known]]] = field(default_factory=dict)  # by lane, see `whole`
    blocking: set[int] = field(default_factory=lambda: {PER_THREAD})  # they and the default stream wait for each other

    @property
    def host(self) -> Known:
        """What the host has waited for: everything it issues comes after that."""
        return self.hosts[self.rank]

    def host_knows(self, known: Known) -> None:
        """The host has waited for this, too."""
        self.hosts[self.rank] = join(self.host, known)

    def created(self, stream: int, blocking: bool, gpu: int = 0) -> None:
        """A stream; without CU_STREAM_NON_BLOCKING it is `blocking`."""
        self.streams.add(stream)
        self.homes[stream] = gpu
        if blocking:
            self.blocking.add(stream)

    def now(self, stream: int) -> Known:
        """What work that a stream is given now comes after."""
        stream = _one(stream)
        known = join(self.host, self.known.get(stream, {}))
        if stream <= DEFAULT:
            for other in self.blocking:
                if self.gpu_of(other) == -stream:
                    known = join(known, self.known.get(other, {}))
        elif stream in self.blocking:
            known = join(known, self.known.get(-self.gpu_of(stream), {}))
        self.known[stream] = known
        return known

    def issue(self, stream: int) -> Moment:
        """A stream is given work."""
        stream = _one(stream)
        self.streams.add(stream)
        self.users[stream] = self.rank
        known, time = self.now(stream), self.times.get(stream, 0) + 1
        self.times[stream] = time
        self.known[stream] = {**known, stream: time}
        return Moment(stream, time, known)

    def learn(self, stream: int, known: Known) -> None:
        """What a stream is given from now on comes after this, too."""
        self.known[_one(stream)] = join(self.known.get(_one(stream), {}), known)

    def record(self, event: int, stream: int) -> None:
        self.events[event] = self.now(stream)

    def wait(self, stream: int, event: int) -> None:
        """A stream waits for an event; for one that was never recorded there is nothing to wait for."""
        self.now(stream)
        self.learn(stream, self.events.get(event, {}))

    def exchange(self, lane: Hashable, known: Known, gpu: int) -> Moment:
        """Something that several ranks do together is issued on a lane of one and its GPU, after what is known."""
        self.lanes[lane], self.users[lane] = gpu, self.rank
        time = self.times[lane] = self.times.get(lane, 0) + 1
        return Moment(lane, time, known)

    def exchange_over(self, moment: Moment, known: Known) -> None:
        """It has ended: what comes after it comes after `known` as well, which was unknown when it was issued."""
        times, brought = self.exchanged.setdefault(moment.lane, ([], []))
        times.append(moment.time)
        brought.append(known)

    def whole(self, moment: Moment) -> Moment:
        """The same with what the exchanges before it have made known."""
        known = moment.known
        for lane, time in list(known.items()):
            times, brought = self.exchanged.get(lane, ((), ()))
            if at := bisect.bisect_right(times, time):
                known = join(known, brought[at - 1])
        return Moment(moment.lane, moment.time, known)

    def all_hosts_know(self) -> list[Known]:
        """What each rank's host has waited for, with what exchanges have made known to it."""
        return [self.whole(Moment(DEFAULT, 0, host)).known for host in self.hosts.values()]

    def forget_exchanges(self) -> None:
        """All hosts have waited for all of them, so that nobody needs to know of them any more."""
        if self.exchanged:
            self.exchanged.clear()
            for known in (self.known, self.events, self.hosts):
                for key, each in known.items():
                    known[key] = {lane: time for lane, time in each.items() if not isinstance(lane, tuple)}

    def gpu_of(self, stream: int) -> int:
        """The GPU of a stream."""
        return -stream if stream <= DEFAULT else self.homes.get(stream, 0)

    def host_waits(self, stream: int | None = None, gpu: int | None = None) -> None:
        """The host waits for a stream, for all of a GPU, or for everything that its rank has given to any."""
        if stream is not None:
            self.host_knows(self.now(stream))
        else:
            for each in [each for each in self.known if self._waits_for(each, self.gpu_of(each), gpu)]:
                self.host_knows(self.now(each))
            for lane, home in self.lanes.items():
                if self._waits_for(lane, home, gpu):
                    self.host_knows({lane: self.times[lane]})
        waits()

    def _waits_for(self, lane: Hashable, home: int, gpu: int | None) -> bool:
        return home == gpu if gpu is not None else home >= 0 and self.users.get(lane, self.rank) == self.rank

    def host_waits_for_event(self, event: int) -> None:
        self.host_knows(self.events.get(event, {}))
        waits()


def join(one: Known, other: Known) -> Known:
    """What either contains."""
    if not other or other is one:
        return one
    return {**one, **{lane: max(time, one.get(lane, 0)) for lane, time in other.items()}}


def _one(stream: int) -> int:
    return DEFAULT if stream == LEGACY else stream


def on_gpu(stream: int, gpu: int) -> int:
    """The stream that a number means while a GPU is the current one: each has a default stream of its own."""
    return -gpu if gpu and stream in (DEFAULT, LEGACY, PER_THREAD) else _one(stream)


program = Order()
waits: Callable[[], None] = lambda: None  # noqa: E731  what has to be done for the host that waits (gpus.py)


def forget() -> None:
    """A new program: there are no streams."""
    global program
    program = Order()
