"""Bulk copies of plain byte ranges: loads, stores, reductions, groups, multicast, and between CTAs."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import IllegalInstruction, InFlight, OutOfBounds, UnknownInstruction
from tests.emulator.harness import kernel, run, spin
from tests.emulator.tensors import aligned
from tests.emulator.test_tma import ARITHMETIC, NUMPY, REDUCTIONS, SMEM, as_bytes, small_numbers

START = """mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; setp.ne.u32 %p1, %r0, 0;
ld.param.b64 %rd0, [p0]; ld.param.b64 %rd1, [p1];"""
BARRIER = "mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;"


def copy_words(words: int, to_shared: bool, offset: int, pointer: str = "%rd0", name: str = "0") -> str:
    """A warp copies 32-bit words between a pointer and shared memory."""
    move = (
        f"ld.global.b32 %r5, [%rd9]; st.shared.b32 [%r3+{offset}], %r5;"
        if to_shared
        else f"ld.shared.b32 %r5, [%r3+{offset}]; st.global.b32 [%rd9], %r5;"
    )
    return f"""mad.wide.u32 %rd9, %r0, 4, {pointer}; mad.lo.u32 %r3, %r0, 4, %r1; mov.u32 %r4, %r0;
    MOVE{name}: setp.ge.u32 %p7, %r4, {words}; @%p7 bra MOVED{name}; {move}
    add.u32 %r3, %r3, 128; add.u64 %rd9, %rd9, 128; add.u32 %r4, %r4, 32; bra MOVE{name};
    MOVED{name}:"""


@pytest.mark.parametrize("nbytes", [16, 48, 128, 1024, 4112])
@pytest.mark.parametrize("spelling", ["shared::cluster", "shared::cta", "hint"])
def test_load(rng: np.random.Generator, nbytes: int, spelling: str) -> None:
    data = aligned(rng.integers(0, 255, nbytes + 64).astype(np.uint8))
    out = np.zeros(nbytes + 4, np.uint8)
    more, policy = (".L2::cache_hint", ", %rd8") if spelling == "hint" else ("", "")
    space = "shared::cluster" if spelling == "hint" else spelling
    text = f"""{START} @%p1 bra WAIT; {BARRIER} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};
    createpolicy.fractional.L2::evict_last.b64 %rd8, 1.0;
    cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes{more} [%r1+16], [%rd0+32], {nbytes}, [%r1]{policy};
    WAIT: bar.sync 0; {spin("%r1")} {copy_words(nbytes // 4, False, 16, "%rd1")}
    @!%p1 st.global.b32 [%rd1+{nbytes}], %r90;"""
    run(kernel(text, 2, header=SMEM), data, out, dynamic_smem=16 + nbytes)
    assert out[nbytes:].view(np.uint32)[0] == 1, "the barrier's phase did not complete"
    np.testing.assert_array_equal(out[:nbytes], data[32 : 32 + nbytes])


@pytest.mark.parametrize("nbytes", [16, 80, 2048])
def test_store(rng: np.random.Generator, nbytes: int) -> None:
    source = rng.integers(0, 255, nbytes).astype(np.uint8)
    data = aligned(rng.integers(0, 255, nbytes + 64).astype(np.uint8))
    wanted = data.copy()
    wanted[16 : 16 + nbytes] = source
    text = f"""{START} {copy_words(nbytes // 4, True, 0)} fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1+16], [%r1], {nbytes};
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:"""
    run(kernel(text, 2, header=SMEM), source, data, dynamic_smem=nbytes)
    np.testing.assert_array_equal(data, wanted)


def test_after_wait_group_read_the_source_may_be_overwritten(rng: np.random.Generator) -> None:
    """Two stores of the same buffer with new content in between; both contents arrive."""
    source, data = rng.integers(0, 255, 128).astype(np.uint8), aligned(np.zeros(256, np.uint8))
    text = f"""{START} {copy_words(32, True, 0)} fence.proxy.async.shared::cta; bar.sync 0;
    @!%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 128; @!%p1 cp.async.bulk.commit_group;
    @!%p1 cp.async.bulk.wait_group.read 0; bar.sync 0;
    mad.lo.u32 %r3, %r0, 4, %r1; ld.shared.b32 %r5, [%r3]; not.b32 %r5, %r5; st.shared.b32 [%r3], %r5;
    fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1+128], [%r1], 128; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; END:"""
    run(kernel(text, 2, header=SMEM), source, data, dynamic_smem=128)
    np.testing.assert_array_equal(data, np.concatenate([source, ~source]))


READS_OF = {  # waits with .read for all but so many groups, one after the other -> of two buffers, which are free
    (1,): {0}, (1, 1): {0}, (0,): {0, 1}, (1, 0): {0, 1}, (2, 1): {0}, (2,): set(),
}  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("buffer", [0, 1])
@pytest.mark.parametrize("waits", READS_OF)
def test_a_read_wait_frees_all_groups_but_the_newest(
    rng: np.random.Generator, waits: tuple[int, ...], buffer: int
) -> None:
    """Two groups, a buffer each; the issuing thread then overwrites one of the buffers."""
    source, data = rng.integers(0, 255, 256).astype(np.uint8), aligned(np.zeros(256, np.uint8))
    waiting = " ".join(f"cp.async.bulk.wait_group.read {keep};" for keep in waits)
    text = f"""{START} {copy_words(64, True, 0)} fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 128; cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1+128], [%r1+128], 128; cp.async.bulk.commit_group;
    {waiting} st.shared.b32 [%r1+{128 * buffer}], 0;
    cp.async.bulk.wait_group 0; END:"""
    ready = kernel(text, 2, header=SMEM)
    if buffer not in READS_OF[waits]:
        with pytest.raises(InFlight, match="bulk store"):
            run(ready, source, data, dynamic_smem=256)
        return
    run(ready, source, data, dynamic_smem=256)
    np.testing.assert_array_equal(data, source)


@pytest.mark.parametrize("hint", [False, True])
@pytest.mark.parametrize(("operation", "element"), REDUCTIONS + [("add", "f64")])
def test_reduce(rng: np.random.Generator, operation: str, element: str, hint: bool) -> None:
    if element == "f64":
        old, new = (rng.integers(-50, 51, 64).astype(np.float64) for _ in range(2))
    else:
        old, new = small_numbers(rng, element, 64), small_numbers(rng, element, 64)
    wanted = ARITHMETIC[operation](old, new)
    if element == "f64":
        data, source, result = (aligned(x).view(np.uint8) for x in (old, new, wanted))
    else:
        data, source, result = (as_bytes(x.astype(NUMPY.get(element, float)), element) for x in (old, new, wanted))
    noftz = ".noftz" if operation == "add" and element in ("f16", "bf16") else ""
    kind = f"b{element[1:]}" if operation in ("and", "or", "xor") else element
    more, policy = (".L2::cache_hint", ", %rd8") if hint else ("", "")
    text = f"""{START} {copy_words(len(source) // 4, True, 0)} fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;
    createpolicy.fractional.L2::evict_first.b64 %rd8, 1.0;
    cp.reduce.async.bulk.global.shared::cta.bulk_group{more}.{operation}{noftz}.{kind}
        [%rd1], [%r1], {len(source)}{policy};
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:"""
    run(kernel(text, 2, header=SMEM), source, data, dynamic_smem=len(source))
    np.testing.assert_array_equal(data, result)


def test_prefetch_changes_nothing(rng: np.random.Generator) -> None:
    data = aligned(rng.integers(0, 255, 256).astype(np.uint8))
    before = data.copy()
    run(kernel("ld.param.b64 %rd0, [p0]; cp.async.bulk.prefetch.L2.global [%rd0], 256;"), data, block=(1, 1, 1))
    np.testing.assert_array_equal(data, before)


# -- in a cluster ---------------------------------------------------------------------------------

MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def test_copy_to_another_cta(rng: np.random.Generator) -> None:
    """Each CTA of four copies its 256 bytes to the next one, whose mbarrier counts them."""
    data, out = aligned(rng.integers(0, 255, 4 * 256).astype(np.uint8)), np.zeros((4, 256), np.uint8)
    text = f"""{START} mov.u32 %r2, %cluster_ctarank;
    mad.wide.u32 %rd0, %r2, 256, %rd0; mad.wide.u32 %rd1, %r2, 256, %rd1;
    {copy_words(64, True, 16)} @!%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
    @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
    fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; {MEET}
    @%p1 bra WAIT; add.u32 %r6, %r2, 1; and.b32 %r6, %r6, 3; add.u32 %r7, %r1, 272;
    mapa.shared::cluster.u32 %r7, %r7, %r6; mapa.shared::cluster.u32 %r8, %r1, %r6;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r7], [%r1+16], 256, [%r8];
    WAIT: bar.warp.sync -1; {spin("%r1")} @!%p9 bra END; {copy_words(64, False, 272, "%rd1", "1")}
    END: {MEET}"""
    run(kernel(text, 2, header=SMEM), data, out, grid=(4, 1, 1), cluster=(4, 1, 1), dynamic_smem=528)
    np.testing.assert_array_equal(out, np.roll(data.reshape(4, 256), 1, axis=0))


@pytest.mark.parametrize("mask", [0b01, 0b10, 0b11])
def test_multicast(rng: np.random.Generator, mask: int) -> None:
    data, out = aligned(rng.integers(0, 255, 128).astype(np.uint8)), np.full((2, 128), 0xEE, np.uint8)
    text = f"""{START} mov.u32 %r2, %cluster_ctarank; mad.wide.u32 %rd1, %r2, 128, %rd1;
    shr.u32 %r6, {mask}, %r2; and.b32 %r6, %r6, 1; setp.eq.u32 %p4, %r6, 0; or.pred %p5, %p1, %p4;
    @!%p1 mbarrier.init.shared::cta.b64 [%r1], 1; @!%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
    fence.mbarrier_init.release.cluster; {MEET}
    setp.ne.u32 %p6, %r2, 0; or.pred %p6, %p6, %p1; mov.u16 %h1, {mask};
    @!%p6 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%r1+16], [%rd0], 128, [%r1], %h1;
    @%p4 bra END; {spin("%r1")} @!%p9 bra END; {copy_words(32, False, 16, "%rd1")}
    END: {MEET}"""
    run(kernel(text, 2, header=SMEM), data, out, grid=(2, 1, 1), cluster=(2, 1, 1), dynamic_smem=144)
    for rank in (0, 1):
        np.testing.assert_array_equal(out[rank], data if mask >> rank & 1 else np.full(128, 0xEE), err_msg=f"{rank}")


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(("offset", "nbytes"), [(0, 24), (8, 32)])
def test_sizes_and_addresses_are_multiples_of_16(offset: int, nbytes: int) -> None:
    text = f"""{START} {BARRIER} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%rd0+{offset}], {nbytes}, [%r1];"""
    with pytest.raises(IllegalInstruction, match="all must be multiples of 16"):
        run(kernel(text, 2, header=SMEM), aligned(np.zeros(256, np.uint8)), np.zeros(1), block=(1, 1, 1),
            dynamic_smem=256)  # fmt: skip


@pytest.mark.emulator
def test_a_copy_past_the_end_of_its_tensor() -> None:
    text = f"""{START} {BARRIER} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%rd0+32], 64, [%r1];"""
    with pytest.raises(OutOfBounds, match="past the end"):
        run(kernel(text, 2, header=SMEM), aligned(np.zeros(80, np.uint8)), np.zeros(1), block=(1, 1, 1),
            dynamic_smem=256)  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize(
    "text",
    ["cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r1], 16, %h1;",
     "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%rd0], [%r1], 16;",
     "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd0], [%r1], 16;",
     "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r2], [%r1], 16, [%r3];"],
)  # fmt: skip
def test_other_forms_raise_by_name(text: str) -> None:
    with pytest.raises(UnknownInstruction, match=text.split()[0].replace(".", r"\.")):
        run(kernel(text, header=SMEM), np.zeros(1))
