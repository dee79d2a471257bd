"""Registers that nothing has written: errors where their value is used, and no false alarm."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.emulator.errors import Uninitialized
from tests.emulator.harness import kernel, run, wait

START = "mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 4, %rd1; setp.lt.u32 %p1, %r1, 20;"
STORE = "st.global.b32 [%rd2], %r2;"


def launch(lines: str, store: str = STORE) -> np.ndarray:
    out = np.zeros(64, np.uint32)
    run(kernel(f"{START}\n{lines}\n{store}"), out, block=(64, 1, 1))
    return out


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("lines", "register", "lane"),
    [
        ("", "%r2", 0),
        ("mov.u32 %r2, %r3;", "%r2", 0),
        ("mov.u32 %r4, %r3; mov.u32 %r5, %r4; add.u32 %r2, %r5, 1;", "%r2", 0),
        ("@%p1 mov.u32 %r2, 1;", "%r2", 20),
        ("@%p1 bra A; bra B; A: mov.u32 %r2, 1; B:", "%r2", 20),
        ("@!%p1 mov.u32 %r3, 1; add.u32 %r2, %r3, %r3;", "%r2", 0),
        ("mov.u32 %r2, 1; @%p1 mov.u32 %r2, %r3;", "%r2", 0),
        ("mov.u32 %r2, 1; add.u32 %r2, %r2, %r3;", "%r2", 0),
        ("selp.u32 %r2, %r3, 5, %p1;", "%r2", 0),
        ("mov.u32 %r2, 1; @%p2 bra A; A:", "%p2", 0),
        ("mov.u32 %r2, 1; @%p2 mov.u32 %r2, 2;", "%p2", 0),
        ("setp.eq.u32 %p2, %r3, 0; mov.u32 %r2, 1; @!%p2 exit;", "%p2", 0),
        ("and.pred %p3, %p1, %p2; mov.u32 %r2, 1; @%p3 bra A; A:", "%p3", 0),
        ("ld.global.b32 %r2, [%rd9];", "%rd9", 0),
        ("shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1;", "%r2", 0),
        ("shfl.sync.bfly.b32 %r2, %r1, %r3, 31, -1;", "%r3", 0),
        ("@%p1 mov.u32 %r3, 9; shfl.sync.idx.b32 %r2, %r3, 25, 31, -1;", "%r2", 0),
        ("@%p1 mov.u32 %r3, 9; shfl.sync.down.b32 %r2, %r3, 4, 31, -1;", "%r2", 16),
        ("mov.u32 %r2, 1; bar.sync %r3;", "%r3", 0),
        ("mov.b64 %rd5, {%r3, %r6}; mov.b64 {%r2, %r4}, %rd5;", "%r2", 0),
        (
            "mov.u32 %r5, 0; L: @%p1 mov.u32 %r2, 1; add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 3; @%p4 bra L;",
            "%r2",
            20,
        ),
    ],
)
def test_use_of_an_unwritten_value(lines: str, register: str, lane: int) -> None:
    with pytest.raises(Uninitialized) as error:
        launch(lines)
    assert f"register {register} is used" in str(error.value)
    place = error.value.place
    assert place is not None and (place.warp, place.lane) == (0, lane)
    assert register in place.ptx_text


I = np.arange(64)  # noqa: E741
LOW = I < 20


@pytest.mark.parametrize(
    ("lines", "store", "wanted"),
    [
        # written on every path, or in every lane that reads
        ("@%p1 bra A; mov.u32 %r2, 3; bra B; A: mov.u32 %r2, 4; B:", STORE, np.where(LOW, 4, 3)),
        ("@%p1 mov.u32 %r2, 3; @!%p1 mov.u32 %r2, 4;", STORE, np.where(LOW, 3, 4)),
        ("@%p1 add.u32 %r2, %r1, 1;", "@%p1 " + STORE, np.where(LOW, I + 1, 0)),
        # arithmetic on it, as long as the result goes nowhere: a predicated load, then a predicated store
        ("@%p1 ld.global.b32 %r3, [%rd2]; add.u32 %r4, %r3, 7; mul.lo.u32 %r2, %r4, 2;", "@%p1 " + STORE, 14 * LOW),
        ("@%p1 mov.u32 %r3, 9; selp.u32 %r2, %r3, 5, %p1;", STORE, np.where(LOW, 9, 5)),
        ("@%p1 setp.lt.u32 %p2, %r1, 10; and.pred %p3, %p1, %p2; selp.u32 %r2, 1, 2, %p3;", STORE, 2 - (I < 10)),
        ("@!%p1 setp.lt.u32 %p2, %r1, 30; or.pred %p3, %p2, %p1; selp.u32 %r2, 1, 2, %p3;", STORE, 2 - (I < 30)),
        # a shuffle moves it: the lane that is read counts, and where the result goes; its flag is always known
        ("@%p1 mov.u32 %r3, 9; shfl.sync.down.b32 %r2|%p2, %r3, 4, 31, -1; @%p2 mov.u32 %r9, 1;",
         "setp.lt.u32 %p3, %r1, 16; @%p3 " + STORE, np.where(I < 16, 9, 0)),
        ("@%p1 mov.u32 %r3, 9; shfl.sync.idx.b32 %r2, %r3, 3, 31, -1; setp.lt.u32 %p3, %r1, 32;", "@%p3 " + STORE,
         np.where(I < 32, 9, 0)),
        ("@%p1 mov.u32 %r3, 9; mov.u32 %r4, 3; shfl.sync.idx.b32 %r2, %r3, %r4, 31, -1; setp.lt.u32 %p3, %r1, 32;",
         "@%p3 " + STORE, np.where(I < 32, 9, 0)),
        # padding of a pair whose other part is used
        ("mov.b64 %rd5, {%r1, %r3}; mov.b64 {%r2, %r4}, %rd5;", STORE, I),
        # a copy before the value is known, overwritten before it is used
        ("mov.u32 %r2, %r3; mov.u32 %r2, 8;", STORE, np.full(64, 8)),
        # first written in the first round of a loop
        ("mov.u32 %r5, 0; L: setp.eq.u32 %p2, %r5, 0; @%p2 bra FIRST; add.u32 %r2, %r2, 1; bra N;"
         " FIRST: mov.u32 %r2, 10; N: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 4; @%p3 bra L;", STORE,
         np.full(64, 13)),
        # results of a barrier and of an instruction that waits count as written
        ("@%p1 bra A; A: setp.lt.u32 %p5, %r1, 99; @!%p5 bra B; bar.red.popc.u32 %r2, 0, %p1; B:", STORE,
         np.full(64, 20)),
    ],
)  # fmt: skip
def test_no_false_alarm(lines: str, store: str, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(launch(lines, store), wanted)


@pytest.mark.emulator
def test_marks_do_not_survive_into_the_next_wave() -> None:
    """A register written by the CTAs of the first wave is unwritten for those of the second."""
    body = f"""{START} mov.u32 %r7, %ctaid.x; setp.lt.u32 %p2, %r7, 64; @%p2 mov.u32 %r2, 1; {STORE}"""
    with pytest.raises(Uninitialized) as error:
        run(kernel(body), np.zeros(64, np.uint32), grid=(200, 1, 1), block=(64, 1, 1))
    assert error.value.place is not None and error.value.place.cta is not None
    assert error.value.place.cta[0] == 64


# shared memory -----------------------------------------------------------------------------------------------

# %r1: thread; %p1: threads 0 to 19, which alone write their element of buf; %r10: its address
FILL = f"""{START} .shared .align 16 .b32 buf[64]; .shared .align 16 .b32 other[64];
mov.u32 %r10, buf; mad.lo.u32 %r10, %r1, 4, %r10; mov.u32 %r11, other; mad.lo.u32 %r11, %r1, 4, %r11;
@%p1 st.shared.b32 [%r10], %r1; bar.sync 0;"""
LOAD = "ld.shared.b32 %r2, [%r10];"


def through_shared(lines: str, store: str) -> np.ndarray:
    out = np.zeros(64, np.uint32)
    run(kernel(f"{FILL}\n{lines}\n{store}"), out, block=(64, 1, 1))
    return out


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (LOAD, I * LOW),
        # into its own address, and into a register that only some threads had written
        ("ld.shared.b32 %r10, [%r10]; mov.u32 %r2, %r10;", I * LOW),
        (f"@%p1 mov.u32 %r2, 7; {LOAD} add.u32 %r2, %r2, 1;", (I + 1) * LOW),
        (f"{LOAD} add.u32 %r2, %r2, 5; shl.b32 %r2, %r2, 1;", 2 * (I + 5) * LOW),
        # a vector of which one part was written; the first threads of each row of 4
        ("and.b32 %r12, %r1, 60; mov.u32 %r10, buf; mad.lo.u32 %r10, %r12, 4, %r10;"
         " ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r10];", I // 4 * 4 * LOW),
        # on through a shuffle, and through shared memory once more
        (f"{LOAD} shfl.sync.idx.b32 %r2, %r2, 7, 31, -1; setp.lt.u32 %p1, %r1, 32;", np.where(I < 32, 7, 0)),
        (f"{LOAD} st.shared.b32 [%r11], %r2; bar.sync 0; ld.shared.b32 %r2, [%r11];", I * LOW),
        # overwritten before it is used, in memory and in the register
        (f"{LOAD} st.shared.b32 [%r11], %r2; st.shared.b32 [%r11], %r1; ld.shared.b32 %r2, [%r11];"
         " setp.lt.u32 %p1, %r1, 64;", I),
        (f"{LOAD} mov.u32 %r2, 4; setp.lt.u32 %p1, %r1, 64;", np.full(64, 4)),
        # in a loop, the marks of which begin in its first round
        (f"mov.u32 %r5, 0; mov.u32 %r6, 0; L: {LOAD} add.u32 %r6, %r6, %r2; add.u32 %r5, %r5, 1;"
         " setp.lt.u32 %p3, %r5, 3; @%p3 bra L; mov.u32 %r2, %r6;", 3 * I * LOW),
    ],
)  # fmt: skip
def test_unwritten_shared_memory_may_be_loaded_when_it_goes_nowhere(lines: str, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(through_shared(lines, "@%p1 " + STORE), wanted)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("lines", "store", "lane"),
    [
        (LOAD, STORE, 20),
        ("ld.shared.b32 %r10, [%r10]; mov.u32 %r2, %r10;", STORE, 20),
        (f"@%p1 mov.u32 %r2, 7; {LOAD} add.u32 %r2, %r2, 1;", STORE, 20),
        (f"{LOAD} add.u32 %r2, %r2, 5;", STORE, 20),
        (f"{LOAD} setp.eq.u32 %p2, %r2, 0; @%p2 bra A; A: mov.u32 %r2, 1;", STORE, 20),
        (f"{LOAD} mad.wide.u32 %rd2, %r2, 4, %rd1; mov.u32 %r2, 1;", STORE, 20),
        (f"{LOAD} atom.shared.add.u32 %r3, [%r11], %r2; mov.u32 %r2, 1;", STORE, 20),
        # the load of the thread that uses it is named, or else the kernel's first
        (f"{LOAD} st.shared.b32 [%r11], %r2; bar.sync 0; ld.shared.b32 %r2, [%r11];", STORE, 20),
        (f"@!%p1 bra A; mov.u32 %r2, 0; bra B; A: {LOAD} B: shfl.sync.idx.b32 %r2, %r2, 25, 31, -1;", "@%p1 " + STORE,
         20),
    ],
)  # fmt: skip
def test_use_of_unwritten_shared_memory_names_the_load(lines: str, store: str, lane: int) -> None:
    with pytest.raises(Uninitialized, match="load of shared memory that nothing has written: offset") as error:
        through_shared(lines, store)
    place = error.value.place
    assert place is not None and (place.warp, place.lane) == (0, lane)
    assert place.ptx_text.startswith("ld.shared")


@pytest.mark.emulator
def test_marks_of_shared_memory_do_not_survive_into_the_next_wave() -> None:
    """Half of the CTAs leave their memory unwritten; the others of a later wave still find what they wrote."""
    out = np.zeros((2000, 64), np.uint32)
    body = f"""{START} .shared .align 16 .b32 buf[64]; mov.u32 %r7, %ctaid.x; and.b32 %r8, %r7, 1;
    setp.eq.u32 %p2, %r8, 0; mov.u32 %r10, buf; mad.lo.u32 %r10, %r1, 4, %r10; @%p2 st.shared.b32 [%r10], %r7;
    {LOAD} mad.wide.u32 %rd2, %r7, 256, %rd2; @%p2 {STORE}"""
    run(kernel(body), out, grid=(2000, 1, 1), block=(64, 1, 1))
    cta = np.arange(2000)[:, None]
    np.testing.assert_array_equal(out, np.where(cta % 2 == 0, cta, 0) + 0 * I)


# two CTAs; %r1 is the rank, and only threads 0 to 19 of each load a value into %r3; each sends its value to the other
SEND = f"""{START} .shared .align 16 .b32 buf[64]; .shared .align 16 .b32 there[64]; .shared .align 8 .b64 bar;
mov.u32 %r20, %cluster_ctarank; xor.b32 %r21, %r20, 1; mov.u32 %r22, bar;
mad.wide.u32 %rd2, %r20, 256, %rd2; mov.u32 %r10, buf; mad.lo.u32 %r10, %r1, 4, %r10;
mov.u32 %r11, there; mad.lo.u32 %r11, %r1, 4, %r11; setp.eq.u32 %p5, %r1, 0;
@%p5 mbarrier.init.shared.b64 [%r22], 1; @%p5 fence.mbarrier_init.release.cluster;
@%p5 mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r22], 256;
@%p1 st.shared.b32 [%r10], %r1; bar.sync 0; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ld.shared.b32 %r3, [%r10]; mapa.shared::cluster.u32 %r23, %r11, %r21; mapa.shared::cluster.u32 %r24, %r22, %r21;
st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r23], %r3, [%r24]; {wait("%r22")}
ld.shared.b32 %r2, [%r11]; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""


def exchanged(store: str) -> np.ndarray:
    out = np.zeros((2, 64), np.uint32)
    run(kernel(f"{SEND}\n{store}"), out, grid=(2, 1, 1), cluster=(2, 1, 1), block=(64, 1, 1))
    return out


def test_unwritten_values_may_be_sent_to_another_cta() -> None:
    """A row beyond the matrix goes through st.async, as in reductions over clusters; nobody stores its sum."""
    np.testing.assert_array_equal(exchanged("@%p1 " + STORE), np.broadcast_to(np.where(LOW, I, 0), (2, 64)))


@pytest.mark.emulator
@pytest.mark.parametrize("policy", ["late", "early"])
def test_use_of_an_unwritten_value_from_another_cta(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_ASYNC", policy)
    with pytest.raises(Uninitialized, match=r"load of shared memory that nothing has written: offset \d+"):
        exchanged(STORE)


@cute.kernel
def rows_kernel(x: cute.Tensor, y: cute.Tensor, m: cutlass.Int32, wrong: cutlass.Constexpr):
    """Two rows of 32 per CTA: load to shared memory what exists, sum each row by shuffles, store what exists."""
    tid, _, _ = cute.arch.thread_idx()
    bid, _, _ = cute.arch.block_idx()
    tile = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(64), 16)
    row = bid * 2 + tid // 32
    if row < m:
        tile[tid] = x[row, tid % 32]
    cute.arch.sync_threads()
    total = tile[tid]
    for i in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << i)
    tile[tid] = total
    cute.arch.sync_threads()
    if row < m + (1 if wrong else 0) and tid % 32 == 0:
        y[row] = tile[tid]


@cute.jit
def rows(x: cute.Tensor, y: cute.Tensor, m: cutlass.Int32, wrong: cutlass.Constexpr):
    rows_kernel(x, y, m, wrong).launch(grid=(2, 1, 1), block=(64, 1, 1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rows_beyond_a_matrix_may_hold_nothing(device: str) -> None:
    x = torch.arange(96, dtype=torch.float32, device=device).reshape(3, 32)
    y = torch.zeros(4, device=device)
    rows(from_dlpack(x), from_dlpack(y), 3, False)
    np.testing.assert_array_equal(y.cpu().numpy(), [*np.arange(96.0).reshape(3, 32).sum(1), 0])


@pytest.mark.emulator
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_row_beyond_the_matrix_that_is_stored_names_the_load() -> None:
    x, y = torch.ones(3, 32), torch.zeros(4)
    with pytest.raises(Uninitialized) as error:
        rows(from_dlpack(x), from_dlpack(y), 3, True)
    place = error.value.place
    assert place is not None and (place.cta, place.warp) == ((1, 0, 0), 1)
    assert "tile[tid]" in place.source_text


@cute.kernel
def ragged_kernel(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, wrong: cutlass.Constexpr):
    tid, _, _ = cute.arch.thread_idx()
    fragment = cute.make_rmem_tensor(cute.make_layout(4), cutlass.Float32)
    for j in cutlass.range_constexpr(4):
        if tid * 4 + j < n:
            fragment[j] = x[tid * 4 + j]
    result = fragment.load() * 2.0
    fragment.store(result)
    for j in cutlass.range_constexpr(4):
        if tid * 4 + j < n + (1 if wrong else 0):
            y[tid * 4 + j] = fragment[j]


@cute.jit
def ragged(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, wrong: cutlass.Constexpr):
    ragged_kernel(x, y, n, wrong).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_a_fragment_that_is_loaded_and_stored_under_a_predicate(device: str) -> None:
    x = torch.arange(128, dtype=torch.float32, device=device)
    y = torch.zeros(128, device=device)
    ragged(from_dlpack(x), from_dlpack(y), 101, False)
    np.testing.assert_array_equal(y.cpu().numpy(), np.where(np.arange(128) < 101, 2 * np.arange(128), 0))


@pytest.mark.emulator
def test_a_predicate_that_stores_more_than_was_loaded() -> None:
    x, y = torch.arange(128, dtype=torch.float32), torch.zeros(128)
    with pytest.raises(Uninitialized) as error:
        ragged(from_dlpack(x), from_dlpack(y), 101, True)
    place = error.value.place
    assert place is not None and (place.warp, place.lane) == (0, 25)
    assert "y[tid * 4 + j] = fragment[j]" in place.source_text
