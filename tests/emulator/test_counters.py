"""Counters against loops over lanes, words and banks and values worked out by hand; test_ncu.py has an H200."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from cutetut.emulator.measure.coalescing import copy_wavefronts, wavefronts
from cutetut.emulator.measure.counters import Counting
from cutetut.emulator.measure.meters import inside_bytes
from cutetut.emulator.measure.observe import observing
from cutetut.emulator.measure.tally import Tally
from cutetut.emulator.units.tensormap import TensorMap
from tests.emulator.counter_cases import FILLS, Case, aligned, cases
from tests.emulator.harness import kernel, run

pytestmark = pytest.mark.emulator


def counted(case: Case) -> Tally:
    """Everything that one case did."""
    counter = Counting()
    with observing(counter):
        case.launch()
    return counter.total()


def passes(lanes: list[int], case: Case) -> int:
    """How often the busiest bank must deliver a word for these lanes: word by word, as the rule says."""
    words = defaultdict(set)
    for lane in lanes:
        offset = case.offsets[lane]
        assert offset is not None
        for byte in range(offset, offset + case.nbytes):
            words[byte // 4 % 32].add(byte // 4)
    return max(len(found) for found in words.values())


def expected_passes(case: Case) -> tuple[int, int]:
    """(wavefronts, conflicts) of a shared load or store by the rules in words."""
    active = [lane for lane in range(32) if case.offsets[lane] is not None]
    together = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[case.nbytes]  # a warp, half warps, quarter warps

    def same(distance: int) -> bool:
        pairs = [(lane, lane ^ distance) for lane in active if lane ^ distance in active]
        return all(case.offsets[a] == case.offsets[b] for a, b in pairs)

    if case.operation == "ld" and case.nbytes > 4 and (same(1) or same(2)):
        together *= 2
    groups = [[lane for lane in active if lane // together == g] for g in range(32 // together)]
    taken = [passes(group, case) for group in groups if group]
    return sum(taken), sum(taken) - len(taken)


def identify(case: Case) -> str:
    return f"{case.operation}-{case.space}-{case.nbytes}-{case.name}"


ACCESSES = [case for case in cases() if case.operation in ("ld", "st")]


@pytest.mark.parametrize("case", [c for c in ACCESSES if c.space == "shared"], ids=identify)
def test_shared_wavefronts_are_those_of_a_loop_over_banks(case: Case) -> None:
    found = counted(case)
    wavefronts, conflicts = expected_passes(case)
    before = FILLS if case.operation == "st" else 0
    assert found.wavefronts(case.operation) - before == wavefronts
    assert found.bank_conflicts(case.operation) == conflicts
    assert found.requests(case.operation, "shared") - before == 1
    active = sum(offset is not None for offset in case.offsets)
    assert found.bytes_asked("shared", case.operation) - before * 128 == active * case.nbytes
    if case.operation == "ld":  # stores fill all of it before
        touched = [offset for offset in case.offsets if offset is not None]
        assert found.shared_span("ld") == max(touched) + case.nbytes - min(touched)


@pytest.mark.parametrize("case", [c for c in ACCESSES if c.space == "global"], ids=identify)
def test_global_sectors_are_the_distinct_blocks_of_32_bytes(case: Case) -> None:
    found = counted(case)
    offsets = [offset for offset in case.offsets if offset is not None]
    touched = {byte // 32 for offset in offsets for byte in range(offset, offset + case.nbytes)}
    assert found.sectors(case.operation) - 4 == len(touched)  # 4: of the table, or of the output
    assert found.requests(case.operation) - 1 == 1
    assert found.bytes_asked("global", case.operation) - 128 == len(offsets) * case.nbytes
    assert found.traffic["global", case.operation].moved == 32 * found.sectors(case.operation)


@pytest.mark.parametrize("case", [c for c in cases() if c.operation in ("atom", "red")], ids=identify)
def test_atomics_send_a_sector_once_for_each_turn_of_lanes_that_meet(case: Case) -> None:
    found = counted(case)
    offsets = [offset for offset in case.offsets if offset is not None]
    turns = {(offset // 32, offsets[:place].count(offset)) for place, offset in enumerate(offsets)}
    assert found.sectors(case.operation) == len(turns)
    assert found.requests(case.operation) == 1
    assert found.bytes_asked("global", case.operation) == len(offsets) * 4


BY_HAND = {  # bank conflicts of a stride in elements, worked out from 32 banks of 4 bytes
    4: {1: 0, 2: 1, 4: 3, 8: 7, 16: 15, 32: 31, 33: 0},
    8: {1: 0, 2: 2, 4: 6, 8: 14, 16: 30, 32: 30, 33: 0},
    16: {1: 0, 2: 4, 4: 12, 8: 28, 16: 28, 32: 28, 33: 0},
}


@pytest.mark.parametrize("operation", ["ld", "st"])
@pytest.mark.parametrize("nbytes", BY_HAND)
@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 32, 33])
def test_bank_conflicts_of_strides(operation: str, nbytes: int, stride: int) -> None:
    case = Case("", operation, "shared", nbytes, tuple(stride * nbytes * i for i in range(32)))
    assert counted(case).bank_conflicts(operation) == BY_HAND[nbytes][stride]


@pytest.mark.parametrize(("address", "expected"), [(3, 2), (4, 1), (7, 2), (4103, 2), (4104, 1)])
def test_a_pattern_may_take_other_passes_at_another_byte_of_a_word(address: int, expected: int) -> None:
    """Two bytes, 125 apart, are in words of one bank if the first is a word's last byte, and of two banks if not."""
    lanes = np.arange(2)
    assert wavefronts(address + 125 * lanes, 1, np.zeros(2, np.int64), lanes, load=True) == (expected, 1)


@pytest.mark.parametrize(("reading", "expected"), [(0, 1), (1, 1), (4, 4), (32, 32)])
def test_lanes_that_write_zeros_take_no_word_from_a_bank(reading: int, expected: int) -> None:
    """All lanes put their words to different banks; those that read take them from one bank."""
    lanes, warp = np.arange(32), np.zeros(32, np.int64)
    assert copy_wavefronts(128 * lanes, lanes < reading, 4 * lanes, 4, warp, lanes) == (expected, 1)


TILES = {  # conflicts of one 8 x 8 matrix whose rows lie so, worked out by hand: 8 rows of 4 banks each
    "packed": 0, "128-byte rows": 7, "128-byte rows, 128B swizzle": 0, "64-byte rows": 3,
    "64-byte rows, 64B swizzle": 0, "144-byte rows": 0, "256-byte rows": 7, "all one": 0,
}  # fmt: skip


@pytest.mark.parametrize("case", [c for c in cases() if c.operation.endswith("matrix")], ids=identify)
def test_matrix_rows_take_one_pass_each_unless_they_share_banks(case: Case) -> None:
    found = counted(case)
    phases = case.nbytes // 4
    assert found.bank_conflicts(case.operation) == phases * TILES[case.name]
    assert found.wavefronts(case.operation) == phases * (1 + TILES[case.name])
    assert found.bytes_asked("shared", case.operation) == phases * 128
    assert found.requests(case.operation, "shared") == 1
    rows = [offset for offset in case.offsets[: 2 * case.nbytes] if offset is not None]  # 8 lanes name a matrix
    assert found.shared_span(case.operation) == max(rows) + 16 - min(rows)


def test_guarded_threads_are_issued_but_do_not_execute() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 40;
    @%p0 add.s32 %r1, %r0, 1;
    @!%p0 bra END;
    mul.lo.s32 %r1, %r1, %r0;
END:"""
    counter = Counting()
    with observing(counter):
        run(kernel(body, 0), block=(96, 1, 1))
    total = counter.total()
    assert (total.warps["add.s32"], total.threads["add.s32"]) == (3, 40)
    assert (total.warps["bra"], total.threads["bra"]) == (3, 56)
    assert (total.warps["mul.s32"], total.threads["mul.s32"]) == (2, 40)
    assert counter.launches == 1


def test_generic_addresses_count_where_they_point() -> None:
    header = ".shared .align 16 .b8 smem[256];"
    body = """mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 8; mov.b32 %r1, 7;
    mov.u32 %r2, smem; cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd2, %rd2; add.s64 %rd2, %rd2, %rd1;
    ld.param.b64 %rd3, [p0]; add.s64 %rd3, %rd3, %rd1;
    st.b32 [%rd2], %r1;
    st.b32 [%rd3], %r1;"""
    out = np.zeros(64 + 16, np.uint64)
    skip = -(out.ctypes.data // 8) % 4  # to a sector
    counter = Counting()
    with observing(counter):
        run(kernel(body, 1, header), out[skip : skip + 32])
    total = counter.total()
    assert (total.requests("st", "shared"), total.wavefronts("st"), total.bank_conflicts("st")) == (1, 2, 1)
    assert (total.requests("st"), total.sectors("st"), total.bytes_asked("global", "st")) == (1, 8, 128)
    assert total.sectors_per_request("st") == 8
    with pytest.raises(ValueError, match="no 'ld' of global memory was counted; there were: st"):
        total.sectors_per_request("ld")


def test_arithmetic_counts_a_fused_multiply_add_twice() -> None:
    body = """mov.b32 %f0, 0f3F800000; fma.rn.f32 %f1, %f0, %f0, %f0; add.f32 %f1, %f1, %f0; mul.f32 %f1, %f1, %f0;
    mov.b32 %r1, 0; fma.rn.f16x2 %r2, %r1, %r1, %r1; mad.lo.s32 %r2, %r1, %r1, %r1; max.f32 %f1, %f1, %f0;"""
    counter = Counting()
    with observing(counter):
        run(kernel(body, 0), block=(64, 1, 1))
    total = counter.total()
    assert total.arithmetic == {("scalar", "f32"): 64 * 4, ("scalar", "f16x2"): 64 * 4}
    assert total.flops() == total.flops("scalar") == 64 * 8


def test_matrix_instructions_count_their_products() -> None:
    a, b, c = "{%r0, %r0, %r0, %r0}", "{%r0, %r0}", "{%f0, %f0, %f0, %f0}"
    body = f"""mov.b32 %r0, 0; mov.b32 %f0, 0;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f1, %f2, %f3, %f4}}, {a}, {b}, {c};
    mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {{%r1, %r2, %r3, %r4}}, {a}, {b}, {a};"""
    counter = Counting()
    with observing(counter):
        run(kernel(body, 0), block=(64, 1, 1))
    total = counter.total()
    assert total.arithmetic == {("matrix", "f16"): 2 * 2 * 16 * 8 * 16, ("matrix", "s8"): 2 * 2 * 16 * 8 * 32}


def test_memory_of_another_cta_is_the_clusters() -> None:
    header = ".shared .align 16 .b8 smem[128];"
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.b32 [%r2], %r0;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mapa.shared::cluster.u32 %r3, %r2, 1;
    ld.shared::cluster.b32 %r4, [%r3];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    counter = Counting()
    with observing(counter):
        run(kernel(body, 0, header), grid=(2, 1, 1), cluster=(2, 1, 1))
    total = counter.total()
    assert (total.requests("ld", "cluster"), total.bytes_asked("cluster")) == (1, 128)  # by rank 0,
    assert (total.requests("ld", "shared"), total.wavefronts("ld")) == (1, 1)  # and by rank 1 of its own
    assert (total.requests("st", "shared"), total.bytes_asked("shared", "st")) == (2, 256)


def test_an_asynchronous_store_counts_where_it_goes() -> None:
    header = ".shared .align 16 .b8 smem[272];"
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, %cluster_ctarank; setp.ne.u32 %p0, %r0, 0;
    add.u32 %r3, %r1, 256; @!%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
    @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 256; fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    xor.b32 %r4, %r2, 1; mad.lo.u32 %r5, %r0, 8, %r1;
    mapa.shared::cluster.u32 %r5, %r5, %r4; mapa.shared::cluster.u32 %r6, %r3, %r4;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r5], {%r0, %r0}, [%r6];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0; @!%p1 bra WAIT;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    counter = Counting()
    with observing(counter):
        run(kernel(body, 0, header), grid=(2, 1, 1), cluster=(2, 1, 1))
    total = counter.total()
    assert (total.requests("st.async", "cluster"), total.bytes_asked("cluster", "st.async")) == (2, 512)
    assert total.bytes_asked("shared") == 0


def test_a_multicast_is_read_once_and_written_to_every_cta() -> None:
    header = ".shared .align 16 .b8 smem[80];"
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, %cluster_ctarank; setp.ne.u32 %p0, %r0, 0;
    add.u32 %r3, %r1, 64; ld.param.b64 %rd0, [p0]; mov.b16 %h0, 3;
    @!%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
    @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 64; fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    or.b32 %r4, %r0, %r2; setp.ne.u32 %p2, %r4, 0;
    @!%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%r1], [%rd0], 64, [%r3], %h0;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0; @!%p1 bra WAIT;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    counter = Counting()
    with observing(counter):
        run(kernel(body, 1, header), aligned(np.zeros(16, np.uint32)), grid=(2, 1, 1), cluster=(2, 1, 1))
    total = counter.total()
    assert (total.requests("tma load"), total.bytes_asked("global")) == (1, 64)
    assert total.bytes_asked("shared", "tma load") == 128


@pytest.mark.parametrize("start", [(0, 0), (-3, 2), (20, -1), (24, 8), (30, 0), (-16, 0)])
def test_elements_out_of_bounds_are_not_read(start: tuple[int, int]) -> None:
    shape, box, steps = (30, 10), (16, 6), (1, 2)
    tensor = TensorMap(0, "f16", 2, shape, (2, 64), box, steps, 0, 0, False)
    inside = sum(
        0 <= start[0] + x < shape[0] and 0 <= start[1] + y < shape[1] for x in range(16) for y in range(0, 6, 2)
    )
    assert inside_bytes(tensor, list(start)) == 2 * inside


def test_without_an_observer_no_step_is_wrapped() -> None:
    """The hot path stays as it is: the steps of a launch after a counted one are the units' own."""
    from cutetut.emulator import launch, ptx
    from cutetut.emulator.machine.machine import Launch, Machine
    from cutetut.emulator.machine.memory import GlobalMemory
    from cutetut.emulator.machine.scheduler import Scheduler
    from cutetut.emulator.units import load_all

    load_all()  # whichever test runs first
    module = ptx.parse(kernel("mov.u32 %r0, %tid.x; add.s32 %r1, %r0, 1;", 0))

    def origins() -> set[str]:
        machine = Machine(module, module.kernels["k"], Launch((1, 1, 1), (32, 1, 1)), GlobalMemory())
        program = Scheduler(machine, 100, launch.checks()).program
        return {step.__module__.rsplit(".", 1)[1] for block in program.blocks for step in block.steps}

    with observing(Counting()):
        assert "counters" in origins()
    assert "counters" not in origins()
