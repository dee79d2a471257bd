"""What the emulator does not report, a kernel for each, and beside it the nearest thing that it does report.

    python -m tests.emulator.unreported [--write]

The book's page about the emulator shows the record; a test asks the emulator again.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cutetut.emulator.errors import EmulatorError, EmulatorWarning
from cutetut.explore import under
from tests.emulator.harness import kernel, run, wait

FILE = Path(__file__).parent / "data" / "unreported.json"
NOTHING, WARNING = "nothing", "a warning"

BEGIN = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; shr.u32 %r2, %r0, 5; and.b32 %r3, %r0, 31; ld.param.b64 %rd1, [p0];
mad.lo.u32 %r4, %r0, 4, %r1; setp.ne.u32 %p1, %r0, 0; setp.ne.u32 %p2, %r2, 0; mov.u32 %r5, 7;"""
SMEM = ".shared .align 128 .b8 smem[1024];"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


@dataclass(frozen=True)
class Program:
    """Lines of PTX behind BEGIN, and how they are launched, with the memory that they are given."""

    lines: str
    memory: tuple[int, ...] = (0,) * 64
    threads: int = 64
    ctas: int = 1
    schedule: str = "order"

    def __call__(self) -> np.ndarray:
        """Run it; what its memory holds then."""
        memory = np.zeros(len(self.memory) + 3, np.uint32)
        memory = memory[-memory.ctypes.data // 4 % 4 :][: len(self.memory)]  # a bulk copy takes multiples of 16 bytes
        memory[:] = self.memory
        run(kernel(f"{BEGIN}\n{self.lines}", header=SMEM), memory, block=(self.threads, 1, 1), grid=(self.ctas, 1, 1),
            cluster=(self.ctas, 1, 1))  # fmt: skip
        return memory


@dataclass(frozen=True)
class Gap:
    """What is not reported and why, in words for the book; the nearest thing that is reported, and the programs."""

    what: str
    why: str
    program: Program
    nearest: str
    twin: Program
    answer: str = NOTHING


_BRANCH = """@!%p2 st.shared.b32 [%r1], %r5; ld.global.b32 %r6, [%rd1]; setp.eq.u32 %p3, %r6, 0; @%p3 bra END;
@%p2 ld.shared.b32 %r7, [%r1]; END:"""
_CLUSTER = f"""mov.u32 %r8, %cluster_ctarank; setp.ne.u32 %p3, %r8, 0; @!%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
fence.mbarrier_init.release.cluster; {MEET} @%p1 bra END; @!%p3 bra WAITS; st.global.b32 [%rd1], %r5;
mapa.shared::cluster.u32 %r9, %r1, 0; mbarrier.arrive.release.SCOPE.shared::cluster.b64 _, [%r9]; bra END;
WAITS: {wait("%r1", scope=".acquire.cta")} ld.global.b32 %r6, [%rd1]; END: {MEET}"""
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r1+512];"
_REFILL = f"""@!%p1 mbarrier.init.shared::cta.b64 [%r1+512], 1; fence.mbarrier_init.release.cluster;
st.shared.b32 [%r4], %r5; bar.sync 0; ld.shared.b32 %r6, [%r4]; BARRIER @%p1 bra END;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+512], 256; FENCE {_BULK} add.u32 %r9, %r1, 512; END: bar.warp.sync -1;
@%p1 bra OUT; {wait("%r9")} OUT:"""
_SAME = "mad.lo.u32 %r6, %r2, FACTOR, 5; setp.ne.u32 %p3, %r3, 0; @!%p3 st.global.b32 [%rd1], %r6;"
_SHUFFLED = """st.shared.b32 [%r4], %r5; bar.warp.sync -1; xor.b32 %r6, %r4, 4; ld.shared.b32 %r7, [%r6];
BETWEEN st.shared.b32 [%r4], %r3;"""
_TWO_PHASES = """@!%p1 mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
setp.ne.u32 %p3, %r3, 0; @%p3 bra END; @!%p2 bra WAITS; mbarrier.arrive.shared::cta.b64 _, [%r1];
mbarrier.arrive.shared::cta.b64 _, [%r1]; bra END;
WAITS: L: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r1], 0; @!%p5 bra L; END:"""
_STORE = """st.shared.b32 [%r4], %r5; fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256; cp.async.bulk.commit_group; BEHIND END:"""
_COPIED = """mad.wide.u32 %rd2, %r0, 4, %rd1; FILL bar.sync 0; @%p1 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%rd1+256], [%r1], 256;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; END:"""
_ASYNC = "cp.async.ca.shared.global [%r4], [%rd2], 4; cp.async.commit_group; cp.async.wait_group 0;"
_COPIED_OVER = f"""@!%p1 mbarrier.init.shared::cta.b64 [%r1+512], 1; fence.mbarrier_init.release.cluster;
st.shared.b32 [%r4], %r5; bar.warp.sync -1; ld.shared.b32 %r6, [%r4]; BETWEEN @%p1 bra END;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+512], 256; {_BULK} END: bar.warp.sync -1;
add.u32 %r9, %r1, 512; {wait("%r9")}"""
_FLAGS = """setp.ne.u32 %p3, %r3, 0; @%p3 bra END; mul.lo.u32 %r6, %r2, 4; cvt.u64.u32 %rd2, %r6;
add.u64 %rd3, %rd1, %rd2; xor.b32 %r7, %r6, 4; cvt.u64.u32 %rd2, %r7; add.u64 %rd4, %rd1, %rd2;
stSTRONG.global.b32 [%rd3], %r5; ldSTRONG.global.b32 %r8, [%rd4]; st.global.b32 [%rd3+8], %r8; END:"""


def _with(lines: str, **words: str) -> str:
    for name, word in words.items():
        lines = lines.replace(name, word)
    return lines


def gaps() -> dict[str, Gap]:
    """All of them, by a name."""
    return {
        "other inputs": Gap(
            "a race in a branch that this run does not take",
            "order is judged along the branches that were taken, and by the values that flags had when they were read",
            Program(_BRANCH), "the same with an input for which the branch is taken", Program(_BRANCH, (1,) * 64),
        ),
        "weak memory": Gap(
            "two threads that store to one location each and load the other's, all relaxed: on a GPU both may load the "
            "old value",
            "strong accesses are no race, and here a load always returns the value stored last",
            Program(_with(_FLAGS, STRONG=".relaxed.gpu")), "the same with ordinary accesses",
            Program(_with(_FLAGS, STRONG="")),
        ),
        "scope of a wait": Gap(
            "a wait at CTA scope for an arrival at cluster scope from another CTA", "NVIDIA's kernels wait like this",
            Program(_with(_CLUSTER, SCOPE="cluster"), ctas=2),
            "an arrival at CTA scope, which tells what has been read and not what has been stored",
            Program(_with(_CLUSTER, SCOPE="cta"), ctas=2),
        ),
        "late wait": Gap(
            "a wait for a phase of an mbarrier that may come when the next phase is over, too, and then sleeps",
            "a wait knows a phase by its parity, and in this run it comes in time",
            Program(_TWO_PHASES),
            "the same under `CUTETUT_SCHEDULE=random:1`", Program(_TWO_PHASES, schedule="random:1"),
        ),
        "fence behind cp.async": Gap(
            "no proxy fence between `cp.async` and a bulk copy or WGMMA that reads what it brought",
            "the manual does not count `cp.async` to the async proxy; but CUTLASS's kernels have none there, and their "
            "results are right",
            Program(_with(_COPIED, FILL=_ASYNC), tuple(range(128))), "the same behind ordinary stores",
            Program(_with(_COPIED, FILL="st.shared.b32 [%r4], %r5;"), tuple(range(128))),
        ),
        "fence behind a load": Gap(
            "no proxy fence between loads from shared memory and the bulk copy that fills it again",
            "NVIDIA's pipelines have none there; some authors add one",
            Program(_with(_REFILL, BARRIER="bar.sync 0;", FENCE="")), "no barrier there, either",
            Program(_with(_REFILL, BARRIER="", FENCE="")),
        ),
        "the same value": Gap(
            "a store of the value that is there, or of the same value by several threads", "no result can differ",
            Program(_with(_SAME, FACTOR="0")), "stores of different values", Program(_with(_SAME, FACTOR="3")),
        ),
        "shuffle": Gap(
            "a lane overwrites what another lane of its warp loaded before the warp shuffled",
            "kernels that are right on a GPU do it, although a shuffle orders no memory",
            Program(_with(_SHUFFLED, BETWEEN="shfl.sync.bfly.b32 %r8, %r7, 1, 31, -1;"), threads=32),
            "the same without a shuffle", Program(_with(_SHUFFLED, BETWEEN=""), threads=32), WARNING,
        ),
        "copy behind a shuffle": Gap(
            "a lane starts a copy over what other lanes of its warp loaded before the warp shuffled",
            "the loads have been issued by then, although a shuffle orders no memory",
            Program(_with(_COPIED_OVER, BETWEEN="shfl.sync.bfly.b32 %r8, %r6, 1, 31, -1;"), threads=32),
            "the same without a shuffle", Program(_with(_COPIED_OVER, BETWEEN=""), threads=32),
        ),
        "exit": Gap(
            "a CTA exits while its bulk store may still read its shared memory",
            "kernels that are right on a GPU do it", Program(_with(_STORE, BEHIND="")),
            "the thread overwrites that memory", Program(_with(_STORE, BEHIND="st.shared.b32 [%r1], %r0;")), WARNING,
        ),
    }  # fmt: skip


def answer(program: Program) -> str:
    """What the emulator says of a program: NOTHING, WARNING or the type of its error."""
    with warnings.catch_warnings(record=True) as told, under("late", program.schedule):
        warnings.simplefilter("always")
        try:
            program()
        except EmulatorError as error:
            return type(error).__name__
    return WARNING if any(issubclass(w.category, EmulatorWarning) for w in told) else NOTHING


def record() -> list[dict[str, str]]:
    """A row for each gap: what it is and why, what is said of it, the nearest that is reported, and as what error."""
    return [
        {"what": gap.what, "why": gap.why, "answer": answer(gap.program), "nearest": gap.nearest,
         "error": answer(gap.twin)}
        for gap in gaps().values()
    ]  # fmt: skip


if __name__ == "__main__":
    rows = record()
    for row in rows:
        print(f"{row['answer']:10} {row['what']}\n{row['error']:10} {row['nearest']}\n")
    if "--write" in sys.argv[1:]:
        FILE.write_text(json.dumps(rows, indent=1) + "\n")
