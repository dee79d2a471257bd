"""Recordings of pipelines made by plain loops, as the clock of an SM would read them: nothing here draws."""

from __future__ import annotations

from cutetut.widgets import Span

START = 7_000_000_123  # what the clock shows when the first thing happens
MATH = {"fast": 512, "slow": 700}  # cycles for one K tile
LOAD = 900  # cycles from asking for a tile to its landing


def producer_consumer(name: str = "fast", k_tiles: int = 24, stages: int = 4) -> list[Span]:
    """A producer, loads in flight and two consumers on a ring of stages; every 8 K tiles the consumers store C."""
    spans: list[Span] = []
    asked, done = START, [START] * 2
    freed = [START] * stages
    for k in range(k_tiles):
        stage = k % stages
        granted = max(asked, freed[stage])
        spans.append(Span("producer", "waits", asked, granted, k, stage))
        spans.append(Span("producer", "loads", granted, granted + LOAD, k, stage))
        asked = granted + 20
        for c in (0, 1):
            wanted = done[c]
            got = max(wanted, granted + LOAD)
            done[c] = got + MATH[name] + 30 * c
            spans.append(Span(f"consumer {c + 1}", "waits", wanted, got, k, stage))
            spans.append(Span(f"consumer {c + 1}", "multiplies", got, done[c], k, stage))
            if k % 8 == 7:
                spans.append(Span(f"consumer {c + 1}", "stores", done[c], done[c] + 800, k, None, f"C tile {k // 8}"))
                done[c] += 800
        freed[stage] = max(done)
    return spans


def ping_pong(blocks: int = 12) -> list[Span]:
    """Two consumer warpgroups of attention: the softmax of one runs under the matrix products of the other."""
    spans: list[Span] = []
    for c in (0, 1):
        at = START + 550 * c
        for block in range(blocks):
            row = f"consumer {c + 1}"
            spans += [
                Span(row, "waits", at, at + 60, block),
                Span(row, "QK", at + 60, at + 360, block),
                Span(row, "softmax", at + 300, at + 860, block),
                Span(row, "PV", at + 860, at + 1160, block),
            ]
            at += 1160
    return spans


def recordings() -> dict[str, list[Span]]:
    """The same pipeline with fast and with slow math."""
    return {name: producer_consumer(name) for name in MATH}
