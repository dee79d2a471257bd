"""Random structured kernels: the emulator (or the GPU) against an interpreter that runs thread by thread."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.harness import kernel, run
from tests.emulator.structured import VARIABLES, Exchange, If, Loop, Maker, Statement, interpret, to_ptx
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(60))
def test_a_random_kernel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = Maker(rng).program()
    threads = int(rng.choice([1, 31, 32, 50, 64, 96, 128]))
    out = np.zeros((threads, VARIABLES), np.uint32)
    run(kernel(to_ptx(program, threads)), out, block=(threads, 1, 1))
    np.testing.assert_array_equal(out, interpret(program, threads))


def test_the_random_kernels_have_what_they_are_for() -> None:
    """Nested branches, divergent loops, and exchanges inside loops all appear."""

    def walk(program: tuple[Statement, ...], path: tuple[type, ...]) -> set[tuple[type, ...]]:
        found = set()
        for s in program:
            found.add((*path, type(s)))
            inner = (*s.then, *s.otherwise) if isinstance(s, If) else s.body if isinstance(s, Loop) else ()
            found |= walk(inner, (*path, type(s)))
        return found

    shapes = set().union(*(walk(Maker(np.random.default_rng(seed)).program(), ()) for seed in range(60)))
    assert {(Exchange,), (If, If, If), (If, Loop), (Loop, If), (Loop, Exchange), (Loop, Loop, If)} <= shapes
