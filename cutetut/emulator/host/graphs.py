"""Stream capture: work on a stream is written down instead of done, to run as a CUDA graph, any number of times.

As in CUDA (programming guide, "Creating a Graph Using Stream Capture") the capture of one stream spreads to
every stream that waits for an event recorded in it.  Work on other streams runs as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Step = Callable[[], None]


class CaptureError(RuntimeError):
    """A call that a stream under capture does not permit, as CUDA refuses it."""


@dataclass
class _Capture:
    origin: int
    streams: set[int]
    events: set[int] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)


_capture: _Capture | None = None


def begin(stream: int) -> None:
    """Start to capture a stream. Raises CaptureError for the default stream, and while another capture lasts."""
    global _capture
    if not stream:
        raise CaptureError("the default stream cannot be captured: CUDA graphs need a stream of their own")
    if _capture is not None:
        raise CaptureError("a stream is under capture already")
    _capture = _Capture(stream, {stream})


def end(stream: int) -> list[Step]:
    """End the capture that began on this stream; returns what was captured, in order."""
    global _capture
    if _capture is None or _capture.origin != stream:
        raise CaptureError("no capture began on this stream")
    steps, _capture = _capture.steps, None
    return steps


def abandon() -> None:
    """Forget a capture that failed."""
    global _capture
    _capture = None


def capturing(stream: int | None = None) -> bool:
    """Whether work on this stream is captured; without a stream, whether any is."""
    return _capture is not None and (stream is None or stream in _capture.streams)


def add(step: Step) -> None:
    """Write down work of a stream under capture."""
    assert _capture is not None
    _capture.steps.append(step)


def recorded(event: int, stream: int) -> None:
    """An event is recorded on a stream: it belongs to the capture if the stream does."""
    if _capture is not None:
        (_capture.events.add if stream in _capture.streams else _capture.events.discard)(event)


def waited(stream: int, event: int) -> None:
    """A stream waits for an event: it joins the capture that the event belongs to."""
    if _capture is not None and event in _capture.events:
        _capture.streams.add(stream)


def forbid(call: str, stream: int | None = None) -> None:
    """Raises CaptureError when a call would wait for a stream under capture (None: for any)."""
    if capturing(stream):
        raise CaptureError(f"CUDA error: operation not permitted when stream is capturing: {call}")


def run(steps: list[Step]) -> None:
    """Do captured work, in the order in which it was captured."""
    for step in steps:
        step()
