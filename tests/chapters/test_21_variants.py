"""Chapter 21's variants: right where they are timed, made of what their names say, and told with both clocks."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.course import notebooks, provenance
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench
from tests.chapters import attentions, benchmarks, exercises

CHAPTER = "21_fa_pingpong"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def right_ones() -> list[str]:
    """The variants whose results are right, without K6b itself."""
    module = notebooks.load(CHAPTER, bench.BENCH_TAGS)
    return [name for name in module.VARIANTS if name not in (*module.CONTROLS, "both")]


@pytest.mark.parametrize("name", right_ones())
def test_a_variant_is_right_and_spills_nothing(chapter: ModuleType, device: str, name: str) -> None:
    """At the size at which it is timed: several blocks, the last with a mask, and several tiles per CTA."""
    module, cfg = chapter.config_of(name, 128)
    attentions.agrees(module.prepare, device, (1, 4, 1, 130, 700, 128), cfg=cfg)
    Q = torch.zeros(1, 1, 64, 128, dtype=torch.bfloat16, device=device)
    launch = module.prepare(Q, Q, Q, torch.empty_like(Q), torch.empty(1, 1, 64, device=device), cfg=cfg)
    info = inspect(launch.compiled)
    waits = info.sass.count("WARPGROUP.DEPBAR")
    assert info.spills == 0 and waits == (6 if name.startswith("straight") else 4)  # not one for each WGMMA
    turns = name.startswith(("both", "turns", "like", "always")) or name.endswith(", turns")
    assert (info.sass.count("BAR.ARV") > 0) == turns


@pytest.mark.parametrize("name", ["one after another, turns", "like FA3, no overlap", "like FA3, overlap"])
def test_no_turn_is_lost_under_a_causal_mask(chapter: ModuleType, device: str, name: str) -> None:
    """The upper consumer skips blocks of 64 keys, and rows see their own maxima grow."""
    module, cfg = chapter.config_of(name, 64)
    cfg = chapter.replace(cfg, bN=64, consumers=3, buffers=1)
    attentions.agrees(module.prepare, device, (1, 3, 1, 400, 400, 64), causal=True, cfg=cfg)


def test_every_pair_can_be_compiled_at_its_head_dimension(chapter: ModuleType) -> None:
    """A refusal would cost the whole table, and show on a GPU host only."""
    small = [pair for pair in chapter.PAIRS if pair[0].endswith("by FMA")]
    assert len(small) == 3
    for D, found in ((128, chapter.PAIRS), (64, small)):
        for name in {name for pair in found for name in pair if name in chapter.VARIANTS}:
            chapter.refuse_config(torch.empty(1, 1, 1, D), (None, None), chapter.config_of(name, D)[1])
    assert set(chapter.VARIANTS) - {"both", "overlap"} <= {name for name, _ in chapter.PAIRS}


def test_three_consumers_of_128_keys_do_not_fit(chapter: ModuleType) -> None:
    """Nor does a consumer with two tiles of Q, each with scores, weights and sums of its own."""
    cfg = chapter.Config(chapter.step_straight, consumers=3, buffers=1)
    with pytest.raises(ValueError, match="need about 188 registers per thread, and one of 3 consumers has 160"):
        chapter.refuse_config(torch.empty(1, 1, 1, 128), (None, None), cfg)
    assert 3 * 128 * 188 > 65536 and 2 * (64 + 32 + 64) > 255


POWERS = """
@cute.kernel
def powers_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    for i in cutlass.range_constexpr(8):
        mY[tid + 512 * i] = by_fma(mX[tid + 512 * i])


@cute.jit
def powers(mX: cute.Tensor, mY: cute.Tensor):
    powers_kernel(mX, mY).launch(grid=(1, 1, 1), block=(512, 1, 1))
"""


@pytest.mark.emulator
def test_powers_by_fmas(tmp_path: Path) -> None:
    """Against float64, and without the power unit; what is smaller than any weight that counts is a tiny number."""
    found = exercises.defined(CHAPTER, [], tmp_path, POWERS)
    small = torch.tensor([-1e4, -127.0, -np.inf] * 2)
    x = torch.cat([torch.linspace(-125, 0, 2048), torch.linspace(-2, 0, 2042), small])
    y = torch.full_like(x, torch.nan)
    tensors = [found["from_dlpack"](t) for t in (x, y)]
    compiled = found["cute"].compile(found["powers"], *tensors)
    compiled(*tensors)
    wanted = 2 ** x.double().clamp(min=-126)
    assert ((y.double() - wanted).abs() < 1e-4 * wanted)[:4090].all()
    assert (y[4090:] > 0).all() and (y[4090:] < 2e-38).all()
    assert not inspect(compiled).count("ex2")


@pytest.mark.emulator
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("n", [2, 4])
def test_n_of_16_powers_of_blocks_without_a_mask(chapter: ModuleType, D: int, n: int) -> None:
    """64 powers a thread, of which 4 n are gone; three FMAs, three additions and a maximum for each have come."""
    sass = []
    for module in (chapter, chapter.variant(f"straight, {n} of 16 by FMA")):
        Q = torch.zeros(1, 1, 64, D, dtype=torch.bfloat16)
        launch = module.prepare(Q, Q, Q, torch.empty_like(Q), torch.empty(1, 1, 64), step=module.step_straight)
        sass.append(inspect(launch.compiled).sass)
    more = [sass[1].count(opcode) - sass[0].count(opcode) for opcode in ("MUFU.EX2", "FFMA", "FADD", "FMNMX")]
    assert more == [-4 * n, 12 * n, 12 * n, 4 * n]


@pytest.mark.emulator
def test_one_after_another_has_seven_moments_too(chapter: ModuleType) -> None:
    """PV is multiplied, and QK queued, before the third; nothing is left to wait for after the softmax."""
    first, second = (np.array(one) for one in chapter.clocks_of("one after another", 2, S=640, heads=1, sms=1))
    assert len(first) == len(second) > 10 and first.shape[1] == len(chapter.EVENTS)
    assert all((np.diff(one, axis=1) >= 0).all() for one in (first, second))
    waits, queues, _, softmax, after, *_ = chapter.parts_of([first.tolist(), second.tolist()])
    assert waits == after == 0 and min(queues, softmax) > 0


def test_cycles_scatter_less_than_times() -> None:
    """The text says so of the recorded tables: in bursts and in windows, ratios of cycles agree within 1 percent."""
    for part in ("", "step"):
        rows = bench.read(CHAPTER, part)["rows"]
        by_cycles = [row["ratio"] * row["vendor_sm_mhz"] / row["sm_mhz"] for row in rows]
        assert all(abs(long / burst - 1) < 0.01 for burst, long in zip(by_cycles[::2], by_cycles[1::2], strict=True))


def test_the_table_has_both_clocks_and_the_paper(
    chapter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1.2 times as fast at a clock 1.1 times as high is 1.09 times in cycles; what was not measured is no number."""
    benchmarks.keep_tables_in(tmp_path, monkeypatch)
    rows: list[dict[str, Any]] = []
    for name, against, ours in (("21 K6b", "20 K5", 600.0), ("like FA3, overlap", "21 K6b", 480.0)):
        for method in ("burst of 40 launches", "sustained 100 ms"):
            said = {"D": 128, "kernel": name, "vendor": against, "inputs": "none", "method": method}
            speed = {"ours_tflops": ours, "vendor_tflops": ours / 1.2, "ratio": 1.2}
            clocks = {"sm_mhz": 1650, "vendor_sm_mhz": 1500} if against == "20 K5" else {"sm_mhz": 1650}
            rows.append({**said, **speed, **clocks})
    head = {"notebook": CHAPTER, "provenance": dict.fromkeys(provenance.FIELDS, "a"), "code_hash": "other"}
    (tmp_path / f"{CHAPTER}.json").write_text(json.dumps({**head, "rows": rows}))
    found = {**vars(chapter)}
    for cell in ("stake", "table"):
        exec(exercises.cell(CHAPTER, cell), found)
    lines = capsys.readouterr().out.splitlines()
    (both,) = [line for line in lines if line.startswith("128  21 K6b")]
    assert both.split().count("1.091") == 2 and "1650, 1500" in both
    (one,) = [line for line in lines if line.startswith("128  like FA3")]
    assert "1650, -" in one and "1.091" not in one
    table = lines[lines.index("TFLOP/s in bursts, D = 128") :]
    assert [line.split() for line in table if line.startswith(("like FA3, o", "20 K5", "21 K6b", "turns"))] == [
        ["21", "K6b", "600"], ["turns", "-"], ["20", "K5", "500"], ["like", "FA3,", "overlap", "480", "661"],
    ]  # fmt: skip
