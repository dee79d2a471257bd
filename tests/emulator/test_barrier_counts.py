"""Named barriers that are used with two thread counts: that is named, not only what comes of it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cutetut.emulator.errors import Deadlock, EmulatorWarning, IllegalInstruction, MissingBarrier
from tests.emulator.harness import kernel, run

pytestmark = pytest.mark.emulator

# warp 0 is sent to FIRST; %r4 is a barrier's number that the program does not show
START = """.shared .align 4 .b32 s[32]; mov.u32 %r10, s; mov.u32 %r1, %tid.x; and.b32 %r3, %r1, 31;
mad.lo.u32 %r11, %r3, 4, %r10; mov.u32 %r4, %ctaid.x; add.u32 %r4, %r4, 5; setp.lt.u32 %p1, %r1, 32; @%p1 bra FIRST;"""


def two_warps(first: str, second: str) -> None:
    run(kernel(f"{START}\n{second}\nbra END;\nFIRST:\n{first}\nEND:"), np.zeros(1, np.uint32), block=(64, 1, 1))


@pytest.mark.parametrize("number", ["1", "%r4"])
def test_in_a_deadlock(number: str) -> None:
    with pytest.raises(Deadlock, match=r"warps \[1\] wait at barrier [15]: 32 of 64 threads") as caught:
        two_warps(f"bar.arrive {number}, 32;", f"bar.sync {number}, 64;")
    assert "arrived in other phases with a count of 32: warp 0 (PTX line" in str(caught.value)


def test_a_race_behind_a_barrier_that_the_other_warp_has_used_with_another_count() -> None:
    with pytest.raises(IllegalInstruction, match="barrier 1 is used with a count of 32 here and .* 96 elsew") as caught:
        two_warps(
            "bar.sync 1, 64; st.shared.b32 [%r11], %r1; bar.arrive 1, 96;",
            "bar.sync 1, 64; bar.sync 1, 32; ld.shared.b32 %r2, [%r11];",
        )
    report = str(caught.value)
    assert "what came of it: load of shared memory" in report or "what came of it: store to shared memory" in report
    assert "st.shared.b32" in report and "ld.shared.b32" in report and "the same number of threads" in report


def test_two_counts_on_purpose_are_not_to_blame_for_a_race() -> None:
    """Both warps meet with one count, and one of them later arrives with another, for a third warp that waits."""
    with pytest.raises(MissingBarrier, match="nothing orders the two"):
        two_warps(
            "bar.sync 1, 64; st.shared.b32 [%r11], %r1; bar.arrive 1, 96;",
            "bar.sync 1, 64; ld.shared.b32 %r2, [%r11]; bar.arrive 1, 96;",
        )


def test_a_race_beside_barriers_that_agree_is_a_race() -> None:
    with pytest.raises(MissingBarrier, match="nothing orders the two"):
        two_warps(
            "bar.sync 1, 64; bar.sync 2, 32; st.shared.b32 [%r11], %r1;",
            "bar.sync 1, 64; bar.sync 3, 32; ld.shared.b32 %r2, [%r11];",
        )


def test_at_the_exit() -> None:
    with pytest.warns(EmulatorWarning, match="barrier 1 .* count of 64 here .* 32 elsewhere; the CTA exits"):
        two_warps("bar.sync 2, 64; bar.arrive 1, 64;", "bar.sync 1, 32; bar.sync 2, 64;")


def test_two_counts_one_after_the_other_and_an_arrival_left_behind_are_no_fault() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meet = "bar.sync 1, 64; bar.sync 2, 64;"
        two_warps(f"{meet} bar.arrive 3, 64;", f"{meet} bar.sync 1, 32;")
