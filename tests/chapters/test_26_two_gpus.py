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
def gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    number = getattr(request, "param", 2)
    with emulate.emulated_gpu(gpus=number):
        emulate.gpus(number)
        yield


@pytest.fixture
def chapter(gpus: None) -> ModuleType:
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


@pytest.mark.parametrize(("M", "N", "K", "launches"), [(512, 128, 256, 3), (256, 64, 128, 2)])
def test_sums_are_handed_on_and_added(chapter: ModuleType, M: int, N: int, K: int, launches: int) -> None:
    assert chapter.scattered(M, N, K, launches=launches) <= 0.5  # what is handed on is rounded once more


def test_what_cannot_be_scattered_is_refused(chapter: ModuleType) -> None:
    with pytest.raises(Exception, match="not two halves of whole tiles"):
        chapter.scattered(384, 128, 128)


@pytest.mark.parametrize("S", [64, 130])
def test_ring_attention_is_attention_to_all_keys(chapter: ModuleType, S: int) -> None:
    assert chapter.ring_error(S, heads=1) <= 0.01


@pytest.mark.parametrize("gpus", [3], indirect=True)
def test_a_ring_of_three_gpus_passes_blocks_on(gpus: None) -> None:
    three = notebooks.changed(NAME, [('GPUS = ("cuda:0", "cuda:1")', 'GPUS = ("cuda:0", "cuda:1", "cuda:2")')])
    seeded = torch.Generator().manual_seed(3)
    Q, K, V = (torch.randn(1, 1, 3 * 64, 128, generator=seeded).bfloat16() for _ in range(3))
    thirds = [[t[:, :, r * 64 : (r + 1) * 64].contiguous().to(f"cuda:{r}") for r in range(3)] for t in (Q, K, V)]
    run, found = three.ring_attention(*thirds)
    run()
    three.wait()
    exact = (Q.double() @ K.double().transpose(2, 3) / 128**0.5).softmax(-1) @ V.double()
    assert (torch.cat([out.cpu() for out in found], dim=2).double() - exact).abs().max() <= 0.01


def test_without_travel_each_gpu_stays_with_its_own_keys(chapter: ModuleType) -> None:
    seeded = torch.Generator().manual_seed(4)
    Q, K, V = ([torch.randn(1, 1, 64, 128, generator=seeded).bfloat16().to(g) for g in chapter.GPUS] for _ in range(3))
    run, found = chapter.ring_attention(Q, K, V, travel=False)
    run()
    chapter.wait()
    for r in range(2):
        q, k, v = (t[r].cpu().double() for t in (Q, K, V))
        exact = (q @ k.transpose(2, 3) / 128**0.5).softmax(-1) @ v
        assert (found[r].cpu().double() - exact).abs().max() <= 0.01


def test_rows_merge_by_their_lse(chapter: ModuleType) -> None:
    seeded = torch.Generator().manual_seed(5)
    out, part = torch.randn(9, 128, generator=seeded), torch.randn(9, 128, generator=seeded).bfloat16()
    first, second = (3 * torch.randn(9, generator=seeded) for _ in range(2))
    first[3] = -torch.inf  # a row of which nothing has been seen
    weights = torch.stack([first, second]).double().softmax(0)
    exact = weights[0, :, None] * out.double() + weights[1, :, None] * part.double()
    LSE = torch.logaddexp(first.double(), second.double())
    room = [t.to("cuda:0") for t in (out, first, part, second)]
    args = chapter.as_cute(*room)
    cute.compile(chapter.merge, *args, chapter.stream(0))(*args, chapter.stream(0))
    assert (room[0].cpu().double() - exact).abs().max() <= 1e-5
    assert (room[1].cpu().double() - LSE).abs().max() <= 1e-5


READY = """    if tid == 0:
        while cute.arch.load(mTheirFlags.iterator, Int32, sem="acquire", scope="sys") < epoch:
            pass
"""
STORED = "    cute.arch.barrier(barrier_id=1, number_of_threads=PULLERS)  # all 64 have stored\n"
HANDED = 'cute.arch.store(flag, epoch, sem="release", scope="sys")'
KEPT = "    cute.arch.barrier(barrier_id=1 + tid // 128, number_of_threads=128)  # all 128 have stored\n"
READ = "        cute.arch.sync_warp()  # all lanes have read the row's LSE\n"


@pytest.mark.parametrize(
    ("old", "new", "call", "kind"),
    [
        ('SCOPE = "sys"', 'SCOPE = "gpu"', "hand_over", "narrow-scope"),
        (READY, "", "gathered", "missing-gpu-order"),
        ('epoch, sem="release", scope="sys")\n\n    warp', 'epoch, sem="release", scope="gpu")\n\n    warp', "gathered",
         "narrow-scope"),
        ('    cute.arch.fence_proxy("async.global")', "    pass", "gathered", "missing-proxy-fence"),
        (STORED, "", "gathered", "missing-proxy-fence"),
        (HANDED, HANDED.replace("sys", "gpu"), "scattered", "narrow-scope"),
        (KEPT, "", "scattered", "missing-gpu-order"),
        (READ, "", "ring_error", "missing-lane-sync"),
    ],
)  # fmt: skip
def test_mistakes_are_told(old: str, new: str, call: str, kind: str) -> None:
    broken = notebooks.changed(NAME, [(old, new)])
    with pytest.raises(EmulatorError) as caught:
        getattr(broken, call)()
    assert caught.value.kind == kind


# Each launch of `scattered` multiplies another A, so that it hands other sums on.
ANOTHER_A = [
    (
        "args.append(as_cute(a, b, C, sums, theirs, flags, their_flags))",
        "args.append([as_cute(a * (1 + i), b, C, sums, theirs, flags, their_flags) for i in range(launches)])",
    ),
    ("compile(scattered_gemm_launch, *args[0]", "compile(scattered_gemm_launch, *args[0][0]"),
    ("compiled(*args[r], Int32(r), Int32(epoch)", "compiled(*args[r][epoch - 1], Int32(r), Int32(epoch)"),
    ("(found.double() - A.double()", "(found.double() - launches * A.double()"),
]  # fmt: skip
ONE_PLACE = [("mSums[epoch % 2, tile, v, tid, None])\n    cute.arch", "mSums[0, tile, v, tid, None])\n    cute.arch"),
             ("mSums[epoch % 2, tile, v, tid, None], r", "mSums[0, tile, v, tid, None], r")]  # fmt: skip


def test_one_place_for_all_sums_is_told_where_they_differ(gpus: None) -> None:
    assert notebooks.changed(NAME, ANOTHER_A).scattered() <= 3 * 0.5
    assert notebooks.changed(NAME, ONE_PLACE).scattered() <= 0.5  # the same sums again, which harms nobody
    with pytest.raises(EmulatorError) as caught:
        notebooks.changed(NAME, [*ONE_PLACE, *ANOTHER_A]).scattered()
    assert caught.value.kind == "missing-gpu-order" and "which scattered_gemm_kernel on GPU" in str(caught.value)


def test_the_bench_measures_rounds_and_rows(chapter: ModuleType) -> None:
    measured = notebooks.load(NAME, (*notebooks.KERNEL_TAGS, "bench"))
    for home in (0, 1):
        found = measured.old_numbers("sys", home, rounds=3, numbers=(2, 64))
        assert found["old"] == 0 and found["read"] == 3 * 128
    times = {"ours": [1.0, 2.0, 4.0], "vendor": [2.0, 2.0, 12.0], "product": [1.0, 1.0, 1.0]}
    row = measured.compared("26 some GEMM", {"M": 1}, times, 4e12, "NCCL")
    assert (row["ours_tflops"], row["vendor_tflops"], row["ratio"], row["ratio_range"]) == (2.0, 2.0, 1.0, [1.0, 3.0])
    assert row["product_us"] == 1e6 and row["vendor_us"] == 2e6


def test_each_exercise_refuses_its_first_answer_and_takes_its_solution(
    chapter: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = vars(notebooks.load(NAME, (*notebooks.KERNEL_TAGS, "exercise", "solution")))
    assert {"check_best", "check_ready", "check_scopes", "check_places", "check_pieces"} <= names.keys()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("right", "not yet"))]
    assert [line.split(":")[0] for line in said] == ["not yet", "right"] * 5


WRONG = {
    "relaxed": ('sem="acquire"', 'sem="relaxed"'),
    "of one GPU": ('scope="sys"', 'scope="gpu"'),
    "one round early": ("< i - 1", "< i - 2"),
    "one place of two": ("< i - 1", "< i"),
    "before all have read": ("    cute.arch.sync_threads()  # all 128 have read\n", ""),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_hand_over_of_places_is_refused(mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {cell.id: cell.source for cell in notebooks.read(notebooks.find(NAME)).cells}
    old, new = WRONG[mistake]
    assert old in cells["ex4-solution"]
    source = cells["ex4-solution"].replace(old, new)
    notebooks.changed(NAME, [(cells["ex4-solution"], source)], (*notebooks.KERNEL_TAGS, "exercise", "solution"))
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("right", "not yet"))]
    assert said[7].startswith("not yet") and len(said) == 10


@pytest.mark.parametrize("N", [2333, 2222 * 1.05, 2222 / 1.05, 1740, None, "2222", [2222], float("nan")])
def test_where_it_pays_most_is_not_where_it_did(N: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = vars(notebooks.load(NAME, (*notebooks.KERNEL_TAGS, "exercise")))
    capsys.readouterr()
    names["check_best"](N)
    assert capsys.readouterr().out.startswith("not yet")
    for right in (2222, 2222.2, 2200, 2250):
        names["check_best"](right)
        assert capsys.readouterr().out == "right\n"


@pytest.mark.parametrize(
    "pairs", [[(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 7), (1, 6), (2, 5), (3, 3)], [(0, 7, 1, 6), (2, 5), (3, 4), ()], 3]
)
def test_wrong_pieces_are_refused(pairs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = vars(notebooks.load(NAME, (*notebooks.KERNEL_TAGS, "exercise")))
    capsys.readouterr()
    names["check_pieces"](pairs)
    assert capsys.readouterr().out.startswith("not yet")
    names["check_pieces"]([[7, 0], [3, 4], (6, 1), [5, 2]])
    assert capsys.readouterr().out.startswith("right")
