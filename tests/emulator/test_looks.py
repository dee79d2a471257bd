"""A wait that looks at its flag once before its loop: what orders the code behind it is what both looks do."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import MissingBarrier
from tests.emulator.harness import kernel, run

pytestmark = pytest.mark.emulator

ACQUIRE, RELAXED, NARROW = "acquire.gpu", "relaxed.gpu", "acquire.cta"
FENCE = "fence.acq_rel.gpu;"


def hand_over(before: str, within: str, behind: str = "", skips: str = "BEHIND", last: bool = False) -> int:
    """CTA 0 writes a value and raises a flag, for which CTA 1 waits; the value that CTA 1 reads.

    before, within: how the looks before and in the loop load; behind: what follows the wait; skips: where the first
    look leads if the flag is up; last: CTA 0 comes so late that only the loop finds the flag raised, as without delay.
    """
    delay = "mov.u32 %r6, 0; D: add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 40; @%p4 bra D;" if last else ""
    out = np.zeros(4, np.uint32)
    run(kernel(f"""ld.param.b64 %rd1, [p0]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 1; @%p1 bra TAKE;
    {delay} mov.u32 %r2, 7; st.global.b32 [%rd1], %r2; mov.u32 %r3, 1; st.release.gpu.global.b32 [%rd1+4], %r3; bra END;
    TAKE: ld.{before}.global.b32 %r4, [%rd1+4]; setp.ne.u32 %p2, %r4, 0; @%p2 bra {skips};
    LOOP: ld.{within}.global.b32 %r4, [%rd1+4]; setp.eq.u32 %p2, %r4, 0; @%p2 bra LOOP;
    BEHIND: {behind} ld.global.b32 %r5, [%rd1]; st.global.b32 [%rd1+8], %r5;
    END:"""), out, grid=(2, 1, 1), block=(1, 1, 1))  # fmt: skip
    return int(out[2])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("looks", [(RELAXED, ACQUIRE), (ACQUIRE, RELAXED), (NARROW, ACQUIRE), (ACQUIRE, NARROW)])
def test_the_weaker_look_counts(looks: tuple[str, str], last: bool) -> None:
    with pytest.raises(MissingBarrier, match="nothing orders the two"):
        hand_over(*looks, last=last)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("before", "within", "behind", "skips"),
    [
        (ACQUIRE, ACQUIRE, "", "BEHIND"),
        (RELAXED, ACQUIRE, FENCE, "BEHIND"),
        (RELAXED, RELAXED, FENCE, "BEHIND"),
        (RELAXED, RELAXED, "ld.acquire.gpu.global.b32 %r4, [%rd1+4];", "BEHIND"),
        (RELAXED, ACQUIRE, "", "END"),  # if the flag is up the value is not read
    ],
)
def test_waits_that_are_right(before: str, within: str, behind: str, skips: str, last: bool) -> None:
    assert hand_over(before, within, behind, skips, last) in ((0, 7) if skips == "END" else (7,))
