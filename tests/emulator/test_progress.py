"""Long launches say how far they are, and Ctrl-C ends them."""

from __future__ import annotations

import io
import signal

import numpy as np
import pytest

from cutetut.emulator import launch, ptx
from cutetut.emulator.machine.memory import GlobalMemory
from cutetut.emulator.progress import Progress
from tests.emulator.harness import kernel, run

pytestmark = pytest.mark.emulator


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(out: io.StringIO, *moments: tuple[float, int]) -> str:
    """What is written when so many of 64 CTAs are done at these times."""
    times = iter([0.0, *(time for time, _ in moments)])
    progress = Progress("gemm", 64, out, lambda: next(times))
    for _, done in moments:
        progress.at(done)
    progress.close()
    return out.getvalue()


@pytest.fixture(autouse=True)
def not_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTETUT_PROGRESS", raising=False)


def test_a_short_launch_says_nothing() -> None:
    assert told(io.StringIO(), (1.0, 10), (4.9, 60)) == "" == told(Terminal(), (4.9, 60))


def test_lines_come_at_growing_intervals() -> None:
    moments = [(second, second) for second in range(1, 45)]
    lines = told(io.StringIO(), *moments).splitlines()
    assert lines[0] == "cutetut: gemm: 5 of 64 CTAs done after 5 s, about 59 s left"
    assert [line.split(" after ")[1].split(" s")[0] for line in lines] == ["5", "10", "20", "40"]


def test_without_a_cta_that_is_done_there_is_no_estimate() -> None:
    assert told(io.StringIO(), (6.0, 0)) == "cutetut: gemm: 0 of 64 CTAs done after 6 s\n"


def test_on_a_terminal_one_line_is_written_again_and_goes() -> None:
    text = told(Terminal(), (5.0, 1), (5.1, 2), (5.6, 32))
    assert "\n" not in text and text.count("\r\x1b[K") == 3 and text.endswith("\r\x1b[K")
    assert "gemm: 1 of 64" in text and "gemm: 2 of 64" not in text and "gemm: 32 of 64" in text


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTETUT_PROGRESS", "0")
    assert told(io.StringIO(), (6.0, 1)) == "" == told(Terminal(), (6.0, 1))


def test_a_launch_reports_its_ctas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As if every launch were long."""
    monkeypatch.setattr("cutetut.emulator.progress.FIRST", 0.0)
    loop = "mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 300; @%p1 bra L;"
    run(kernel(loop), np.zeros(1, np.uint32), grid=(24, 1, 1), block=(1024, 1, 1))
    said = capsys.readouterr().err
    assert "cutetut: k: " in said and " of 24 CTAs done after 0 s" in said


def test_ctrl_c_ends_a_launch_and_leaves_nothing_behind() -> None:
    module = ptx.parse(kernel("L: add.u32 %r1, %r1, 1; bra L;"))
    memory, data = GlobalMemory(), np.zeros(4, np.uint32)
    memory.add(data.ctypes.data, data.nbytes, "p0")
    before = len(memory.starts)

    def again() -> None:
        launch.launch(module, "k", grid=(1, 1, 1), block=(32, 1, 1), memory=memory,
                      params=[int(data.ctypes.data).to_bytes(8, "little")])  # fmt: skip

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                again()
            assert len(memory.starts) == before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
