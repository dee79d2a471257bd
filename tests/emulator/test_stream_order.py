"""Which work comes after which, by the emulator's clocks and by a graph of all work built from CUDA's rules."""

import random

import pytest

from cutetut.emulator.host.stream_order import Moment, Order
from tests.seeds import seeds

BLOCKING, STREAMS = {3, 4}, [0, 3, 4, 5, 6]
LEGACY = 0


def reachable_from(edges: dict[int, set[int]], start: int) -> set[int]:
    """Everything that work comes after, through any number of edges."""
    found: set[int] = set()
    todo = [start]
    while todo:
        todo += (new := edges[todo.pop()] - found)
        found |= new
    return found


@pytest.mark.parametrize("seed", seeds(40))
def test_the_order_is_that_of_the_graph_of_all_work(seed: int) -> None:
    """Nodes are what is issued, an edge leads to each piece of work that CUDA's rules put directly before it."""
    rng, order = random.Random(seed), Order()
    edges: dict[int, set[int]] = {}
    work: dict[int, Moment] = {}
    for stream in BLOCKING:
        order.created(stream, blocking=True)
    last: dict[int, int] = {}  # by stream, its last node
    events: dict[int, int] = {}
    host: set[int] = set()
    for number in range(60):
        stream, event = rng.choice(STREAMS), rng.randrange(3)
        action = rng.choice(["launch"] * 4 + ["record", "record", "wait", "wait", "host", "host for event"])
        before = {node for other, node in last.items() if other == stream or LEGACY in (stream, other)
                  and {stream, other} - {LEGACY} <= BLOCKING} | host  # fmt: skip
        if action == "host for event":
            order.host_waits_for_event(event)
            host |= {events[event]} if event in events else set()
            continue
        edges[number] = before
        if action == "launch":
            work[number] = order.issue(stream)
        elif action == "record":
            order.record(event, stream)
            events[event] = number
        elif action == "wait":
            order.wait(stream, event)
            edges[number] = before | ({events[event]} if event in events else set())
        else:
            order.host_waits(stream)
            host |= {number}
        last[stream] = number
    for later, moment in work.items():
        past = reachable_from(edges, later)
        assert [one for one in work if one != later and moment.after(work[one])] == [
            one for one in work if one != later and one in past
        ]


def test_work_of_a_graph_is_after_what_its_branch_waited_for() -> None:
    capture = Order()
    one = capture.issue(7)
    capture.record(1, 7)
    two = capture.issue(7)
    capture.wait(8, 1)
    three = capture.issue(8)
    start = Moment(5, 3, {5: 2, 6: 1})
    first, second, third = (moment.within(start, 9) for moment in (one, two, three))
    assert second.after(first) and third.after(first) and not third.after(second) and not second.after(third)
    assert third.after(Moment(6, 1, {})) and not third.after(Moment(6, 2, {}))
    assert not one.within(start, 10).after(first), "another run of the graph"
