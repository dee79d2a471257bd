"""Launches as a CUDA graph, for kernels so short that the host's time to launch them would be measured instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

SHORT = 50e-6  # seconds: a launch below this is measured in a graph

Launch = Callable[[], Any]


def captured(launches: Sequence[Launch]) -> Launch:
    """Capture these launches, in their order, in one CUDA graph, and return what replays it on the current stream.

    launches: callables without arguments that launch on torch's current stream; each runs once before, so that
    nothing is compiled or allocated while the graph is captured. A graph holds addresses and keeps no tensor alive:
    what is returned keeps the launches, and with them all that they refer to, such as a library's workspace. Raises
    ValueError if there are none, and RuntimeError for what cannot be captured.
    """
    if not launches:
        raise ValueError("a graph needs a launch")
    import torch

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for launch in launches:
                launch()
    torch.cuda.synchronize()
    return partial(_replay, graph, tuple(launches))


def _replay(graph: Any, launches: tuple[Launch, ...]) -> None:
    """Replay a graph; `launches` are what it was captured from, kept alive for as long as it can be replayed."""
    graph.replay()
