"""The clock of the SMs while kernels run: their cycles over the nanoseconds of the GPU's timer, from two readings.

`nvidia-smi` says what a clock is at a moment, and takes longer to start than a burst of launches lasts. Here a small
kernel before the launches and one after them read, on each SM, `clock64`, which counts the SM's cycles, and
`globaltimer`, which counts nanoseconds and is one for the whole GPU. In between, the SM had this many cycles per
nanosecond on average.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def _read_kernel(mReading: cute.Tensor) -> None:
    cta, _, _ = cute.arch.block_idx()
    mReading[cta, 0] = cutlass.Int64(cute.arch.smid())
    mReading[cta, 1] = cute.arch.clock64()
    mReading[cta, 2] = cute.arch.globaltimer()


@cute.jit
def _read(mReading: cute.Tensor, stream: cuda.CUstream) -> None:
    ctas, _ = mReading.shape
    _read_kernel(mReading).launch(grid=(ctas, 1, 1), block=(1, 1, 1), stream=stream)


@functools.cache
def of_gpu(number: int) -> SMClock:
    """The clock of torch's GPU of this number, which must be the current one; compiled once in a process."""
    return SMClock(torch.cuda.get_device_properties(number).multi_processor_count)


class SMClock:
    """Reads the cycles of each of so many SMs of torch's current GPU, in the order of torch's current stream."""

    def __init__(self, sms: int) -> None:
        self._before, self._after = (torch.empty(sms, 3, dtype=torch.int64, device="cuda") for _ in range(2))
        self._compiled = cute.compile(_read, from_dlpack(self._before), self._stream())

    def begin(self) -> None:
        """Queue the reading before what is timed."""
        self._compiled(from_dlpack(self._before), self._stream())

    def end(self) -> None:
        """Queue the reading after it."""
        self._compiled(from_dlpack(self._after), self._stream())

    def mhz(self) -> int | None:
        """The mean clock between both readings, in MHz; None if no SM was read twice. Waits for the GPU."""
        return between(self._before.tolist(), self._after.tolist())

    def _stream(self) -> cuda.CUstream:
        return cuda.CUstream(torch.cuda.current_stream().cuda_stream)


def between(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> int | None:
    """MHz from two readings, each (SM, cycles, nanoseconds) of every CTA: the median of the SMs that both have."""
    first = {sm: (cycles, ns) for sm, cycles, ns in before}
    found = [
        1000 * (cycles - first[sm][0]) / (ns - first[sm][1])
        for sm, cycles, ns in after
        if sm in first and ns > first[sm][1]
    ]
    return round(statistics.median(found)) if found else None
