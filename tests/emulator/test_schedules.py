"""Schedules that are drawn: correct kernels stay right, and a kernel that only happens to be right does not."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from cutetut.emulator.errors import EmulatorError, LaunchError, MissingBarrier
from cutetut.emulator.machine.schedule import Schedule
from cutetut.explore import Failure, first_failure, under
from tests.emulator.harness import kernel, run
from tests.emulator.mutants import CASES, compiled, load
from tests.emulator.structured import VARIABLES, Maker, interpret, to_ptx
from tests.seeds import seeds

pytestmark = pytest.mark.emulator
SEEDS = [f"random:{seed}" for seed in range(3)]


@pytest.mark.parametrize("name", CASES)
def test_correct_kernels_under_drawn_schedules(
    name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder, device: str
) -> None:
    arguments, want = CASES[name]()
    launch, tensors = compiled(load(name, tmp_path).module, arguments, device)

    def attempt() -> bool:
        tensors[-1].fill_(-1)
        launch()
        return torch.equal(tensors[-1].cpu().double(), want)

    failure = first_failure(attempt, ("late", "random:1"), SEEDS)
    assert failure is None, failure


@pytest.mark.parametrize("seed", seeds(10))
def test_random_programs_under_drawn_schedules(seed: int) -> None:
    program, out = Maker(np.random.default_rng(seed)).program(), np.zeros((96, VARIABLES), np.uint32)
    with under("late", f"random:{seed}"):
        run(kernel(to_ptx(program, 96)), out, block=(96, 1, 1))
    np.testing.assert_array_equal(out, interpret(program, 96))


# Each warp draws a ticket, and stores it at its own place.
TICKETS = """ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31;
mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mad.lo.u32 %r3, %r5, %r6, %r1; shr.u32 %r3, %r3, 5;
setp.ne.u32 %p1, %r2, 0; @%p1 bra END; atom.global.add.u32 %r4, [%rd1], 1;
mad.wide.u32 %rd3, %r3, 4, %rd2; st.global.b32 [%rd3], %r4; END:"""


def tickets(ctas: int = 1) -> list[int]:
    out = np.zeros(4 * ctas, np.uint32)
    run(kernel(TICKETS, 2), np.zeros(1, np.uint32), out, block=(128, 1, 1), grid=(ctas, 1, 1))
    return out.tolist()


def test_a_kernel_that_is_right_in_one_order_only() -> None:
    """Nothing says that warp 0 draws the first ticket."""
    assert tickets() == [0, 1, 2, 3]
    failure = first_failure(lambda: tickets() == [0, 1, 2, 3])
    assert failure is not None and failure.error is None and failure.schedule.startswith("random:")
    assert f"CUTETUT_ASYNC={failure.moments} CUTETUT_SCHEDULE={failure.schedule}" in str(failure)
    with under(failure.moments, failure.schedule):
        again = [tickets() for _ in range(2)]
    assert again[0] == again[1] != [0, 1, 2, 3]
    assert first_failure(lambda: sorted(tickets()) == [0, 1, 2, 3]) is None


def test_ctas_start_in_any_order() -> None:
    firsts = set()
    for seed in range(8):
        with under("late", f"random:{seed}"):
            drawn = tickets(8)
        assert sorted(drawn) == list(range(32))
        firsts.add(drawn.index(0) // 4)
    assert len(firsts) > 2


ASKED = """mov.u32 %r1, bar; mov.u32 %r0, %tid.x; setp.ge.u32 %p1, %r0, 32; and.b32 %r2, %r0, 31;
setp.ne.u32 %p2, %r0, 0; @!%p2 mbarrier.init.shared::cta.b64 [%r1], 1; bar.sync 0; @!%p1 bra ASK;
setp.ne.u32 %p3, %r2, 0; @!%p3 mbarrier.arrive.shared::cta.b64 _, [%r1]; bra END;
ASK: {} END:"""


def test_a_peek_hears_no_now_and_then() -> None:
    """The result depends on a single look; a loop that looks until the phase is complete is always right."""
    peek = "mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], 0; selp.u32 %r3, 1, 0, %p4;"
    loop = "L: mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], 0; @!%p4 bra L; mov.u32 %r3, 1;"
    store = "ld.param.b64 %rd1, [p0]; @!%p2 st.global.b32 [%rd1], %r3;"

    def answer(lines: str) -> int:
        out = np.full(1, 7, np.uint32)
        text = kernel(ASKED.format(f"{lines} {store}"), header=".shared .align 8 .b64 bar;")
        run(text, out, block=(64, 1, 1))
        return int(out[0])

    schedules = [f"random:{seed}" for seed in range(12)]
    for lines, answers in ((peek, {0, 1}), (loop, {1})):
        found = set()
        for schedule in schedules:
            with under("late", schedule):
                found.add(answer(lines))
        assert found == answers


def test_what_a_thread_did_itself_it_knows() -> None:
    """A phase that the asking warp has completed alone is complete under every schedule."""
    lines = """mov.u32 %r1, bar; mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.arrive.shared::cta.b64 _, [%r1];
    mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0; selp.u32 %r2, 1, 0, %p1; ld.param.b64 %rd1, [p0];
    st.global.b32 [%rd1], %r2;"""
    for seed in range(30):
        out = np.zeros(1, np.uint32)
        with under("late", f"random:{seed}"):
            run(kernel(lines, header=".shared .align 8 .b64 bar;"), out, block=(1, 1, 1))
        assert out[0] == 1


def test_lanes_that_spin_starve_nobody() -> None:
    """Lane 0 of each warp waits for a flag that the last warp sets after a long loop."""
    lines = """ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; setp.ge.u32 %p1, %r1, 96;
    @%p1 bra WORK; setp.ne.u32 %p2, %r2, 0; @%p2 bra END;
    L: ld.acquire.gpu.global.b32 %r3, [%rd1]; setp.eq.u32 %p3, %r3, 0; @%p3 bra L; bra END;
    WORK: mov.u32 %r4, 0; M: add.u32 %r4, %r4, 1; setp.lt.u32 %p4, %r4, 50; @%p4 bra M;
    setp.ne.u32 %p5, %r2, 0; @%p5 bra END; st.release.gpu.global.b32 [%rd1], %r4; END:"""
    for schedule in SEEDS:
        flag = np.zeros(1, np.uint32)
        with under("late", schedule):
            run(kernel(lines), flag, block=(128, 1, 1))
        assert flag[0] == 50


def test_an_error_is_a_failure_and_the_environment_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTETUT_ASYNC", raising=False)
    monkeypatch.setenv("CUTETUT_SCHEDULE", "order")

    def attempt() -> None:
        if os.environ["CUTETUT_ASYNC"] == "early" and os.environ["CUTETUT_SCHEDULE"] == "random:1":
            raise MissingBarrier("found")

    failure = first_failure(attempt, ("late", "early"), ("order", "random:1"))
    assert isinstance(failure, Failure) and isinstance(failure.error, EmulatorError) and failure.tried == 4
    assert str(failure).startswith("MissingBarrier: found")
    assert "CUTETUT_ASYNC" not in os.environ and os.environ["CUTETUT_SCHEDULE"] == "order"


@pytest.mark.parametrize("text", ["never", "order:1", "random:x", ""])
def test_an_unknown_schedule_is_an_error(text: str) -> None:
    with pytest.raises(LaunchError, match="order or random:SEED"):
        Schedule(text)
