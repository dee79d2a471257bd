"""Stream capture: work on a stream is written down instead of done, to run as a CUDA graph, any number of times.

As in CUDA (programming guide, "Creating a Graph Using Stream Capture") the capture of one stream spreads to
every stream that waits for an event recorded in it.  Work on other streams runs as ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from . import gpus, stream_order
from .stream_order import Known, Moment, Order

Step = Callable[[Moment], None]
_replays = itertools.count()


class CaptureError(RuntimeError):
    """A call that a stream under capture does not permit, as CUDA refuses it."""


@dataclass
class Graph:
    """What was captured: work in the order of its capture, each piece with its place among the captured streams."""

    steps: list[tuple[Step, Moment]] = field(default_factory=list)
    order: Order = field(default_factory=Order)
    ended: Known = field(default_factory=dict)  # its last run: the next one comes after that, on whatever stream

    def run(self, stream: int) -> None:
        """Do captured work, in the order in which it was captured."""
        order, number = stream_order.program, next(_replays)
        order.learn(stream, self.ended)
        start = order.issue(stream)
        start = replace(start, known={**start.known, start.lane: start.time})
        for step, moment in self.steps:
            step(moment.within(start, number))
        self.ended = {(number, lane): time for lane, time in self.order.times.items()}
        order.learn(stream, self.ended)

    def run_as_part(self, moment: Moment) -> None:
        """The same as one piece of work of another graph; it counts as ordered within."""
        for step, _ in self.steps:
            step(moment)

    def launch(self, stream: int) -> None:
        """Run it on a stream, or as part of what the stream captures. Raises CaptureError for that on several GPUs."""
        stream = stream_order.on_gpu(stream, gpus.current)
        if not capturing(stream):
            self.run(stream)
        elif gpus.several():
            raise CaptureError("a graph in a graph is not emulated on several GPUs: replay one after the other")
        else:
            add(self.run_as_part, issue(stream))

    def copy(self) -> Graph:
        """Another executable of the same work: the two may run at the same time."""
        return replace(self, ended={})


@dataclass
class _Capture:
    origin: int
    streams: set[int]
    events: set[int] = field(default_factory=set)
    graph: Graph = field(default_factory=Graph)


_capture: _Capture | None = None


def begin(stream: int) -> None:
    """Start to capture a stream. Raises CaptureError for the default stream, and while another capture lasts."""
    global _capture
    if not stream:
        raise CaptureError("the default stream cannot be captured: CUDA graphs need a stream of their own")
    if _capture is not None:
        raise CaptureError("a stream is under capture already")
    _capture = _Capture(stream, {stream})


def end(stream: int) -> Graph:
    """End the capture that began on this stream; returns what was captured."""
    global _capture
    if _capture is None or _capture.origin != stream:
        raise CaptureError("no capture began on this stream")
    graph, _capture = _capture.graph, None
    return graph


def abandon() -> None:
    """Forget a capture that failed."""
    global _capture
    _capture = None


def capturing(stream: int | None = None) -> bool:
    """Whether work on this stream is captured; without a stream, whether any is."""
    return _capture is not None and (stream is None or stream in _capture.streams)


def issue(stream: int) -> Moment:
    """A stream is given work: its place in the order of the program, or of the capture."""
    return _order(stream).issue(stream)


def _order(stream: int) -> Order:
    return _capture.graph.order if _capture is not None and stream in _capture.streams else stream_order.program


def add(step: Step, moment: Moment) -> None:
    """Write down work of a stream under capture."""
    assert _capture is not None
    _capture.graph.steps.append((step, moment))


def recorded(event: int, stream: int) -> None:
    """An event is recorded on a stream: it belongs to the capture if the stream does."""
    _order(stream).record(event, stream)
    if _capture is not None:
        (_capture.events.add if stream in _capture.streams else _capture.events.discard)(event)


def waited(stream: int, event: int) -> None:
    """A stream waits for an event: it joins the capture that the event belongs to."""
    if _capture is not None and event in _capture.events:
        _capture.streams.add(stream)
    _order(stream).wait(stream, event)


def forbid(call: str, stream: int | None = None) -> None:
    """Raises CaptureError when a call would wait for a stream under capture (None: for any)."""
    if capturing(stream):
        raise CaptureError(f"CUDA error: operation not permitted when stream is capturing: {call}")
