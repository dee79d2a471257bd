"""torch.cuda's streams and events without a GPU: what a program needs to pass a stream to a kernel and to wait for it.

Work is done when it is issued, so a stream is a number and an event a time; only a capture (graphs.py) makes a
difference between streams.
"""

from __future__ import annotations

from typing import Any

import torch

from . import cuda_api, gpus, graphs, stream_order
from .patches import Patches


class Stream:
    """torch.cuda.Stream: a number, because work is done when it is issued."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.priority = priority
        self.cuda_stream = int(kwargs.get("stream_ptr", 0)) or cuda_api.new_handle()
        self.device = torch.device("cuda", index_of(device))
        # torch's do not wait for the default stream
        stream_order.program.created(self.cuda_stream, blocking=False, gpu=self.device.index)

    @property
    def number(self) -> int:
        """The same among the streams of all GPUs."""
        return stream_order.on_gpu(self.cuda_stream, self.device.index)

    def synchronize(self) -> None:
        """Nothing is outstanding."""
        graphs.forbid("torch.cuda.Stream.synchronize", self.cuda_stream)
        stream_order.program.host_waits(self.number)

    def query(self) -> bool:
        stream_order.program.host_waits(self.number)  # the answer is that all is done
        return True

    def is_capturing(self) -> bool:
        """Whether its work is written down for a graph."""
        return graphs.capturing(self.number)

    def wait_event(self, event: Event) -> None:
        """The event's work is done, or captured."""
        graphs.waited(self.number, event.cuda_event)

    def wait_stream(self, stream: Stream) -> None:
        """The other stream's work is done, or captured."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        _before.append((gpus.current, current_stream(self.device)))
        gpus.use(self.device.index)
        _current[self.device.index] = self
        return self

    def __exit__(self, *_: object) -> None:
        gpu, stream = _before.pop()
        _current[self.device.index] = stream
        gpus.use(gpu)


class ExternalStream(Stream):
    """torch.cuda.ExternalStream: the stream with a given handle."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        self.priority, self.device = 0, torch.device("cuda", index_of(device))
        self.cuda_stream = stream_ptr


class Event:
    """torch.cuda.Event: the moment it was recorded, by this machine's clock.

    `external` keeps an event out of a capture on a GPU; here a capture takes no time, so nothing depends on it.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self.timed = enable_timing
        self.cuda_event = cuda_api.new_handle()

    def record(self, stream: Stream | None = None) -> None:
        cuda_api.record(self.cuda_event, (stream or current_stream()).number)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """The event's work is done."""
        stream_order.program.host_waits_for_event(self.cuda_event)

    def elapsed_time(self, end_event: Event) -> float:
        """Wall time of the emulation in milliseconds, announced as such on stderr."""
        if not (self.timed and end_event.timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        return cuda_api.elapsed_ms(self.cuda_event, end_event.cuda_event)


_before: list[tuple[int, Stream]] = []  # what was current outside of each stream that is entered
_current: dict[int, Stream] = {}  # of each GPU on which it is not the default stream


def forget() -> None:
    """The default stream is the current one of every GPU."""
    _before.clear()
    _current.clear()


def state() -> tuple[list[tuple[int, Stream]], dict[int, Stream]]:
    """What is current, for `set_state`."""
    return list(_before), dict(_current)


def set_state(value: tuple[list[tuple[int, Stream]], dict[int, Stream]]) -> None:
    """Make current what was when `state` was asked."""
    _before[:] = value[0]
    _current.clear()
    _current.update(value[1])


def index_of(device: Any) -> int:
    """The number of the GPU that a device argument names; without one, as with a stream, the current GPU's."""
    if isinstance(device, int):
        return device
    where = torch.device(device) if isinstance(device, str) else device
    index = where.index if isinstance(where, torch.device) else None
    return gpus.current if index is None else int(index)


def current_stream(device: Any = None) -> Stream:
    """torch.cuda.current_stream."""
    return _current.get(index_of(device)) or default_stream(device)


def default_stream(device: Any = None) -> Stream:
    """torch.cuda.default_stream."""
    return ExternalStream(0, device)


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """torch.cuda.get_stream_from_external."""
    return ExternalStream(data_ptr, device)


class StreamContext:
    """torch.cuda.StreamContext: the stream is current inside; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def on_stream(stream: Stream | None) -> StreamContext:
    """torch.cuda.stream."""
    return StreamContext(stream)


def set_stream(stream: Stream) -> None:
    """torch.cuda.set_stream; None changes nothing."""
    if stream is not None:
        gpus.use(stream.device.index)
        _current[stream.device.index] = stream


def synchronize(device: Any = None) -> None:
    """torch.cuda.synchronize: nothing is outstanding."""
    graphs.forbid("torch.cuda.synchronize")
    stream_order.program.host_waits(gpu=index_of(device))


def install(patches: Patches) -> None:
    """Replace torch.cuda's streams, events and synchronize."""
    for name, value in {
        "Stream": Stream,
        "ExternalStream": ExternalStream,
        "Event": Event,
        "stream": on_stream,
        "StreamContext": StreamContext,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
        "synchronize": synchronize,
    }.items():
        patches.set(torch.cuda, name, value)
