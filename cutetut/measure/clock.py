"""The clock of the SMs while kernels run: their cycles over the nanoseconds of the GPU's timer, from two readings.

`nvidia-smi` says what a clock is at a moment, and takes longer to start than a burst of launches lasts. Here a small
kernel before the launches and one after them read, on each SM, `clock64`, which counts the SM's cycles, and
`globaltimer`, which counts nanoseconds and is one for the whole GPU. In between, the SM had this many cycles per
nanosecond on average.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

NOT_READ = -1


@cute.kernel
def _read_kernel(mReading: cute.Tensor) -> None:
    tid, _, _ = cute.arch.thread_idx()
    sm = cutlass.Int32(cute.arch.smid())
    if tid == 0:
        mReading[sm, 0] = cute.arch.clock64()
        mReading[sm, 1] = cute.arch.globaltimer()


@cute.jit
def _read(mReading: cute.Tensor, stream: cuda.CUstream) -> None:
    sms, _ = mReading.shape
    _read_kernel(mReading).launch(grid=(sms, 1, 1), block=(32, 1, 1), stream=stream)


class SMClock:
    """Reads the cycles of each SM of torch's current GPU, in the order of torch's current stream."""

    def __init__(self) -> None:
        sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        self._before, self._after = (torch.empty(sms, 2, dtype=torch.int64, device="cuda") for _ in range(2))
        self._compiled = cute.compile(_read, from_dlpack(self._before), self._stream())

    def begin(self) -> None:
        """Queue the reading before what is timed."""
        for reading in (self._before, self._after):
            reading.fill_(NOT_READ)
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
    """MHz from two readings, each (cycles, nanoseconds) of every SM, NOT_READ where no CTA ran: the SMs' median."""
    found = [
        1000 * (cycles - first) / (ns - begin)
        for (first, begin), (cycles, ns) in zip(before, after, strict=True)
        if NOT_READ not in (first, cycles) and ns > begin
    ]
    return round(statistics.median(found)) if found else None
