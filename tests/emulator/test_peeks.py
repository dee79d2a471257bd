"""test_wait and try_wait outside of a loop that waits: a peek, whose answer is "not yet" as long as it may be."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator import ptx
from cutetut.emulator.errors import Deadlock, InFlight
from cutetut.emulator.ptx.loops import is_repeated
from tests.emulator.harness import kernel, run, wait

ASK = "mbarrier.{}.parity.shared::cta.b64 %p2, [%r1], 0;"
SHARED = ".shared .align 16 .b8 s[128]; .shared .align 8 .b64 bar;"
COPY = """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; mov.u32 %r1, bar; mov.u32 %r2, s; mov.u32 %r3, %tid.x;
setp.ne.u32 %p1, %r3, 0; @%p1 bra M; mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 128, [%r1];
M: bar.sync 0; mad.lo.u32 %r4, %r3, 4, %r2;
"""
STORE = "ld.shared.b32 %r5, [%r4]; mad.wide.u32 %rd3, %r3, 4, %rd2; st.global.b32 [%rd3], %r5;"


def copied(lines: str) -> np.ndarray:
    """32 words through shared memory: what a kernel has stored that runs `lines` between the copy and its use."""
    x, y = np.arange(7, 39, dtype=np.uint32), np.zeros(32, np.uint32)
    run(kernel(f"{COPY} {lines} {STORE}", 2, header=SHARED), x, y)
    return y


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["test_wait", "try_wait"])
def test_a_peek_without_a_wait_is_no_wait(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", "late")
    with pytest.raises(InFlight, match="still being written by"):
        copied(ASK.format(kind))


@pytest.mark.parametrize("kind", ["test_wait", "try_wait"])
@pytest.mark.parametrize("policy", ["late", "early", "random:1"])
def test_a_peek_and_a_wait_if_it_failed(kind: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    lines = f"{ASK.format(kind)} selp.b32 %r6, 1, 0, %p2; setp.ne.b32 %p3, %r6, 0; @%p3 bra ON; {wait('%r1')} ON:"
    np.testing.assert_array_equal(copied(lines), np.arange(7, 39))


@pytest.mark.parametrize("policy", ["late", "random:1"])
def test_other_work_between_two_looks(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sleeps, so nothing but time lets the copy arrive."""
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    body = f"L: {ASK.format('test_wait')} atom.global.add.u32 %r6, [%rd2], 0; @!%p2 bra L; bar.warp.sync -1;"
    np.testing.assert_array_equal(copied(body), np.arange(7, 39))


TWO = """mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.init.shared::cta.b64 [%r1+8], 1; LOOP:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1+8], 0;
or.pred %p4, %p2, %p3; @!%p4 bra LOOP;"""


def repeated(text: str) -> list[bool]:
    """Of each wait in a kernel, whether a false answer leads back to it."""
    function = ptx.parse(text).kernels["k"]
    return [is_repeated(function, inst) for inst in function.body if "_wait" in inst.opcode]


@pytest.mark.emulator
def test_a_wait_for_either_of_two_barriers_that_nobody_arrives_at() -> None:
    text = kernel(f"mov.u32 %r1, bar; {TWO}", header=".shared .align 8 .b64 bar[2];")
    assert repeated(text) == [False, False]
    with pytest.raises(Deadlock):
        run(text, np.zeros(1, np.uint32), block=(1, 1, 1))


WAIT = ASK.format("try_wait")
LOOPS = {
    "the branch back on false": f"L: {WAIT} @!%p2 bra L;",
    "the branch out on true": f"L: {WAIT} @%p2 bra D; bra L; D:",
    "through a register": f"L: {WAIT} selp.b32 %r6, 1, 0, %p2; setp.eq.u32 %p3, %r6, 0; @%p3 bra L;",
    "the answer negated": f"L: {WAIT} not.pred %p3, %p2; @%p3 bra L;",
    "so many times": wait("%r1"),
    "with a pause": f"L: {WAIT} @%p2 bra D; nanosleep.u32 20; bra L; D:",
}
PEEKS = {
    "once": WAIT,
    "the branch back on true": f"L: {WAIT} @%p2 bra L;",
    "through a register, on true": f"L: {WAIT} selp.b32 %r6, 1, 0, %p2; setp.ne.u32 %p3, %r6, 0; @%p3 bra L;",
    "with a load in between": f"L: {WAIT} ld.shared.b32 %r5, [%r4]; @!%p2 bra L;",
    "with a store in between": f"L: {WAIT} st.shared.b32 [%r4], %r5; @!%p2 bra L;",
    "with an arrival in between": f"L: {WAIT} mbarrier.arrive.shared::cta.b64 _, [%r1]; @!%p2 bra L;",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", [*LOOPS, *PEEKS])
def test_which_of_them_are_waits(name: str) -> None:
    assert repeated(kernel({**LOOPS, **PEEKS}[name])) == [name in LOOPS]


