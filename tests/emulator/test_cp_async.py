"""cp.async: sizes, zero fill, groups, cache hints, and arrival at mbarriers."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import Deadlock, Misaligned, OutOfBounds, UnknownInstruction
from tests.emulator.harness import kernel, run, wait
from tests.emulator.tensors import aligned

HEADER = ".shared .align 128 .b8 smem[4096]; .shared .align 8 .b8 bar[8];"
BEGIN = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, bar; ld.param.b64 %rd0, [p0]; ld.param.b64 %rd1, [p1];
setp.ne.u32 %p1, %r0, 0;"""


def dump(nbytes: int, offset: int = 0) -> str:
    """Every thread stores its nbytes of shared memory (thread * nbytes + offset) to p1."""
    words = "".join(f"ld.shared.b32 %r50, [%r40+{4 * i + offset}]; st.global.b32 [%rd40+{4 * i}], %r50;"
                    for i in range(nbytes // 4))  # fmt: skip
    return f"mad.lo.u32 %r40, %r0, {nbytes}, %r1; mad.wide.u32 %rd40, %r0, {nbytes}, %rd1; {words}"


def addresses(nbytes: int) -> str:
    return f"mad.lo.u32 %r3, %r0, {nbytes}, %r1; mad.wide.u32 %rd2, %r0, {nbytes}, %rd0;"


def copied(rng: np.random.Generator, nbytes: int, lines: str, threads: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """(source, what arrived) as (threads, nbytes) bytes."""
    data = aligned(rng.integers(0, 255, threads * nbytes + 16).astype(np.uint8))
    out = np.zeros(threads * nbytes, np.uint8)
    run(
        kernel(f"{BEGIN} {addresses(nbytes)} {lines} {dump(nbytes)}", 2, header=HEADER),
        data,
        out,
        block=(threads, 1, 1),
    )
    return data[: threads * nbytes].reshape(threads, nbytes), out.reshape(threads, nbytes)


FORMS = [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)]
FINISH = ["cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"]


@pytest.mark.parametrize("space", [".shared", ".shared::cta"])
@pytest.mark.parametrize("hint", ["", ".L2::64B", ".L2::128B", ".L2::256B", ".L2::cache_hint"])
@pytest.mark.parametrize(("cache", "nbytes"), FORMS)
def test_copies(rng: np.random.Generator, cache: str, nbytes: int, hint: str, space: str) -> None:
    policy = ", %rd8" if hint.endswith("cache_hint") else ""
    lines = f"""createpolicy.fractional.L2::evict_first.b64 %rd8, 1.0;
    cp.async.{cache}{space}.global{hint} [%r3], [%rd2], {nbytes}{policy}; {FINISH[nbytes // 8 % 2]}"""
    data, out = copied(rng, nbytes, lines)
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize(("cache", "nbytes"), FORMS)
def test_a_smaller_source_is_filled_with_zeros(rng: np.random.Generator, cache: str, nbytes: int) -> None:
    """Each thread has its own source size, 0 to all bytes."""
    lines = f"rem.u32 %r5, %r0, {nbytes + 1}; cp.async.{cache}.shared.global [%r3], [%rd2], {nbytes}, %r5; {FINISH[0]}"
    data, out = copied(rng, nbytes, lines)
    keep = np.arange(nbytes)[None, :] < np.arange(64)[:, None] % (nbytes + 1)
    np.testing.assert_array_equal(out, np.where(keep, data, 0))


@pytest.mark.parametrize(("cache", "nbytes"), FORMS)
def test_an_ignored_source_is_not_read(rng: np.random.Generator, cache: str, nbytes: int) -> None:
    lines = f"""and.b32 %r5, %r0, 1; setp.ne.u32 %p2, %r5, 0;
    cp.async.{cache}.shared.global [%r3], [%rd2], {nbytes}, %p2; {FINISH[1]}"""
    data, out = copied(rng, nbytes, lines)
    np.testing.assert_array_equal(out, np.where(np.arange(64)[:, None] % 2 == 0, data, 0))


def test_a_predicated_copy_leaves_shared_memory_alone(rng: np.random.Generator) -> None:
    lines = f"""mov.u32 %r6, 0x5A5A5A5A; st.shared.b32 [%r3], %r6; and.b32 %r5, %r0, 1; setp.ne.u32 %p2, %r5, 0;
    @%p2 cp.async.ca.shared.global [%r3], [%rd2], 4; {FINISH[1]}"""
    data, out = copied(rng, 4, lines)
    np.testing.assert_array_equal(out, np.where(np.arange(64)[:, None] % 2 == 1, data, 0x5A))


def test_groups_complete_in_order(rng: np.random.Generator) -> None:
    """Three stages in flight; each wait releases the oldest, which every thread reads after a barrier."""
    threads, stages = 32, 6
    data, out = (
        aligned(rng.integers(0, 255, (stages, threads, 16)).astype(np.uint8)),
        np.zeros((stages, threads, 16), np.uint8),
    )
    issue = """cp.async.cg.shared.global [%r{slot}], [%rd2+{source}], 16; cp.async.commit_group;"""
    lines = "".join(f"add.u32 %r{60 + s}, %r3, {512 * s};" for s in range(3))
    for s in range(2):
        lines += issue.format(slot=60 + s, source=512 * s)
    for s in range(stages):
        lines += f"cp.async.wait_group {1 if s < stages - 1 else 0}; bar.sync 0;"
        words = "".join(
            f"ld.shared.b32 %r50, [%r61+{4 * i}]; st.global.b32 [%rd40+{512 * s + 4 * i}], %r50;" for i in range(4)
        )
        lines += words.replace("%r61", f"%r{60 + s % 3}") + "bar.sync 0;"
        if s + 2 < stages:
            lines += issue.format(slot=60 + (s + 2) % 3, source=512 * (s + 2))
    text = f"{BEGIN} {addresses(16)} mad.wide.u32 %rd40, %r0, 16, %rd1; {lines}"
    run(kernel(text, 2, header=HEADER), data, out)
    np.testing.assert_array_equal(out, data.reshape(out.shape))


def test_an_empty_group_counts(rng: np.random.Generator) -> None:
    """wait_group 1 after a group with a copy and an empty one: the copy is done."""
    data, out = copied(rng, 16, "cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.commit_group; "
                       "cp.async.commit_group; cp.async.wait_group 1;")  # fmt: skip
    np.testing.assert_array_equal(out, data)


WAIT = wait("%r2")


def test_arrival_at_an_mbarrier_without_increment(rng: np.random.Generator) -> None:
    """The barrier expects every thread; a thread's arrival follows its copies."""
    lines = f"""@!%p1 mbarrier.init.shared::cta.b64 [%r2], 64; bar.sync 0; cp.async.ca.shared.global [%r3], [%rd2], 8;
    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2]; {WAIT}"""
    data, out = copied(rng, 8, lines)
    np.testing.assert_array_equal(out, data)


def test_arrival_at_an_mbarrier_with_increment(rng: np.random.Generator) -> None:
    """The pending count grows by one before the arrival, so only the ordinary arrivals are in the barrier's count."""
    lines = f"""@!%p1 mbarrier.init.shared::cta.b64 [%r2], 64; bar.sync 0; cp.async.ca.shared.global [%r3], [%rd2], 16;
    cp.async.mbarrier.arrive.shared::cta.b64 [%r2]; mbarrier.arrive.shared::cta.b64 _, [%r2]; {WAIT}"""
    data, out = copied(rng, 16, lines)
    np.testing.assert_array_equal(out, data)


@pytest.mark.emulator
def test_arrivals_that_the_count_has_twice_are_explained(rng: np.random.Generator) -> None:
    """Without .noinc an arrival adds what it takes away: the threads that copy must not be in the barrier's count."""
    lines = f"""@!%p1 mbarrier.init.shared::cta.b64 [%r2], 64; bar.sync 0; cp.async.ca.shared.global [%r3], [%rd2], 8;
    cp.async.mbarrier.arrive.shared::cta.b64 [%r2]; {WAIT}"""
    with pytest.raises(Deadlock, match="which also added as many to wait for") as error:
        copied(rng, 8, lines)
    assert "`.noinc` on cp.async.mbarrier.arrive" in error.value.hint


def test_what_other_threads_copied_is_read_after_the_mbarrier(rng: np.random.Generator) -> None:
    lines = f"""@!%p1 mbarrier.init.shared::cta.b64 [%r2], 64; bar.sync 0; cp.async.ca.shared.global [%r3], [%rd2], 4;
    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2]; {WAIT}
    xor.b32 %r7, %r0, 33; mad.lo.u32 %r7, %r7, 4, %r1; ld.shared.b32 %r8, [%r7]; bar.sync 0;
    st.shared.b32 [%r3], %r8;"""
    data, out = copied(rng, 4, lines)
    np.testing.assert_array_equal(out, data[np.arange(64) ^ 33])


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.emulator
@pytest.mark.parametrize(
    "text",
    ["cp.async.cg.shared.global [%r3], [%rd2], 8;", "cp.async.ca.shared.global [%r3], [%rd2], 12;",
     "cp.async.ca.shared.global.L1::no_allocate [%r3], [%rd2], 16;"],
)  # fmt: skip
def test_other_forms_raise_by_name(text: str) -> None:
    with pytest.raises(UnknownInstruction, match=text.split()[0].replace(".", r"\.")):
        run(kernel(text, 2, header=HEADER), np.zeros(1), np.zeros(1))


@pytest.mark.emulator
def test_faults(rng: np.random.Generator) -> None:
    with pytest.raises(Misaligned, match="16-byte access"):
        copied(rng, 16, "cp.async.cg.shared.global [%r3+4], [%rd2], 16; cp.async.wait_all;")
    with pytest.raises(Misaligned, match="16-byte access"):
        copied(rng, 16, "cp.async.cg.shared.global [%r3], [%rd2+8], 16; cp.async.wait_all;")
    with pytest.raises(OutOfBounds, match="past the end"):
        copied(rng, 16, "cp.async.cg.shared.global [%r3], [%rd2+32], 16; cp.async.wait_all;")
