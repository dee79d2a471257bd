"""From kernel to kernel, and around WGMMA."""

from __future__ import annotations

import torch

from cutetut.emulator.errors import EmulatorWarning, InFlight, MissingBarrier
from tests.emulator.mutants import Case
from tests.emulator.ordering.model import NOTHING, RACE, Harmless, Kernel, Mistake, numbers


def _two_launches() -> Case:
    x = numbers(3, 64)
    return [x, torch.zeros_like(x), torch.zeros_like(x)], (x.double() + 1).flip(1)


def _small(*shape: int) -> torch.Tensor:
    return (numbers(*shape) * 7 % 5 - 2).half()


def _with_bias() -> Case:
    a, b, bias = _small(64, 64), _small(64, 64), numbers(64)
    return [a, b, bias, torch.zeros(64, 64)], a.double() @ b.double().T + bias.double()


def _two_consumers() -> Case:
    a, b = _small(128, 320), _small(64, 320)
    return [a, b, torch.zeros(128, 64, dtype=torch.float16)], a.double() @ b.double().T


KERNELS = {
    "launches": Kernel("order_launches", "run", _two_launches),
    "bias": Kernel("order_wgmma", "run", _with_bias),
    "consumers": Kernel("two_consumers", "run", _two_consumers),
}

# a warning where the other warpgroup happens to have waited for its WGMMA: NVIDIA's fmha with fp8 relies on that
BY_CHANCE: tuple[type[Exception], ...] = (MissingBarrier, InFlight, EmulatorWarning)
WAIT, READS, GEMM = "# for the first kernel", "mY[cta, tid] = mT", "cute.gemm(tiled_mma"
READ_ONLY = (
    'mY[cta, tid] = cute.arch.inline_ptx("ld.global.nc.f32 {$w0}, [{$r0}];", write_only_types=[cutlass.Float32], '
    "read_only_args=[(mT.iterator + (THREADS * cta + place)).toint()])"
)
MISTAKES = {
    "second_kernel_does_not_wait": Mistake(
        "launches", ((WAIT, NOTHING),), RACE, ("mT[cta, tid] = mX", READS), new=True
    ),
    "second_kernel_waits_too_late": Mistake(
        "launches", ((WAIT, NOTHING), (READS, f"{READS}[cta, place]; cute.arch.griddepcontrol_wait()")),
        RACE, ("mT[cta, tid] = mX", READS), new=True,
    ),
    "second_kernel_reads_only_and_does_not_wait": Mistake(
        "launches", ((WAIT, NOTHING), (READS, READ_ONLY)), RACE, ("mT[cta, tid] = mX", "mY[cta, tid] = cute.arch")
    ),
    "waits_for_wgmma_only": Mistake(
        "bias", (("# the bias is there", NOTHING),), RACE, ("# by two warps", "accumulators[i] + tCsBias[i]"), new=True
    ),
    "epilogue_over_a_stage": Mistake(
        "consumers", (("# both have read", NOTHING),), BY_CHANCE, (GEMM, "cute.autovec_copy(narrow,"), new=True
    ),
    "epilogue_over_a_stage_after_half_a_barrier": Mistake(
        "consumers", (("# both have read", "cute.arch.barrier(barrier_id=2 + consumer, number_of_threads=128)"),),
        BY_CHANCE, (GEMM, "cute.autovec_copy(narrow,"), new=True,
    ),
}  # fmt: skip

HARMLESS: Harmless = {
    "second_kernel_starts_after_the_first": ("launches", ((WAIT, NOTHING), ("EARLY = True", "EARLY = False"))),
    "second_kernel_reads_only_what_it_has_waited_for": ("launches", ((READS, READ_ONLY),)),
    "second_kernel_reads_something_else_first": (
        "launches",
        (("place = THREADS", "place = THREADS - 1 - tid; mY[cta, tid] = cutlass.Float32(-1.0)"),),
    ),
}
