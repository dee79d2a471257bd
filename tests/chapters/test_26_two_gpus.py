"""Chapter 26: its kernels on two emulated GPUs against float64, what its mistakes are told as, and its exercises."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut import emulate
from cutetut.course import notebooks
from cutetut.emulator.errors import EmulatorError

pytestmark = pytest.mark.emulator
NAME = "26_two_gpus"


@pytest.fixture(autouse=True)
def two_gpus() -> Iterator[None]:
    with emulate.emulated_gpu(gpus=2):
        emulate.gpus(2)
        yield


@pytest.fixture
def chapter(two_gpus: None) -> ModuleType:
    return notebooks.load(NAME)


@pytest.mark.parametrize("source", ["cuda:0", "cuda:1"])
def test_pull_copies_every_number(chapter: ModuleType, source: str) -> None:
    x = torch.randn(3 * chapter.PIECE, device="cpu").to(source)
    y = torch.zeros(3 * chapter.PIECE, device="cuda:0")
    X, Y = (from_dlpack(t, assumed_align=16) for t in (x, y))
    cute.compile(chapter.pull, X, Y, 2, chapter.stream(0))(X, Y, chapter.stream(0))
    assert torch.equal(x.cpu(), y.cpu())


@pytest.mark.parametrize("schedule", ["order", "random:1", "random:2"])
def test_the_flag_hands_over(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    monkeypatch.setenv("CUTETUT_SCHEDULE", schedule)
    assert chapter.hand_over()


@pytest.mark.parametrize(("M", "N", "K"), [(512, 128, 128), (256, 192, 384)])
def test_the_product_is_right_on_both_gpus(chapter: ModuleType, M: int, N: int, K: int) -> None:
    assert chapter.gathered(M, N, K) <= 0.25  # half of bfloat16's last bit, of results up to 128


@pytest.mark.parametrize(("M", "N"), [(384, 128), (512, 192)])
def test_what_is_not_whole_is_refused(chapter: ModuleType, M: int, N: int) -> None:
    with pytest.raises(Exception, match="are not two halves"):
        chapter.gathered(M, N, 128)


READY = """    if tid == 0:
        while cute.arch.load(mTheirFlags.iterator, Int32, sem="acquire", scope="sys") < epoch:
            pass
"""
STORED = "    cute.arch.barrier(barrier_id=1, number_of_threads=PULLERS)  # all 64 have stored\n"


@pytest.mark.parametrize(
    ("old", "new", "call", "kind"),
    [
        ('SCOPE = "sys"', 'SCOPE = "gpu"', "hand_over", "narrow-scope"),
        (READY, "", "gathered", "missing-gpu-order"),
        ('epoch, sem="release", scope="sys"', 'epoch, sem="release", scope="gpu"', "gathered", "narrow-scope"),
        ('    cute.arch.fence_proxy("async.global")', "    pass", "gathered", "missing-proxy-fence"),
        (STORED, "", "gathered", "missing-proxy-fence"),
    ],
)
def test_mistakes_are_told(old: str, new: str, call: str, kind: str) -> None:
    broken = notebooks.changed(NAME, [(old, new)])
    with pytest.raises(EmulatorError) as caught:
        getattr(broken, call)()
    assert caught.value.kind == kind


def test_each_exercise_refuses_its_first_answer_and_takes_its_solution(
    chapter: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = vars(notebooks.load(NAME, (*notebooks.KERNEL_TAGS, "exercise", "solution")))
    assert {"check_best", "check_ready", "check_scopes"} <= names.keys()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("right", "not yet"))]
    assert [line.split(":")[0] for line in said] == ["not yet", "right"] * 3
