"""One lane starts a copy for its warp: what the other lanes have read or written there they must have met after.

Each mistake is a kernel without `bar.warp.sync` at one place; with it the kernel is right, which numpy says.
"""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import EmulatorWarning, MissingBarrier
from tests.emulator.harness import kernel, run, wait

pytestmark = pytest.mark.emulator

SHARED = ".shared .align 16 .b8 s[256]; .shared .align 8 .b64 bar[1];"
START = """mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r3, bar; mad.lo.u32 %r4, %r1, 4, %r2; ld.param.b64 %rd1, [p0];
setp.ne.u32 %p1, %r1, 0; mad.wide.u32 %rd2, %r1, 4, %rd1; mov.u32 %r9, 0;
@!%p1 mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; bar.warp.sync -1;"""
MEET, SHUFFLE = "bar.warp.sync -1;", "shfl.sync.bfly.b32 %r30, %r1, 1, 31, -1;"
NUMBERS = np.arange(100, 164, dtype=np.uint32)


def bring(at: int, parity: int) -> str:
    """Lane 0 copies the 32 words from byte `at` of the array to s, and all wait for them."""
    return f"""@%p1 bra IN{parity}; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128; add.u64 %rd3, %rd1, {at};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd3], 128, [%r3];
    IN{parity}: {wait("%r3", parity, str(parity))}"""


def take(what: str) -> str:
    """Lane 0 has s stored to the array, or added to it, and waits until that is done."""
    return f"@%p1 bra OUT; {what} [%rd1], [%r2], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; OUT:"


STORE, ADD = "cp.async.bulk.global.shared::cta.bulk_group", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
LOAD_MATRIX = """and.b32 %r20, %r1, 7; mad.lo.u32 %r21, %r20, 16, %r2;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r21];"""
WRITE = "st.shared.b32 [%r4], %r1; fence.proxy.async.shared::cta;"
FILL = WRITE + MEET
KEEP = "st.global.b32 [%rd2+128], %r9;"

KERNELS: dict[str, tuple[str, list[np.ndarray]]] = {  # what the array holds in the end; of matrices lane l gets word l
    "read, then copied over": (
        f"{bring(0, 0)} ld.shared.b32 %r9, [%r4]; <MEET> {bring(128, 1)} {KEEP}", [NUMBERS[:32], NUMBERS[:32]],
    ),
    "read as matrices, then copied over": (
        f"{bring(0, 0)} {LOAD_MATRIX} <MEET> {bring(128, 1)} {KEEP}", [NUMBERS[:32], NUMBERS[:32]],
    ),
    "written, then copied over": (
        f"{WRITE} <MEET> {bring(0, 0)} ld.shared.b32 %r9, [%r4];{KEEP}",
        [NUMBERS[:32], NUMBERS[:32]],
    ),
    "read in global memory, then stored over": (
        f"{FILL} ld.global.b32 %r9, [%rd2]; <MEET> {take(STORE)} {KEEP}", [np.arange(32), NUMBERS[:32]],
    ),
    "read in global memory, then added to": (
        f"{FILL} ld.global.b32 %r9, [%rd2]; <MEET> {take(ADD)} {KEEP}", [NUMBERS[:32] + np.arange(32), NUMBERS[:32]],
    ),
    "written in global memory, then fetched": (
        f"st.global.b32 [%rd2], %r1; fence.proxy.async.global; <MEET> {bring(0, 0)} ld.shared.b32 %r9, [%r4]; {KEEP}",
        [np.arange(32), np.arange(32)],
    ),
}  # fmt: skip


def result(name: str, between: str) -> np.ndarray:
    out = NUMBERS.copy()
    run(kernel(START + KERNELS[name][0].replace("<MEET>", between), header=SHARED), out, block=(32, 1, 1))
    return out


@pytest.mark.parametrize("policy", ["late", "early"])
@pytest.mark.parametrize("name", KERNELS)
def test_lanes_that_have_not_met(monkeypatch: pytest.MonkeyPatch, name: str, policy: str) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    with pytest.raises(MissingBarrier, match="lane [0-9]+ of the same warp") as caught:
        result(name, "")
    assert "cute.arch.sync_warp()" in str(caught.value.hint)


@pytest.mark.parametrize("policy", ["late", "early"])
@pytest.mark.parametrize("name", KERNELS)
def test_lanes_that_have_met(monkeypatch: pytest.MonkeyPatch, name: str, policy: str) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    np.testing.assert_array_equal(result(name, MEET), np.concatenate(KERNELS[name][1]))


@pytest.mark.parametrize("name", ["read, then copied over", "read in global memory, then stored over"])
def test_loads_before_a_shuffle_are_let_go(name: str) -> None:
    np.testing.assert_array_equal(result(name, SHUFFLE), np.concatenate(KERNELS[name][1]))


def test_another_warp_that_still_reads_is_named_before_a_lane() -> None:
    """Warp 1 copies over what both warps have read: a barrier of the CTA is missing, one of the warp is not enough."""
    start = START.replace("bar.warp.sync -1;", "bar.sync 0; and.b32 %r5, %r1, 31; mad.lo.u32 %r4, %r5, 4, %r2;")
    second = f"setp.ne.u32 %p1, %r1, 32; bar.warp.sync -1; {bring(128, 1)}"
    body = f"{start} {bring(0, 0)} ld.shared.b32 %r9, [%r4]; {second} {KEEP}"
    for text in (body, body.replace("bar.warp.sync -1; @%p1", "@%p1")):
        with pytest.raises(MissingBarrier, match="which warp 0 has read"):
            run(kernel(text, header=SHARED), NUMBERS.copy(), block=(64, 1, 1))


def test_warps_that_shuffle_while_another_goes_elsewhere_have_shuffled() -> None:
    """Lane 0 reads a word, its warp shuffles, lane 1 writes it: a warning, whichever warps run."""
    text = kernel(
        """mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5;
        mad.wide.u32 %rd2, %r3, 4, %rd1; setp.eq.u32 %p1, %r3, 1; setp.ne.u32 %p2, %r2, 0; setp.ne.u32 %p3, %r2, 1;
        mov.u32 %r9, 0; @%p2 bra READ; ld.global.b32 %r9, [%rd2]; READ: bar.warp.sync 0xffffffff; @%p1 bra OUT;
        @%p2 bra AGAIN; ld.global.b32 %r9, [%rd2]; AGAIN:
        shfl.sync.idx.b32 %r8, %r9, 0, 31, -1; add.u32 %r8, %r8, 1; @!%p3 st.global.b32 [%rd2], %r8; OUT:"""
    )
    words = np.arange(10, 13, dtype=np.uint32)
    with pytest.warns(EmulatorWarning, match="loaded from before the warp shuffled"):
        run(text, words, block=(96, 1, 1))
    assert words.tolist() == [11, 11, 13]
