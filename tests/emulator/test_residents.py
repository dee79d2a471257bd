"""CTAs that wait for each other through global memory, and how many run at once."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator import ptx
from cutetut.emulator.errors import Deadlock
from cutetut.emulator.ptx.loops import waiting_loops
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
        assert not waiting_loops(ptx.parse(kernel(body)).kernels["k"], elsewhere=True)
    for look in LOOKS.values():
        assert waiting_loops(ptx.parse(kernel(BARRIER_OF_THE_GRID.format(look=look), 2)).kernels["k"], elsewhere=True)


@pytest.mark.emulator
@pytest.mark.parametrize("look", LOOKS)
def test_a_wait_for_what_nobody_writes_is_a_deadlock(look: str) -> None:
    """One of four CTAs does not arrive: the others would wait for ever."""
    absent = BARRIER_OF_THE_GRID.replace("@%p1 bra END;", "@%p1 bra END; setp.eq.u32 %p3, %r1, 2; @%p3 bra END;")
    text = kernel(absent.format(look=LOOKS[look]), 2)
    line = next(n for n, of in enumerate(text.splitlines(), 1) if LOOKS[look] in of)
    with pytest.raises(Deadlock) as stuck:
        run(text, np.zeros(1, np.uint32), np.zeros(4, np.uint32), grid=(4, 1, 1))
    report = str(stuck.value)
    for cta in (0, 1, 3):
        assert f"CTA ({cta}, 0, 0), warps [0] look again and again at memory" in report
    assert f"(PTX line {line})" in report and "CTA (2, 0, 0)" not in report and "who writes" in report
    assert stuck.value.place is not None and stuck.value.place.kernel == "k"


@pytest.mark.emulator
def test_a_wait_with_an_end_of_its_own_is_not() -> None:
    """30000 looks at a flag that never comes, counted; longer than a wait for nothing may take."""
    flag, seen = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    run(
        kernel(
            """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; mov.u32 %r2, 0; mov.u32 %r4, %tid.x;
    L: ld.volatile.global.u32 %r1, [%rd1]; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 30000; @%p1 bra L;
    setp.eq.u32 %p2, %r4, 0; @%p2 st.global.u32 [%rd2], %r2;""",
            2,
        ),
        flag,
        seen,
    )
    assert seen[0] == 30000


@pytest.mark.emulator
def test_a_flag_that_a_bulk_reduction_raises_comes() -> None:
    """Nobody waits for the copy itself, and it completes as late as it may."""
    flag = np.zeros(32, np.uint32)
    run(
        kernel(
            """ld.param.b64 %rd1, [p0]; mov.u32 %r1, s; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r2, 4, %r1;
    mov.u32 %r4, 7; st.shared.b32 [%r3], %r4; fence.proxy.async.shared::cta; bar.sync 0;
    setp.ne.u32 %p1, %r2, 0; @%p1 bra L;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 128; cp.async.bulk.commit_group;
    L: ld.acquire.gpu.global.u32 %r5, [%rd1]; setp.ne.u32 %p2, %r5, 7; @%p2 bra L;
    bar.sync 0; @%p1 bra END; cp.async.bulk.wait_group 0; END:""",
            header=".shared .align 128 .b8 s[128];",
        ),
        flag,
    )
    assert (flag == 7).all()
