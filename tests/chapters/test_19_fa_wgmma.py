"""Chapter 19's attention kernel on tensor cores: against float64, its maps, its mistakes, and its exercises."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks, provenance
from cutetut.measure import bench, mistakes, records
from tests.chapters import benchmarks, contract, exercises
from tests.chapters.attentions import assert_attention, operands, visible

CHAPTER = "19_fa_wgmma"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


@pytest.fixture(scope="module")
def helpers() -> ModuleType:
    """What the chapter's other cells define besides."""
    return notebooks.load(CHAPTER, exercises.HELPER_TAGS)


def agrees(
    chapter: ModuleType, device: str, S: int, T: int, D: int, dtype: torch.dtype = torch.bfloat16, B: int = 1,
    causal: bool = False, align: str = "top-left", scale: float | None = None, cfg: Any = None,
) -> None:  # fmt: skip
    """O and LSE of one problem against float64; both start as NaN, so that a row nobody writes is seen."""
    Q, K, V = operands(device, B, 2, 1, S, T, D, dtype)
    out, LSE = torch.full_like(Q, torch.nan), torch.full(Q.shape[:3], torch.nan, device=device)
    chapter.prepare(Q, K, V, out, LSE, causal=causal, align=align, scale=scale, cfg=cfg)()
    seen = visible(Q, K, causal, T - S if align == "bottom-right" else 0, None)
    assert_attention(out, LSE, Q, K, V, seen, scale or 1 / math.sqrt(D))


@pytest.mark.parametrize("D", [32, 64, 96, 128, 160, 256])
def test_every_head_dimension(chapter: ModuleType, device: str, D: int) -> None:
    agrees(chapter, device, 70, 150, D, causal=D % 64 == 0)


@pytest.mark.parametrize("D, causal", [(128, True), (256, False)])
def test_float16(chapter: ModuleType, device: str, D: int, causal: bool) -> None:
    """Where the compiler moves conversions: it may not move them behind the fence."""
    agrees(chapter, device, 70, 150, D, torch.float16, causal=causal)


@pytest.mark.parametrize("S, T", [(1, 1), (1, 300), (65, 129), (200, 7)])
def test_every_length(chapter: ModuleType, device: str, S: int, T: int) -> None:
    agrees(chapter, device, S, T, 64, B=2)
    agrees(chapter, device, S, T, 64, causal=True)


@pytest.mark.parametrize("S, T", [(150, 60), (60, 150)])
def test_bottom_right(chapter: ModuleType, device: str, S: int, T: int) -> None:
    """With more queries than keys, the first rows see nothing: O is 0 and LSE -inf."""
    agrees(chapter, device, S, T, 64, causal=True, align="bottom-right")


@pytest.mark.parametrize("bN, stages, D", [(16, 3, 64), (48, 2, 128), (256, 1, 32)])
def test_configurations(chapter: ModuleType, device: str, bN: int, stages: int, D: int) -> None:
    agrees(chapter, device, 70, 300, D, causal=True, cfg=chapter.Config(bN, stages))


def test_scale(chapter: ModuleType, device: str) -> None:
    agrees(chapter, device, 40, 150, 64, scale=3.0)


def test_any_strides(chapter: ModuleType, device: str) -> None:
    """Parts of one packed tensor, whose other parts and whose rows behind the lengths are NaN."""
    packed = torch.full((2, 100, 2, 4 * 64), torch.nan, dtype=torch.bfloat16, device=device)
    Q, K, V = (packed[:, :n, :, 64 * i : 64 * (i + 1)].transpose(1, 2) for i, n in enumerate((90, 77, 77)))
    for view, values in zip((Q, K, V), operands(device, 2, 2, 1, 90, 77, 64, torch.bfloat16), strict=True):
        view.copy_(values)
    out, LSE = chapter.attention(Q, K, V)
    assert_attention(out, LSE, Q, K, V, visible(Q, K, False, 0, None), 0.125)


def test_nan_reaches_the_rows_that_see_it(chapter: ModuleType, device: str) -> None:
    Q, K, V = operands(device, 1, 1, 1, 150, 150, 64, torch.bfloat16)
    K[0, 0, 140] = torch.nan
    out, LSE = chapter.attention(Q, K, V, causal=True)
    rows = out.isnan().any(3)[0, 0]
    assert rows[140:].all() and not rows[:140].any() and torch.equal(rows, LSE.isnan()[0, 0])
    for value in (torch.inf, -torch.inf):
        Q, K, V = operands(device, 1, 1, 1, 20, 70, 64, torch.bfloat16)
        V[0, 0, 3, 5] = value
        out = chapter.attention(Q, K, V)[0]
        assert (out[0, 0, :, 5] == value).all() and out[0, 0, :, :5].isfinite().all()


def test_what_is_refused(chapter: ModuleType, device: str) -> None:
    good = torch.ones(1, 2, 8, 64, dtype=torch.bfloat16, device=device)
    wide = torch.ones(1, 2, 8, 288, device=device).half()
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((good, good, good.half()), {}, "all must be float16"),
        ((good[0], good, good), {}, "must be"),
        ((good, good[:, :, :0], good[:, :, :0]), {}, "without a 0"),
        ((good, good[:, :1], good[:, :1]), {}, "do not fit"),
        ((good, good.mT.contiguous().mT, good), {}, "K has strides"),
        ((good, good, good[..., :1].expand_as(good)), {}, "V has strides"),
        ((good, good[:, :, :1].expand_as(good), good), {}, "K has strides"),
        ((wide, wide, wide), {}, "head dimension is 288"),
        ((good, good, good), {"scale": 0.0}, "scale is 0.0"),
        ((good, good, good), {"scale": math.nan}, "scale is nan"),
        ((good, good, good), {"align": "left"}, "align is 'left'"),
        ((good, good, good), {"cfg": chapter.Config(bN=40)}, "multiple of 16"),
        ((good, good, good), {"cfg": chapter.Config(stages=7)}, "bytes of shared memory"),
    ]
    for arguments, options, text in cases:
        with pytest.raises((TypeError, ValueError), match=text):
            chapter.attention(*arguments, **options)
    LSE = torch.zeros(1, 2, 8, device=device)
    short = LSE[..., :4]
    for out, sums, text in ((good.half(), LSE, "O too"), (good.mT, LSE, "O has strides"), (good, short, "LSE is")):
        with pytest.raises((TypeError, ValueError), match=text):
            chapter.prepare(good, good, good, out, sums)


def test_the_kernel_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    contract.assert_one_idea(chapter.brought.tma_kernel, chapter.wgmma_kernel)


@pytest.mark.parametrize("D, bN", [(64, 128), (128, 64)])
def test_weights_never_leave_their_registers(helpers: ModuleType, D: int, bN: int) -> None:
    info = helpers.compiled(D)
    assert info.count("STS") == info.count("LDL") == info.spills == 0
    assert info.count("HGMMA") == D // 16 + bN // 16
    assert info.count("MUFU.EX2") == bN // 2 + 2  # of a thread's scores, and both rows' factors


def test_more_stages_are_fewer_ctas_and_the_same_code(helpers: ModuleType) -> None:
    infos = [helpers.compiled(64, helpers.Config(stages=stages)) for stages in (2, 3, 6)]
    assert len({info.registers for info in infos}) == 1
    assert [228 * 1024 // (info.shared_bytes + 1024) for info in infos] == [3, 2, 1]


@pytest.mark.emulator
def test_a_conversion_behind_the_fence_is_told(chapter: ModuleType) -> None:
    """What the compiler makes of the kernel's first order of lines, in float16."""
    said, _, _ = chapter.told("P made before the branch")
    assert said.startswith("MissingFence: registers of this WGMMA were written"), said
    said, wrong, _ = chapter.told("P made before the branch", ())
    assert mistakes.faultless(said) and not wrong


TOLD = {
    "scores not waited for": "InFlight: register",
    "P V not waited for": "InFlight: a copy overwrites shared memory",
    "no fence for the registers": "MissingFence: a WGMMA without any",
}
ARITHMETIC = (
    "zero-filled keys count", "a maximum of two threads", "a sum of one thread", "the sum is not corrected",
)  # fmt: skip
CONVENTION = "requested before all have read"  # CUTLASS lets one thread of a warpgroup release a stage


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["", *TOLD, *ARITHMETIC, CONVENTION])
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert {*chapter.MISTAKES} == {*TOLD, *ARITHMETIC, CONVENTION, "P made before the branch"}
    said, wrong, of = chapter.told(name, None if name else ())
    if name in TOLD:
        assert said.startswith(TOLD[name]), said
    else:
        assert mistakes.faultless(said) and (wrong > of // 4) == (name in ARITHMETIC)
        assert name in ARITHMETIC or not wrong


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["a sum of one thread", "P made before the branch"])
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in chapter.HALF:  # the emulator refuses that kernel, so the right one
        monkeypatch.setitem(chapter.MISTAKES, name, [])
    benchmarks.assert_tried(chapter, name, right=name in chapter.HALF)


@pytest.mark.emulator
def test_the_benchmark_measures_all_kernels(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: chapter.VERSIONS[name] for name in ("19 K4, 3 CTAs per SM", "19 K4, causal")}
    first, causal = few
    kernels = ["17 K1, scores in memory", "17 K2, fused", "18 K3, 2 stages", first, first, causal]  # once beside K3
    benchmarks.assert_measured(chapter, CHAPTER, kernels, {"HEADS": 1, "LENGTH": 9, "VERSIONS": few}, monkeypatch)


def test_a_step_is_counted(helpers: ModuleType) -> None:
    """Of each score a maximum, an FMA, a power and a sum at least, and no more than as much again for the rest."""
    cycles = helpers.step_cycles(64, 128)
    assert (cycles["Q Kᵀ"], cycles["P V"], cycles["powers"]) == (256, 256, 512)
    assert 4 * 64 < cycles["instructions"] < 8 * 64 + 64


def test_the_parts_of_a_step_are_clocked(helpers: ModuleType) -> None:
    """Two CTAs of four blocks: the steps but the first two and the last, in any unit of time."""
    parts = helpers.clocks_of(2, 1, 512)
    assert len(parts) == len(helpers.PARTS) and min(parts) > 0


def test_tensor_cores_cost_clock_however_busy_they_are() -> None:
    """What the verdict says of the recorded clocks of bursts: the highest without tensor cores, a tenth less with."""
    found = {row["kernel"]: row["sm_mhz"] for row in bench.against(bench.read(CHAPTER)["rows"], "cuDNN")[::2]}
    assert {clock for name, clock in found.items() if name.startswith(("17", "18"))} == {1980}
    clocks = [found[f"19 K4, {n} per SM"] for n in ("1 CTA", "2 CTAs", "3 CTAs")]
    assert [round(clock, -1) for clock in clocks] == [1790] * 3
    assert "K4 ran at 1790 with one CTA as with three" in exercises.prose(CHAPTER, "verdict-read-md")


def test_the_page_shows_what_was_measured(
    helpers: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = {"17 K1, scores in memory": 10.0, "17 K2, fused": 20.0, "18 K3, 2 stages": 25.0}
    speeds |= {"19 K4, 1 CTA per SM": 250.0, "19 K4, 2 CTAs per SM": 300.0, "19 K4, 3 CTAs per SM": 100.0}
    pictures: list[Any] = []
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    monkeypatch.setattr(provenance, "collect", lambda: dict.fromkeys(provenance.FIELDS, "a test's"))
    runs = {"1 CTA per SM": [1, 2, 3, 4, 5, 6, 7], "3 CTAs per SM": [10.0] * 7}
    records.write(CHAPTER, "clocks", {"parts": helpers.PARTS, "runs": runs})
    cells = ["stake", "predict", "recorded", "ladder", "verdict", "break-gpu"]
    speeds |= {f"19 K4, D = 128, bN = {bN}": 100.0 for bN in (64, 128)}
    benchmarks.show(helpers, CHAPTER, speeds, cells, tmp_path, monkeypatch, helpers.PAIRS, display=pictures.append)
    said = capsys.readouterr().out
    assert "100 TFLOP/s, 0.200 [" in said and len(pictures) == 1
    assert "1 CTA per SM: 250 TFLOP/s in bursts, as predicted, 231 to 346" in said
    assert "3 CTAs per SM: 100 TFLOP/s in bursts, not as predicted, 433 to 721" in said
    assert "an SM ends a step every 32227, 26855, 80566 cycles" in said and re.search(r"together +28 +70\n", said)
    assert all(f"   {unit} work in 2%, 2%, 1% of them" in said for unit in ("schedulers      ", "tensor cores    "))
    assert "19 K4, 2 CTAs per SM against 19 K4, 1 CTA per SM: 1.20 [" in said
    assert "19 K4, 3 CTAs per SM against 19 K4, 2 CTAs per SM: 0.333 [" in said and "18 K3, 2 stages: 4.00 [" in said
    assert "right  9, wrong  1, hangs" in said


# --- exercises

ANSWERS = """
def nans(*arguments):
    return float("nan")


def by_quad(t, v):
    warp, quad, pair = t // 32, t % 32 // 4, v // 2
    return [16 * warp + quad + 8 * (pair % 2), 8 * (pair // 2) + 2 * (t % 4) + v % 2]


def by_arrays(t, v):
    return np.array([(t >> 5 << 4) + (t >> 2 & 7) + (v & 2) * 4, (v >> 2 << 3) + ((t & 3) << 1) + (v & 1)])


def by_layout(t, v):
    return tuple(layouts.partition(lambda: scores_mma(96), (64, 96)).place[t, v])


def by_memory(t, v, place={}):
    if not place:
        place[0] = layouts.partition(lambda: scores_mma(96), (64, 96)).place
    return tuple(place[0][t, v])


def transposed(t, v):
    return by_quad(t, v)[::-1]


def raising(t, v):
    return 1 // 0, v


@cute.jit
def by_branch(row, bN: cutlass.Constexpr, window: cutlass.Constexpr):
    start = cutlass.Int32(0)
    if row >= window:
        start = (row - window + 1) // bN
    return start


def by_max(row, bN, window):
    return cutlass.max(row - (window - 1), 0) // bN


@cute.jit
def by_loop(row, bN: cutlass.Constexpr, window: cutlass.Constexpr):
    start = cutlass.Int32(0)
    while (start + 1) * bN <= row + 1 - window:
        start += 1
    return start


def from_zero(row, bN, window):
    return 0


def one_late(row, bN, window):
    return cutlass.max(0, row + 1 - window + bN) // bN


@cute.jit
def by_32(row, bN: cutlass.Constexpr, window: cutlass.Constexpr):
    return cutlass.max(0, row + 1 - window) // 32


@cute.jit
def one_scale(S, scale):
    for i in cutlass.range_constexpr(cute.size(S)):
        S[i] = 5.0 * cute.math.tanh(S[i] * 0.05) / 0.25


@cute.jit
def sixteen(S, scale):
    natural = scale * math.log(2.0)
    for i in cutlass.range_constexpr(16):
        S[i] = 5.0 * cute.math.tanh(S[i] * natural / 5.0) / natural


def by_vector(S, scale):
    natural = scale * 0.6931471805599453
    S.store(5.0 * cute.math.tanh(S.load() * natural / 5.0) / natural)


@cute.jit
def by_exp(S, scale):
    for i in cutlass.range_constexpr(cute.size(S)):
        e = cute.math.exp2(S[i] * scale * 0.4)
        S[i] = (5.0 - 10.0 / (e + 1.0)) / (scale * math.log(2.0))


@cute.jit
def by_element(S, scale):
    factor = scale * math.log(2.0) * 0.2
    for i in cutlass.range_constexpr(cute.size(S)):
        S[i] = cute.math.tanh(S[i] * factor) / factor


def in_log2(S, scale):
    S.store(5.0 * cute.math.tanh(S.load() * scale / 5.0) / scale)


def undecorated(S, scale):
    for i in cutlass.range_constexpr(cute.size(S)):
        S[i] = S[i]


def untouched(S, scale):
    pass


def by_weights(O1, LSE1, O2, LSE2):
    top = torch.maximum(LSE1, LSE2)
    a, b = (LSE1 - top).exp()[:, None], (LSE2 - top).exp()[:, None]
    return (a * O1 + b * O2) / (a + b), top + (a + b)[:, 0].log()


def by_softmax(O1, LSE1, O2, LSE2):
    both = torch.stack([LSE1, LSE2])
    return [(both.softmax(0)[..., None] * torch.stack([O1, O2])).sum(0), both.logsumexp(0)]


def by_numpy(O1, LSE1, O2, LSE2):
    LSE = np.logaddexp(LSE1.numpy(), LSE2.numpy())
    return O1.numpy() * np.exp(LSE1.numpy() - LSE)[:, None] + O2.numpy() * np.exp(LSE2.numpy() - LSE)[:, None], LSE


def by_exp_alone(O1, LSE1, O2, LSE2):
    a, b = LSE1.exp()[:, None], LSE2.exp()[:, None]
    return (a * O1 + b * O2) / (a + b), (a + b)[:, 0].log()


def first_sees_all(O1, LSE1, O2, LSE2):
    share = (LSE2 - LSE1).exp()  # NaN or infinite where the first part sees no key
    return (O1 + share[:, None] * O2) / (1 + share)[:, None], LSE1 + share.log1p()


def sums(O1, LSE1, O2, LSE2):
    return O1 + O2, LSE1 + LSE2


def only_O(O1, LSE1, O2, LSE2):
    return by_weights(O1, LSE1, O2, LSE2)[0]


def no_LSE(O1, LSE1, O2, LSE2):
    return by_weights(O1, LSE1, O2, LSE2)[0], LSE1
"""
STAYS = "i // 4 * 8 + i % 2"
NOT_TEXT = ["None", "5", "(1, 2)", "np.float64(3)", "float('nan')", "nothing"]
NUMBERS = ["None", "'136'", "float('nan')", "(1, 2)", "True", "1.5"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_where": (
        [*exercises.FUNCTIONS, "nans", "transposed", "raising"], ["by_quad", "by_arrays", "by_memory"],
    ),
    "check_fit": (
        [
            "136, 112", "136, 80", "136, 256", "160, 96", "136, 0", *(f"136, {x}" for x in NUMBERS),
            *(f"{x}, 96" for x in NUMBERS),
        ],
        ["136, 96", "np.float64(136), np.int8(96)", "torch.tensor(136), 96.0"],
    ),
    "check_window": (
        [*NOT_TEXT, "'text'", "'True'", "'x =='", "''", f"'{STAYS} >= seen - WINDOW'", f"'{STAYS} < WINDOW'"],
        [
            f"'({STAYS} < seen) & (seen - WINDOW <= {STAYS})'", f"'{STAYS} < seen and {STAYS} + WINDOW >= seen'",
            f"'cutlass.max(seen - ({STAYS}) - WINDOW, 1 - seen + {STAYS}) <= 0'",
        ],
    ),
    "check_begin": (
        ["None", "'text'", "(1, 2)", "nans", "from_zero", "one_late", "by_32"], ["by_branch", "by_max", "by_loop"],
    ),
    "check_soften": (
        ["None", "'text'", "np.float64(3)", "from_torch", "in_log2", "untouched", "one_scale", "sixteen"],
        ["by_vector", "by_exp", "by_element"],
    ),
    "check_together": (
        [*exercises.FUNCTIONS, "nans", "sums", "only_O", "no_LSE", "by_exp_alone", "first_sees_all"],
        ["by_weights", "by_softmax", "by_numpy"],
    ),
}


names = exercises.judges_of(CHAPTER, f"import numpy as np\n{ANSWERS}")
test_answers_are_judged = exercises.answers_are_judged(CHECKS)


test_hints = exercises.wrong_answers_get_hints({
    "check_soften(untouched)": "of 64 rows are wrong; the first is query 0 of head 0: ",
    "check_soften(undecorated)": "or put @cute.jit above the function",
    "check_begin(lambda row, bN, window: max(0, row + 1 - window) // bN)": "or use cutlass.max or cutlass.select_",
    "check_begin(by_32)": "a window of 33, blocks of 48 keys: 72 of 200 rows are wrong",
    "check_soften(one_scale)": "scores times 0.4, blocks of 48 keys: ",
    "check_soften(sixteen)": "scores times 0.4, blocks of 48 keys: ",
    "check_together(by_exp_alone)": "O: 1 of 64 rows are wrong, the first is row 63",
    "check_together(first_sees_all)": "O: 10 of 64 rows are wrong, the first is row 0, with the parts exchanged",
})  # fmt: skip


def test_each_exercise_has_a_solution() -> None:
    exercises.assert_paired(CHAPTER)


def test_the_linked_maps_agree(helpers: ModuleType) -> None:
    """The chapter's proof, against the ISA's rule for accumulators and for A operands in registers."""
    for keys in (64, 96, 128, 160, 256):
        S, P = helpers.map_of_S(keys), helpers.map_of_P(keys)
        row, key = np.divmod(np.arange(64 * keys), keys)
        owner = row // 16 * 32 + row % 8 * 4 + key % 8 // 2
        value = key // 8 * 4 + row % 16 // 8 * 2 + key % 2
        for each in (S, P):
            assert np.array_equal(np.ravel(each["owner"]), owner) and np.array_equal(np.ravel(each["value"]), value)
