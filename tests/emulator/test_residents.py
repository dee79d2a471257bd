"""CTAs that wait for each other through global memory, and how many run at once."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator import ptx
from cutetut.emulator.residents import waits_for_other_ctas
from tests.emulator.harness import kernel, run, wait

# Every thread of every CTA says that it is there; the first of each waits until all are, and reads the count.
BARRIER_OF_THE_GRID = """
    ld.param.b64 %rd1, [p0];
    ld.param.b64 %rd2, [p1];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %nctaid.x;
    mov.u32 %r3, %tid.x;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra END;
    atom.add.release.gpu.global.u32 %r4, [%rd1], 1;
AGAIN:
    {look}
    setp.lt.u32 %p2, %r5, %r2;
    @%p2 bra AGAIN;
    mad.wide.u32 %rd3, %r1, 4, %rd2;
    st.global.u32 [%rd3], %r5;
END:
"""
LOOKS = {
    "load": "ld.acquire.gpu.global.u32 %r5, [%rd1];",
    "volatile": "ld.volatile.global.u32 %r5, [%rd1];",
    "atomic": "atom.add.acquire.gpu.global.u32 %r5, [%rd1], 0;",
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("threads", [32, 384])
def test_a_barrier_across_the_grid(look: str, threads: int) -> None:
    """132 CTAs of an ordinary launch: an H200 runs them at once, so each sees all of them."""
    count, seen = np.zeros(1, np.uint32), np.zeros(132, np.uint32)
    text = kernel(BARRIER_OF_THE_GRID.format(look=LOOKS[look]), 2)
    run(text, count, seen, grid=(132, 1, 1), block=(threads, 1, 1))
    assert count[0] == 132 and (seen == 132).all()


@pytest.mark.emulator
def test_other_loops_need_nobody() -> None:
    """Waiting for an mbarrier of one's own CTA, counting in shared memory, and drawing tickets for long work."""
    own = wait("%r1")
    counting = "L: atom.shared.add.u32 %r2, [%r1], 1; setp.lt.u32 %p1, %r2, 9; @%p1 bra L;"
    work = "add.u32 %r3, %r3, 1; " * 64
    tickets = f"L: atom.global.add.u32 %r2, [%rd1], 1; {work} setp.lt.u32 %p1, %r2, 9; @%p1 bra L;"
    for body in (own, counting, tickets):
        assert not waits_for_other_ctas(ptx.parse(kernel(body)).kernels["k"])
    for look in LOOKS.values():
        assert waits_for_other_ctas(ptx.parse(kernel(BARRIER_OF_THE_GRID.format(look=look), 2)).kernels["k"])
