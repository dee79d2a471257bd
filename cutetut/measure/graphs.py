"""Launches as a CUDA graph, for kernels so short that the host's time to launch them would be measured instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

SHORT = 50e-6  # seconds: a launch below this is measured in a graph

Launch = Callable[[], Any]


def captured(launches: Sequence[Launch]) -> Launch:
    """Capture these launches, in their order, in one CUDA graph, and return what replays it on the current stream.

    launches: callables without arguments that launch on torch's current stream; each runs once before, so that
    nothing is compiled or allocated while the graph is captured. The tensors they work on must stay alive and in
    place. Raises ValueError if there are none, and RuntimeError for what cannot be captured.
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
    return graph.replay
