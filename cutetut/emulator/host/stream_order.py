"""Which work of a program comes after which: streams, events, the host's waits, graphs.

Here all work is done when it is issued.  On a GPU two streams run at the same time unless something orders them (CUDA
C++ programming guide, "Streams", "Implicit Synchronization"), and this keeps what does: each stream counts what it is
given, and knows up to where it comes after the work of others.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

DEFAULT, LEGACY, PER_THREAD = 0, 1, 2  # streams that nobody creates; the first two are one
Known = dict[Hashable, int]  # of each stream, up to its how-manieth work


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
    times: dict[int, int] = field(default_factory=dict)
    events: dict[int, Known] = field(default_factory=dict)
    host: Known = field(default_factory=dict)  # what the host has waited for: everything it issues comes after that
    streams: set[int] = field(default_factory=set)  # that work was given to, or that were created
    blocking: set[int] = field(default_factory=lambda: {PER_THREAD})  # they and the default stream wait for each other

    def created(self, stream: int, blocking: bool) -> None:
        """A stream; without CU_STREAM_NON_BLOCKING it is `blocking`."""
        self.streams.add(stream)
        if blocking:
            self.blocking.add(stream)

    def now(self, stream: int) -> Known:
        """What work that a stream is given now comes after."""
        stream = _one(stream)
        known = join(self.host, self.known.get(stream, {}))
        if stream == DEFAULT:
            for other in self.blocking:
                known = join(known, self.known.get(other, {}))
        elif stream in self.blocking:
            known = join(known, self.known.get(DEFAULT, {}))
        self.known[stream] = known
        return known

    def issue(self, stream: int) -> Moment:
        """A stream is given work."""
        stream = _one(stream)
        self.streams.add(stream)
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

    def host_waits(self, stream: int | None = None) -> None:
        """The host waits for a stream, or for the whole device."""
        for each in [stream] if stream is not None else list(self.known):
            self.host = join(self.host, self.now(each))

    def host_waits_for_event(self, event: int) -> None:
        self.host = join(self.host, self.events.get(event, {}))


def join(one: Known, other: Known) -> Known:
    """What either contains."""
    if not other or other is one:
        return one
    return {**one, **{lane: max(time, one.get(lane, 0)) for lane, time in other.items()}}


def _one(stream: int) -> int:
    return DEFAULT if stream == LEGACY else stream


program = Order()


def forget() -> None:
    """A new program: there are no streams."""
    global program
    program = Order()
