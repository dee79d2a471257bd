"""Chapter 25's fused layer and operators against float64, its tuner, export and tests, and what its exercises say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench
from tests.chapters import benchmarks, contract, exercises, products

CHAPTER = "25_ship_it"
Tensors = list[torch.Tensor]


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, exercises.HELPER_TAGS)


def layer(rng: np.random.Generator, device: str, M: int, N: int, K: int) -> Tensors:
    """x, W, bias and residual, random normal."""
    x, W, bias, residual = products.normal(rng, device, torch.bfloat16, (M, K), (N, K), (N,), (M, N))
    return [x, W / K**0.5, bias, residual]


def gelu(z: np.ndarray) -> np.ndarray:
    return 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))


def slope(z: np.ndarray) -> np.ndarray:
    """GELU's derivative, by central differences."""
    return (gelu(z + 1e-5) - gelu(z - 1e-5)) / 2e-5


def wide(*tensors: torch.Tensor | None) -> list[Any]:
    return [None if t is None else products.wide(t.detach()) for t in tensors]


def exact(x: Any, W: Any, bias: Any = None, residual: Any = None, with_gelu: bool = False) -> np.ndarray:
    x, W, bias, residual = wide(x, W, bias, residual)
    z = x @ W.T + (0.0 if bias is None else bias)
    return (gelu(z) if with_gelu else z) + (0.0 if residual is None else residual)


def assert_close(found: torch.Tensor, expected: np.ndarray, rounded: float = 2**-8, atol: float = 6e-3) -> None:
    """A NaN fails."""
    assert found.shape == expected.shape
    assert (np.abs(wide(found)[0] - expected) <= atol + rounded * np.abs(expected)).all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (129, 72, 136), (260, 264, 40)])
@pytest.mark.parametrize("given", ["", "bias", "residual", "bias residual", "gelu", "bias residual gelu"])
def test_any_layer(chapter: ModuleType, rng: np.random.Generator, device: str, shape: Any, given: str) -> None:
    x, W, bias, residual = layer(rng, device, *shape)
    arguments = (bias if "bias" in given else None, residual if "residual" in given else None, "gelu" in given)
    assert_close(chapter.linear(x, W, *arguments), exact(x, W, *arguments))


@pytest.mark.parametrize("tile", [(256, 2), (192, 1), (64, 1)])
def test_every_plan(chapter: ModuleType, rng: np.random.Generator, device: str, tile: tuple[int, int]) -> None:
    x, W, bias, residual = layer(rng, device, 300, 328, 200)
    out = torch.full_like(residual, torch.nan)
    plan = chapter.fused.Wide(bN=tile[0], cluster=tile[1])
    chapter.prepare(x, W, bias, residual, out, True, plan)()
    assert_close(out, exact(x, W, bias, residual, True))


@pytest.mark.parametrize("tile", [(256, 2), (192, 1), (64, 1)])
def test_eight_bits_out(chapter: ModuleType, rng: np.random.Generator, device: str, tile: tuple[int, int]) -> None:
    """Rounded to a neighbour in e4m3; what is beyond its largest number becomes that."""
    x, W, bias, residual = layer(rng, device, 300, 208, 72)
    bias[3], bias[4], residual[7, 5] = 1000.0, -1000.0, torch.nan
    for given in ((bias, residual, False), (bias, None, True)):
        out = torch.full_like(residual, torch.nan).to(torch.float8_e4m3fn)
        chapter.prepare(x, W, *given[:2], out, given[2], chapter.fused.Wide(bN=tile[0], cluster=tile[1]))()
        found, expected = products.wide(out.float()), np.clip(exact(x, W, *given), -448, 448)
        assert (np.isnan(found) == np.isnan(expected)).all()
        numbers = ~np.isnan(expected)
        assert (np.abs(found - expected)[numbers] <= 2**-9 + 2**-4 * np.abs(expected)[numbers]).all()
    with pytest.raises(ValueError, match="out has rows of 200 numbers"):
        chapter.prepare(x, W[:200], None, None, torch.empty(300, 200, device=device).to(torch.float8_e4m3fn))


def test_nan_and_inf_stay_in_their_rows_and_columns(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    x, W, bias, residual = layer(rng, device, 64, 32, 64)
    x[3, 5], bias[7], residual[9, 11] = torch.nan, torch.nan, torch.inf
    y = chapter.linear(x, W, bias, residual)
    expected = torch.zeros_like(y, dtype=torch.bool)
    expected[3], expected[:, 7], expected[9, 11] = True, True, True
    assert torch.equal(~y.isfinite(), expected)


def test_arguments_stay_as_they_are(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    tensors = layer(rng, device, 40, 24, 16)
    before = [t.clone() for t in tensors]
    y = chapter.linear(*tensors, True)
    assert all(torch.equal(t, was) for t, was in zip(tensors, before, strict=True))
    assert y.data_ptr() not in [t.data_ptr() for t in tensors]


@pytest.mark.parametrize("options", [(True, True, True), (True, False, False), (False, False, True)])
def test_gradients(chapter: ModuleType, rng: np.random.Generator, device: str, options: tuple[bool, ...]) -> None:
    has_bias, has_residual, with_gelu = options
    x, W, bias, residual = layer(rng, device, 72, 48, 40)
    given = [x, W, bias if has_bias else None, residual if has_residual else None]
    leaves = [t.requires_grad_() for t in given if t is not None]
    (dy,) = products.normal(rng, device, torch.bfloat16, (72, 48))
    found = iter(torch.autograd.grad(chapter.linear(*given, with_gelu), leaves, dy))
    X, w, b, g = wide(x, W, given[2], dy)
    z = X @ w.T + (0 if b is None else b)
    dz = g * slope(z) if with_gelu else g
    for expected in [dz @ w, dz.T @ X, *([dz.sum(0)] if has_bias else []), *([g] if has_residual else [])]:
        assert_close(next(found), expected, 2**-6, float(np.abs(expected).max()) / 64)


def test_a_gradient_of_ones_that_lies_in_one_number(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """sum() hands over an expanded gradient, whose strides are 0."""
    x, W, *_ = layer(rng, device, 24, 16, 32)
    chapter.linear(x.requires_grad_(), W).sum().backward()
    assert x.grad is not None
    assert_close(x.grad, np.ones((24, 16)) @ wide(W)[0], 2**-6)


def attention_by_hand(q: np.ndarray, k: np.ndarray, v: np.ndarray, dO: np.ndarray) -> list[np.ndarray]:
    """O, LSE, and the gradients of q, k, v of one causal head, in float64."""
    scale, S = q.shape[1] ** -0.5, len(q)
    scores = np.where(np.tril(np.ones((S, S), bool)), q @ k.T * scale, -np.inf)
    lse = np.log(np.exp(scores).sum(1))
    P = np.exp(scores - lse[:, None])
    dP = dO @ v.T
    dS = P * (dP - (P * dP).sum(1, keepdims=True)) * scale
    return [P @ v, lse, dS @ k, dS.T @ q, P.T @ dO]


def test_attention_and_its_gradients(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    q, k, v, dO = products.normal(rng, device, torch.bfloat16, *[(2, 2, 40, 64)] * 4)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    out, lse = chapter.attention(*leaves)
    grads = torch.autograd.grad(out, leaves, dO)
    for place in np.ndindex(2, 2):
        expected = attention_by_hand(*(wide(t[place])[0] for t in (q, k, v, dO)))
        for found, one in zip((out, lse, *grads), expected, strict=True):
            assert_close(found[place], one, 2**-6, float(np.abs(one).max()) / 64)


@pytest.mark.emulator
def test_pytorchs_judge(chapter: ModuleType, rng: np.random.Generator) -> None:
    x, W, bias, residual = layer(rng, "cpu", 24, 16, 32)
    for given in ((x, W), (x, W, bias), (x, W, None, residual, True)):
        for wants in (False, True):
            arguments = [t.clone().requires_grad_(wants) if isinstance(t, torch.Tensor) else t for t in given]
            found = torch.library.opcheck(chapter.linear, tuple(arguments))
            assert set(found.values()) == {"SUCCESS"} and len(found) == 4
    q, k, v = (t.transpose(1, 2) for t in products.normal(rng, "cpu", torch.bfloat16, *[(1, 40, 2, 64)] * 3))
    assert set(torch.library.opcheck(chapter.attention, (q, k, v)).values()) == {"SUCCESS"}


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "float32": (lambda x, W, b, r: (x.float(), W), TypeError, "x is torch.float32"),
    "half a bias": (lambda x, W, b, r: (x, W, b.half()), TypeError, "bias is torch.float16"),
    "W transposed": (lambda x, W, b, r: (x, W.T), ValueError, "W has strides"),
    "rows of a slice": (lambda x, W, b, r: (x[:, :16], W), ValueError, "x has strides"),
    "three dimensions": (lambda x, W, b, r: (x[None], W), ValueError, r"x is \(1, 16, 32\): it must be a matrix"),
    "empty": (lambda x, W, b, r: (x[:0], W), ValueError, "x is .*not empty"),
    "odd K": (lambda x, W, b, r: (x[:, :12].contiguous(), W[:, :12].contiguous()), ValueError, "multiple of 8"),
    "odd N": (lambda x, W, b, r: (x, W[:20]), ValueError, "N a multiple of 8"),
    "other K": (lambda x, W, b, r: (x, W[:, :16].contiguous()), ValueError, r"W must be \(N, 32\)"),
    "short bias": (lambda x, W, b, r: (x, W, b[:8]), ValueError, r"bias is \(8,\).*must be \(24,\)"),
    "other residual": (lambda x, W, b, r: (x, W, b, r[:8]), ValueError, r"residual is \(8, 24\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_name_the_argument(chapter: ModuleType, rng: np.random.Generator, device: str, name: str) -> None:
    """The kernel's and the fake kernel's are the same."""
    make, kind, text = BAD[name]
    tensors = layer(rng, device, 16, 24, 32)
    with pytest.raises(kind, match=text):
        chapter.linear(*make(*tensors))
    with FakeTensorMode() as mode, pytest.raises(kind, match=text):
        chapter.linear(*make(*map(mode.from_tensor, tensors)))


BAD_OF_ATTENTION: dict[str, tuple[Any, type[Exception], str]] = {
    "float32": (lambda q, k, v: (q.float(), k, v), TypeError, "Q is torch.float32, K torch.bfloat16"),
    "V of halves": (lambda q, k, v: (q, k, v.half()), TypeError, "V torch.float16: all must be"),
    "three dimensions": (lambda q, k, v: (q[0], k[0], v[0]), ValueError, r"Q is \(4, 40, 64\).* must be one"),
    "one number": (lambda q, k, v: (q[0, 0, 0, 0], k, v), ValueError, r"Q is \(\), K .* must be one of"),
    "a head of 80": (lambda q, k, v: [torch.cat([t, t[..., :16]], -1) for t in (q, k, v)], ValueError, "one of .64"),
    "heads of two dimensions": (lambda q, k, v: (q, torch.cat([k, k], -1), v), ValueError, "the last of four must be"),
    "no query": (lambda q, k, v: (q[:, :, :0], k, v), ValueError, "Q has shape .*without a 0"),
    "K and V of two lengths": (lambda q, k, v: (q, k, v[:, :, :8]), ValueError, "K and V must agree"),
    "another batch": (lambda q, k, v: (q, k[:1], v[:1]), ValueError, "batch and dim be those of Q"),
    "three heads for four": (lambda q, k, v: (q, k[:, :3], v[:, :3]), ValueError, "a multiple of theirs"),
    "transposed": (lambda q, k, v: (q, k.mT.contiguous().mT, v), ValueError, "K has strides .*contiguous"),
    "begins at an odd place": (
        lambda q, k, v: (q, k, torch.cat([v, v], -1)[..., 1:65]), ValueError, "V has .* starts 2 bytes after"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_OF_ATTENTION)
def test_attention_refuses_while_tracing_what_its_kernel_refuses(
    chapter: ModuleType, rng: np.random.Generator, device: str, name: str
) -> None:
    make, kind, text = BAD_OF_ATTENTION[name]
    bad = make(*products.normal(rng, device, torch.bfloat16, *[(2, 4, 40, 64)] * 3))
    said = []
    with pytest.raises(kind, match=text) as caught:
        chapter.attention(*bad)
    said.append(str(caught.value))
    with FakeTensorMode() as mode, pytest.raises(kind, match=text) as caught:
        chapter.attention(*map(mode.from_tensor, bad))
    said.append(str(caught.value))
    assert said[0] == said[1]
    for dynamic in (False, True):
        torch.compiler.reset()
        traced = torch.compile(chapter.attention, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        with pytest.raises(Exception, match=kind.__name__ if dynamic else text):  # torch's own error, which quotes ours
            traced(*bad)


@pytest.mark.emulator
@pytest.mark.parametrize("dim", [64, 96])
def test_attention_of_a_traced_shape_is_that_of_the_kernel(
    chapter: ModuleType, rng: np.random.Generator, dim: int
) -> None:
    """Queries that share keys and a slice that begins elsewhere are no mistakes; symbolic lengths are traced once."""
    shapes = (1, 4, 40, dim), (1, 2, 24, dim + 8), (1, 2, 24, dim)
    q, k, v = products.normal(rng, "cpu", torch.bfloat16, *shapes)
    k = k[..., 8:]
    torch.compiler.reset()
    traced = torch.compile(chapter.attention, fullgraph=True, backend="aot_eager", dynamic=True)
    for given in ((q, k, v), (q[:, :, :24], k[:, :, :16], v[:, :, :16])):
        for found, wanted in zip(traced(*given), chapter.attention(*given), strict=True):
            assert torch.equal(found, wanted) and found.stride() == wanted.stride()
    assert set(torch.library.opcheck(chapter.attention, (q, k, v)).values()) == {"SUCCESS"}


@pytest.mark.emulator
def test_a_compiled_block_is_one_graph_and_learns_as_pytorchs_does(chapter: ModuleType) -> None:
    """Same first weights and texts; the losses of three steps."""
    curves = []
    for ways, compiled in ((chapter.OURS, False), (chapter.OURS, True), (chapter.TORCH, False)):
        model = chapter.Model(ways)
        if compiled:
            model.block = torch.compile(model.block, fullgraph=True, backend="aot_eager")
        curves.append(chapter.train(model, steps=3, count=2))
    assert np.isfinite(curves).all() and np.ptp(curves, axis=0).max() < 0.02
    assert len({round(loss, 3) for loss in curves[0]}) == 3


def test_every_part_of_the_block_matters(chapter: ModuleType) -> None:
    """Each weight and bias has a gradient, ours is PyTorch's but for rounding, and no query sees what is behind it."""
    x = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(1)).bfloat16().to(chapter.cutetut.device)
    grads, outs = [], []
    for ways in (chapter.OURS, chapter.TORCH):
        block = chapter.Block(64, 1, ways, torch.Generator().manual_seed(3))
        outs.append(block(x))
        grads.append(torch.autograd.grad(outs[-1].float().square().mean(), list(block.parameters())))
    for ours, theirs in zip(*grads, strict=True):
        assert float(ours.abs().max()) > 0
        assert float((ours - theirs).norm()) < 3e-2 * float(theirs.norm())
    later = x.clone()
    later[:, 9:] += 1
    assert torch.equal(block(later)[:, :9], outs[1][:, :9])
    ours = chapter.Block(64, 1, chapter.OURS, torch.Generator().manual_seed(3))
    assert torch.equal(ours(later)[:, :9], outs[0][:, :9])


def test_a_choice_is_measured_once_and_kept(chapter: ModuleType, tmp_path: Path) -> None:
    asked: list[Any] = []

    def narrow(plan: Any) -> float:
        asked.append(plan)
        return float(plan.bN)

    file = tmp_path / "folder" / "plans.json"
    favourites = chapter.plans(512, 512, 512)[:4]
    wanted = min(favourites, key=lambda plan: plan.bN)
    try:
        assert chapter.tune(512, 512, 512, narrow, file) == wanted and asked == favourites
        assert chapter.tune(512, 512, 512, narrow, file) == wanted and len(asked) == 4
        chapter.tune(512, 512, 1024, narrow, file)
        assert len(asked) == 8 and len(json.loads(file.read_text())) == 2
        assert chapter.TUNED[512, 512, 512] == wanted
        known = json.loads(file.read_text())
        file.write_text(json.dumps({key.replace("512x512x512", "9x9x9"): plan for key, plan in known.items()}))
        chapter.tune(512, 512, 512, narrow, file)
        assert len(asked) == 12
        for broken in ("{", "[]", "7", "", json.dumps({chapter.tuner_key(512, 512, 512): {"bM": 1, "none": 2}})):
            asked.clear()
            file.write_text(broken)
            assert chapter.tune(512, 512, 512, narrow, file) == wanted and len(asked) == 4
        parts = chapter.tuner_key(1, 2, 3).split(" | ")
        assert parts[1] == chapter.cutlass.__version__ and parts[-1] == "1x2x3" and len(parts) == 4
    finally:
        chapter.TUNED.clear()


def test_the_op_takes_the_tuned_plan(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    x, W, *_ = layer(rng, device, 130, 200, 64)
    chapter._compiled.clear()
    try:
        chapter.TUNED[130, 200, 64] = chapter.fused.Wide(bN=32, cluster=1)
        assert_close(chapter.linear(x, W), exact(x, W))
    finally:
        chapter.TUNED.clear()
    assert [code.bN for code, *_ in chapter._compiled] == [32]


def test_what_is_compiled_in(chapter: ModuleType, rng: np.random.Generator, device: str) -> None:
    """One kernel for all sizes, another for each set of bias, residual and GELU; what is absent costs nothing."""
    chapter._compiled.clear()
    plan = chapter.fused.Wide(bN=128, cluster=1)
    for M in (40, 200):
        x, W, bias, residual = layer(rng, device, M, 16, 32)
        for given in ((None, None, False), (bias, None, False), (bias, residual, True)):
            chapter.prepare(x, W, *given[:2], torch.empty_like(residual), given[2], plan)()
    assert len(chapter._compiled) == 3
    alone, with_bias, everything = map(inspect, chapter._compiled.values())
    assert [info.count("MUFU.TANH") for info in (alone, with_bias, everything)] == [0, 0, 64]
    assert with_bias.count("LDG") - alone.count("LDG") == 32 and everything.count("LDG") - alone.count("LDG") == 64
    assert [info.spills for info in (alone, with_bias, everything)] == [0, 0, 0]


def test_the_exported_object_file(chapter: ModuleType, tmp_path: Path) -> None:
    written = chapter.export(tmp_path).read_bytes()
    assert written[:4] == b"\x7fELF" and b"__tvm_ffi_fused_linear" in written and b"gemm_kernel" in written


@pytest.mark.emulator
def test_the_exported_function_links_and_cannot_be_emulated(chapter: ModuleType, tmp_path: Path) -> None:
    """Its process gets as far as asking for a GPU, without CuTe DSL."""
    runtime = chapter.find_runtime_libraries(enable_tvm_ffi=True)
    subprocess.run(["cc", "-shared", "-o", tmp_path / "f.so", chapter.export(tmp_path), *runtime], check=True)
    program = "import ctypes, sys, tvm_ffi; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)\n"
    program += "print(type(tvm_ffi.load_module(sys.argv[2]).fused_linear).__name__, 'cutlass' in sys.modules)"
    command = [sys.executable, "-c", program, runtime[0], str(tmp_path / "f.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["Function", "False"], done.stderr


@pytest.mark.emulator
def test_the_readers_tests_find_what_is_wrong(chapter: ModuleType, tmp_path: Path) -> None:
    """The file of tests that the chapter runs passes; with GELU left out, or the capture's input changed, it fails."""
    source = exercises.definitions(CHAPTER, "ci")
    names = exercises.from_file(source, tmp_path / "ci.py", dict(vars(chapter)))
    wrong = names["TEST"].replace("ship.linear(*tensors, True)", "ship.linear(*tensors)")
    said = names["run_tests"](wrong)
    assert "6 failed" in said and "passed" not in said, said[-2000:]


SAYS = {
    "no predicate": "OutOfBounds: load of 4 bytes",
    "bias along the rows": "OutOfBounds: load of 2 bytes",
    "residual before GELU": "most numbers are wrong: True",
    "fragment not cleared": "Uninitialized: register %r... is used",
}


@pytest.mark.emulator
def test_what_the_emulator_says_of_each_mistake(
    chapter: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(SAYS) == set(chapter.MISTAKES)
    source = exercises.definitions(CHAPTER, "break-it")
    monkeypatch.setattr(chapter, "rng", torch.Generator().manual_seed(1), raising=False)
    names = exercises.from_file(source, tmp_path / "broken.py", {**vars(chapter), "CHAPTER": CHAPTER})
    for name, said in SAYS.items():
        names["broken"](name)
        assert said in capsys.readouterr().out


@pytest.mark.emulator
def test_a_formula_in_another_order_is_a_mistake_that_only_numbers_show(chapter: ModuleType) -> None:
    benchmarks.assert_tried(chapter, "residual before GELU")


def test_the_benchmark_runs(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers, without a clock."""
    small = {"wide": (256, 128, 64), "thin": (128, 64, 64)}
    monkeypatch.setattr(chapter, "LAYERS", small)
    monkeypatch.setattr(chapter.mistakes, "on_gpu", lambda notebook, names: [{"mistake": each} for each in names])
    monkeypatch.setattr(chapter, "aot_on_gpu", lambda: {"relative error": 0.0})
    monkeypatch.setattr(chapter.torch, "compile", lambda function, **_: function)
    kept: dict[str, Any] = {}
    monkeypatch.setattr(chapter.records, "write", lambda name, what, content: kept.update({what: content}))
    benchmarks.count_launches(3, monkeypatch)
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    try:
        rows = bench.validated(chapter.benchmark() + chapter.benchmark_thin(), CHAPTER)
    finally:
        chapter.TUNED.clear()
    epilogues = ["bias and GELU", "bias and GELU, to e4m3", "bias and residual"]
    kernels = [*(f"25 {each}" for each in epilogues), "15 product alone"]
    assert timed == kernels * 2
    assert [(row["M"], row["N"], row["K"]) for row in rows[::4]] == list(small.values())
    assert set(kept) == {"aot", "mistakes", "counters"} and list(kept["counters"]) == list(chapter.PROFILED)


def test_the_benchmark_of_a_block_compares_all_gradients(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chapter, "BLOCKS", {"small": (1, 40, 64, 1)})
    monkeypatch.setattr(chapter.torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(chapter.graphs, "captured", lambda steps: steps[0])
    timed = benchmarks.without_a_clock(chapter, monkeypatch, ours_too=False)
    chapter.benchmark_small()
    assert timed == [f"25 block{way}, {how}" for how in ("launched", "in a graph") for way in ("", ", compiled")]
    monkeypatch.setattr(chapter, "OURS", (chapter.linear, lambda q, k, v: 1.5 * chapter.attention(q, k, v)[0]))
    with pytest.raises(AssertionError, match="differs from PyTorch's"):
        chapter.benchmark_small()


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_one_idea(notebooks.load("15_past_cublas").gemm_kernel, chapter.fused.gemm_kernel)
    contract.assert_contract(CHAPTER)
    exercises.assert_paired(CHAPTER)
