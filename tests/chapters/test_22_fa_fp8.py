"""Chapter 22's 8-bit attention against float64 of the quantised numbers, its turned V, mistakes and exercises."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from cutetut.course import notebooks
from cutetut.inspect.compiled import inspect
from cutetut.measure import bench, mistakes
from tests.chapters import attentions, benchmarks, contract, exercises

CHAPTER = "22_fa_fp8"


@pytest.fixture(scope="module")
def chapter() -> ModuleType:
    return notebooks.load(CHAPTER, bench.BENCH_TAGS)


def pairs(
    chapter: ModuleType, device: str, B: int, H: int, group: int, Sq: int, Sk: int, D: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Q, K and V of random normal numbers, every head of another size, quantised."""
    operands = attentions.operands("cpu", B, H, group, Sq, Sk, D, torch.float32)
    sizes = [torch.linspace(0.3, 3, X.shape[1])[:, None, None] for X in operands]
    quantized = [chapter.quantized((size * X).contiguous()) for size, X in zip(sizes, operands, strict=True)]
    return [(numbers.to(device), scale.to(device)) for numbers, scale in quantized]


def whole(pair: tuple[torch.Tensor, torch.Tensor]) -> np.ndarray:
    numbers, scale = (part.cpu().double().numpy() for part in pair)
    return numbers * scale[..., None, None]


def assert_right(
    out: torch.Tensor, LSE: torch.Tensor, operands: list[np.ndarray], seen: np.ndarray, scale: float
) -> None:
    """O and LSE against float64, within what rounding weights to e4m3, O to bfloat16, and short sums can do."""
    Q, K, V = operands
    K, V = (np.repeat(X, Q.shape[1] // X.shape[1], axis=1) for X in (K, V))
    scores = scale * Q @ K.swapaxes(2, 3)
    seen = np.broadcast_to(seen, scores.shape)
    scores = np.where(seen, scores, -np.inf)
    some = np.asarray(seen.any(3, keepdims=True))
    top = np.where(some, scores.max(3, keepdims=True), 0.0)
    powers = np.exp(scores - top)
    totals = powers.sum(3, keepdims=True)
    weights = powers / np.where(some, totals, 1.0)
    expected = weights @ V
    lost = 2.0**-18 * (seen @ np.abs(V)) / np.where(some, totals, 1.0)  # half a step below 2**-6, of 2**8
    bound = (2.0**-4 + 2e-3) * (weights @ np.abs(V)) + lost + 2.0**-8 * np.abs(expected) + 1e-7
    assert (np.abs(out.cpu().double().numpy() - expected) <= bound).all()  # NaN fails
    got, some = LSE.cpu().double().numpy(), some[..., 0]
    wanted = top[some, 0] + np.log(totals[some, 0])
    summed = (scale * np.abs(Q) @ np.abs(K).swapaxes(2, 3)).max(3)[some]  # tensor cores keep some 13 bits of it
    assert (np.abs(got[some] - wanted) <= 2.0**-10 * summed).all() and (got[~some] == -np.inf).all()


def agrees(
    chapter: ModuleType, device: str, shape: tuple[int, int, int, int, int, int], causal: bool = False,
    align: str = "top-left", lengths: list[int] | None = None, scale: float | None = None, dtype: torch.dtype =
    torch.bfloat16, **changes: object,
) -> None:  # fmt: skip
    """Two launches by three CTAs; O and LSE start as NaN, so that a row left out is seen."""
    Q, K, V = pairs(chapter, device, *shape)
    out = torch.full(Q[0].shape, torch.nan, dtype=dtype, device=device)
    LSE = torch.full(Q[0].shape[:3], torch.nan, device=device)
    numbers = None if lengths is None else torch.tensor(lengths, dtype=torch.int32, device=device)
    cfg = replace(chapter.CONFIGS[shape[5]], **changes)
    launch = chapter.prepare(
        Q, K, V, out, LSE, causal=causal, align=align, lengths=numbers, scale=scale, sms=3, cfg=cfg
    )
    launch()
    launch()  # the counter of tiles is back at 0
    diagonal = shape[4] - shape[3] if align == "bottom-right" else 0
    seen = attentions.visible(Q[0], K[0], causal, diagonal, lengths).numpy()
    assert_right(out, LSE, [whole(pair) for pair in (Q, K, V)], seen, scale or shape[5] ** -0.5)


def test_every_key_is_seen_and_float16_goes_out(chapter: ModuleType, device: str) -> None:
    agrees(chapter, device, (1, 2, 1, 100, 500, 128), dtype=torch.float16)


def test_shared_heads_and_ragged_lengths(chapter: ModuleType, device: str) -> None:
    agrees(chapter, device, (2, 4, 2, 250, 330, 128), causal=True, lengths=[330, 77])


def test_a_large_head_with_rows_that_see_nothing(chapter: ModuleType, device: str) -> None:
    agrees(chapter, device, (1, 1, 1, 200, 70, 256), causal=True, align="bottom-right")


@pytest.mark.parametrize("bN, consumers", [(128, 3), (96, 1), (160, 2)])
def test_other_blocks_and_consumers(chapter: ModuleType, device: str, bN: int, consumers: int) -> None:
    """Keys of V lie under all three swizzles: 128, 64 and 32 bytes wide."""
    agrees(chapter, device, (1, 1, 1, 150, 333, 64), causal=True, scale=0.3, bN=bN, consumers=consumers)


def test_a_sink_leaves_the_small_weights(chapter: ModuleType, device: str) -> None:
    """A first key that outdoes all, its row of V 0: without OFFSET all other weights would round to 0."""
    _, K, V = (X.cpu().float() for X in attentions.operands("cpu", 1, 1, 1, 64, 256, 64, torch.float32))
    Q, K[0, 0, 0], V[0, 0, 0] = torch.ones(1, 1, 64, 64) + 0 * K[:, :, :64], 0.95, 0.0
    K[0, 0, 1:] *= 0.02
    operands = [tuple(part.to(device) for part in chapter.quantized(X.contiguous())) for X in (Q, K, V)]
    out = chapter.attention(*operands, scale=1 / 8)[0].cpu().double().numpy()
    q, k, v = (whole(pair) for pair in operands)
    powers = np.exp(q @ k.swapaxes(2, 3) / 8 - (q @ k.swapaxes(2, 3) / 8).max(3, keepdims=True))
    assert np.sort(powers, axis=3)[..., -2].max() < 2.0**-9
    expected = powers / powers.sum(3, keepdims=True) @ v
    assert np.linalg.norm(out - expected) < 0.1 * np.linalg.norm(expected)


@pytest.mark.parametrize("keys, D", [(1, 64), (33, 128), (100, 256)])
def test_v_is_turned(chapter: ModuleType, device: str, keys: int, D: int) -> None:
    """Byte for byte: 32 keys of a row in the order of 8-bit A operands (PTX ISA 9.7.15.5.1), the last one repeated."""
    rng = np.random.default_rng(keys)
    V = rng.integers(0, 256, (2, 3, keys, D), dtype=np.uint8)
    padded = -(-keys // 32) * 32
    Vt = torch.zeros(2, 3, D, padded, dtype=torch.uint8, device=device)
    arguments = tuple(chapter.k4.as_cute(t) for t in (torch.from_numpy(V).to(device), Vt))
    chapter.compiled(("turn", "test"), chapter.turn_launch, arguments)()
    # A thread of an accumulator has columns 2t, 2t + 1 of each 8; of an operand, columns 4t to 4t + 3 of each 16.
    held = {t: [8 * n + 2 * t + c for n in range(4) for c in range(2)] for t in range(4)}
    wanted = {t: [16 * n + 4 * t + c for n in range(2) for c in range(4)] for t in range(4)}
    key_at = np.zeros(32, dtype=int)
    for t in range(4):
        key_at[wanted[t]] = held[t]
    keys_of = np.minimum((np.arange(0, padded, 32)[:, None] + key_at).ravel(), keys - 1)
    assert np.array_equal(Vt.cpu().numpy(), V[:, :, keys_of].swapaxes(2, 3))


def test_quantized_is_within_half_a_step(chapter: ModuleType) -> None:
    X = torch.randn(2, 3, 50, 64, generator=torch.Generator().manual_seed(1))
    X[1, 2] = 0
    numbers, scale = chapter.quantized(X)
    back = numbers.double() * scale.double()[..., None, None]
    step = torch.maximum(X.abs().double() * 2.0**-4, scale.double()[..., None, None] * 2.0**-10)
    assert ((back - X).abs() <= 1.0001 * step).all()
    assert numbers.float().abs().amax((2, 3)).eq(448).flatten()[:-1].all() and scale[1, 2] == 1


@pytest.mark.emulator
@pytest.mark.parametrize("D", [64, 128, 256])
def test_nothing_spills_and_the_softmax_stays_above_the_last_wait(chapter: ModuleType, D: int) -> None:
    operands = [chapter.quantized(torch.ones(1, 1, 64, D)) for _ in range(3)]
    out, LSE = torch.empty(1, 1, 64, D, dtype=torch.bfloat16), torch.empty(1, 1, 64)
    info = inspect(chapter.prepare(*operands, out, LSE).attend.compiled)
    waits = [place for place in range(len(info.sass)) if info.sass.startswith("WARPGROUP.DEPBAR", place)]
    assert info.spills == 0 and len(waits) == 4
    assert info.sass[waits[1] : waits[2]].count("MUFU.EX2") == chapter.CONFIGS[D].bN // 2 + 2


def test_what_is_not_supported_is_refused(chapter: ModuleType, device: str) -> None:
    good = tuple(part.to(device) for part in chapter.quantized(torch.ones(1, 2, 64, 64)))
    wide = tuple(part.to(device) for part in chapter.quantized(torch.ones(1, 2, 64, 96)))
    for arguments, changes, word in (
        ((good, good, wide), {}, "must agree"),
        ((wide,) * 3, {}, "D 64, 128 or 256"),
        (((good[0], good[1][:, :1].contiguous()),) * 3, {}, "one for each head"),
        (((good[0].mT, good[1]),) * 3, {}, "contiguous"),
        ((good,) * 3, {"bN": 144}, "multiples of 32"),
        ((good,) * 3, {"bN": 256, "consumers": 3}, "registers"),
        ((good,) * 3, {"buffers": 2}, "buffers"),
    ):
        with pytest.raises(ValueError, match=word):
            chapter.attention(*arguments, cfg=replace(chapter.CONFIGS[64], **changes))
    with pytest.raises(TypeError, match="float8_e4m3fn"):
        chapter.attention((good[0].float(), good[1]), good, good)
    with pytest.raises(TypeError, match="O is"):
        chapter.attention(good, good, good, dtype=torch.float32)


def test_the_chapter_keeps_to_the_contract(chapter: ModuleType) -> None:
    contract.assert_contract(CHAPTER)
    contract.assert_one_idea(chapter.fa.persistent_attention_kernel, chapter.fp8_attention_kernel)
    contract.assert_one_idea(chapter.pingpong.step_overlap, chapter.step)
    contract.assert_one_idea(chapter.k4.to_operand, chapter.to_operand)
    contract.assert_one_idea(chapter.k4.online_softmax, chapter.online_softmax)
    contract.assert_short(chapter.turn_kernel)


# --- mistakes and benchmarks

NAMED = {  # what the emulator says, or how O and the log-sum-exp are wrong
    "V turned, keys as they were": (True, False),
    "P in the order of its registers": (True, False),
    "weights that saturate": (True, False),
    "OFFSET left in the log-sum-exp": (False, True),
    "K's scale forgotten": (True, True),
    "P overwritten": "InFlight",
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", NAMED)
def test_mistakes(chapter: ModuleType, name: str) -> None:
    assert chapter.MISTAKES.keys() == NAMED.keys()
    said, wrong, wrong_LSE = chapter.emulate(notebooks.changed(CHAPTER, chapter.MISTAKES[name], bench.BENCH_TAGS))
    if isinstance(NAMED[name], str):
        assert said.startswith(NAMED[name]), said
    else:
        assert mistakes.faultless(said) and (wrong > 0, wrong_LSE > 0) == NAMED[name]


@pytest.mark.emulator
def test_mistakes_can_be_tried_on_a_gpu(chapter: ModuleType) -> None:
    benchmarks.assert_tried(chapter, "OFFSET left in the log-sum-exp", right=False)


@pytest.mark.emulator
def test_the_benchmarks_measure_both_kernels(chapter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = benchmarks.without_a_clock(chapter, monkeypatch)
    torch.manual_seed(22)
    rows = chapter.compared(64, 64, False, 1, 1) + chapter.compared(64, 64, True, 1, 1)
    rows += chapter.compared(64, 64, False, 1, 1, bN=96) + chapter.turned_beside_torch(1, 1, 64, 64)
    assert len(bench.validated(rows, CHAPTER)) == 5
    assert timed == ["22", "22, V turned each time", "22", "22", "V turned"] and rows[3]["bN"] == 96


class Part:
    """What cuDNN's frontend calls a tensor: its setters return it."""

    def __init__(self, name: str = "") -> None:
        self.name, self.kind = name, ""

    def set_output(self, _: bool) -> Part:
        return self

    set_dim = set_stride = set_output

    def set_data_type(self, kind: str) -> Part:
        self.kind = kind
        return self


class Graph:
    """The part of cuDNN's frontend that chapter 22 uses, with attention by torch in place of a plan."""

    def __init__(self, **kinds: object) -> None:
        self.kinds, self.made = kinds, [Part(name) for name in ("out", "stats", "of S", "of O")]

    def tensor(self, shape: list[int], stride: list[int], kind: str, name: str) -> Part:
        assert len(shape) == len(stride) == 4
        return Part(name).set_data_type(kind)

    def sdpa_fp8(self, attn_scale: float, use_causal_mask: bool, **named: object) -> list[Part]:
        assert named["is_inference"] is True
        self.scale, self.causal = attn_scale, use_causal_mask
        return self.made

    def validate(self, *_: object) -> None: ...

    build_operation_graph = create_execution_plans = check_support = build_plans = validate

    def get_workspace_size(self) -> int:
        return 0

    def execute(self, pack: dict[Part, torch.Tensor], space: torch.Tensor, handle: str) -> None:
        assert handle == "handle" and space.dtype == torch.uint8
        given = {part.name: value.float() for part, value in pack.items()}
        q, k, v = (given[name] * given[f"descale_{name}"] for name in "qkv")
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=self.scale)
        out = next(part for part in pack if part.name == "out")
        assert out.kind == "e4m3"
        pack[out].copy_((attended * given["scale_o"]).to(torch.float8_e4m3fn))


@pytest.mark.emulator
@pytest.mark.parametrize("causal", [False, True])
def test_cudnn_gets_numbers_and_scales_that_belong_together(
    chapter: ModuleType, monkeypatch: pytest.MonkeyPatch, causal: bool
) -> None:
    cudnn = ModuleType("cudnn")
    cudnn.data_type = SimpleNamespace(FP8_E4M3="e4m3", FLOAT="f32")  # type: ignore[attr-defined]
    cudnn.heur_mode = SimpleNamespace(A=0, FALLBACK=1)  # type: ignore[attr-defined]
    cudnn.create_handle, cudnn.pygraph = lambda: "handle", Graph  # type: ignore[attr-defined]
    cudnn.cudnnGraphNotSupportedError = RuntimeError  # type: ignore[attr-defined]
    cudnn.set_stream = lambda handle, stream: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cudnn", cudnn)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    operands = attentions.operands("cpu", 1, 2, 1, 64, 64, 64, torch.float32)
    operands = [(size * X).contiguous() for size, X in zip((0.5, 2, 30), operands, strict=True)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=causal)
    launches = chapter.cudnn_fp8(operands, wanted, causal)  # compares O with `wanted`
    launches["cuDNN fp8"]()
    with pytest.raises(AssertionError, match="cuDNN fp8: relative error"):
        chapter.cudnn_fp8(operands, wanted, not causal)

    def refused(*_: object) -> None:
        raise RuntimeError("no plan")

    monkeypatch.setattr(Graph, "check_support", refused)
    assert chapter.cudnn_fp8(operands, wanted, causal) == {}


# --- exercises

ANSWERS = """
def by_divmod(k):
    group, rest = divmod(k, 16)
    pair, low = divmod(rest % 8, 2)
    return 16 * group + 4 * pair + 2 * (rest // 8) + low


def by_table(k):
    return [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15][k % 16] + k - k % 16


def as_array(k):
    return np.array([by_table(k)])[0]


def identity(k):
    return k


def the_inverse(k):
    return [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15][k % 16] + k - k % 16


def of_96_keys(k):
    return by_table(k % 96)


def by_frexp(largest):
    return math.frexp(largest)[1] - 1


def by_counting(largest):
    return max(n for n in range(-9, 30) if 2.0**n <= largest)


def one_too_few(largest):
    return math.floor(math.log2(largest)) - 1


def as_numpy(keys):
    return np.array([by_table(n) for n in range(keys)])


def generated(keys):
    return (by_divmod(n) for n in range(keys))


def inverse_rows(keys):
    return [the_inverse(n) for n in range(keys)]


def always_128(keys):
    return [by_table(n) for n in range(128)]


def between_the_keys(keys):
    return [by_table(n) + 0.4 for n in range(keys)]


def as_torch(keys):
    return torch.tensor([by_table(n) for n in range(keys)])


def twice_the_first(keys):
    return [0] * keys


@cute.jit
def by_key(S, keys, first_key):
    for i in cutlass.range_constexpr(cute.size(S)):
        key = first_key + 16 * (i // 8) + 4 * (cute.arch.lane_idx() % 4) + 2 * (i // 4 % 2) + i % 2
        S[i] = -cutlass.Float32.inf if key >= keys[i // 2 % 2] else S[i]


def by_helper(S, keys, first_key):
    by_key(S, keys, first_key)


@cute.jit
def one_key_too_many(S, keys, first_key):
    for i in cutlass.range_constexpr(cute.size(S)):
        key = first_key + 16 * (i // 8) + 4 * (cute.arch.lane_idx() % 4) + 2 * (i // 4 % 2) + i % 2
        S[i] = -cutlass.Float32.inf if key > keys[i // 2 % 2] else S[i]


@cute.jit
def by_row_alone(S, keys, first_key):
    row = cute.arch.warp_idx() % 4 * 16 + cute.arch.lane_idx() // 4
    for i in cutlass.range_constexpr(cute.size(S)):
        key = 16 * (i // 8) + 4 * (cute.arch.lane_idx() % 4) + 2 * (i // 4 % 2) + i % 2
        S[i] = -cutlass.Float32.inf if key > row + 8 * (i // 2 % 2) else S[i]


@cute.jit
def by_the_first_row(S, keys, first_key):
    for i in cutlass.range_constexpr(cute.size(S)):
        key = first_key + 16 * (i // 8) + 4 * (cute.arch.lane_idx() % 4) + 2 * (i // 4 % 2) + i % 2
        S[i] = -cutlass.Float32.inf if key >= keys[0] + 8 * (i // 2 % 2) else S[i]


@cute.jit
def of_64_keys(S, keys, first_key):
    for i in cutlass.range_constexpr(32):
        key = first_key + 16 * (i // 8) + 4 * (cute.arch.lane_idx() % 4) + 2 * (i // 4 % 2) + i % 2
        S[i] = -cutlass.Float32.inf if key >= keys[i // 2 % 2] else S[i]


@cute.jit
def without_the_block(S, keys, first_key):
    by_key(S, keys, 0)


@cute.jit
def outside(S, keys, first_key):
    there = cute.make_tensor(cute.make_ptr(cutlass.Float32, 64, cute.AddressSpace.gmem), cute.make_layout(1))
    S[0] = there[0]


def identity_rows(keys):
    return list(range(keys))


@cute.jit
def by_shift(x):
    rounded = x + 12582912.0
    f = x - (rounded - 12582912.0)
    mantissa = f * (f * 0.24022651 + 0.69314718) + 1.0
    return (mantissa.bitcast(cutlass.Int32) + (rounded.bitcast(cutlass.Int32) << 23)).bitcast(cutlass.Float32)


@cute.jit
def with_floor(x):
    n = cute.math.floor(x)
    f = x - n
    mantissa = 1.0024 + f * (0.6512 + f * 0.3439)
    return (mantissa.bitcast(cutlass.Int32) + (cutlass.Int32(n) << 23)).bitcast(cutlass.Float32)


@cute.jit
def many_terms(x):
    rounded = x + 12582912.0
    f = (x - (rounded - 12582912.0)) * 0.69314718
    mantissa = 1.0 + f * (1.0 + f * (0.5 + f * (0.1666667 + f * (0.0416667 + f * 0.0083333))))
    return (mantissa.bitcast(cutlass.Int32) + (rounded.bitcast(cutlass.Int32) << 23)).bitcast(cutlass.Float32)


@cute.jit
def linear(x):
    rounded = x + 12582912.0
    mantissa = 1.0 + 0.7 * (x - (rounded - 12582912.0))
    return (mantissa.bitcast(cutlass.Int32) + (rounded.bitcast(cutlass.Int32) << 23)).bitcast(cutlass.Float32)
"""
KINDS = [*exercises.FUNCTIONS, "nans"]
CHECKS: dict[str, tuple[list[str], list[str]]] = {  # wrong answers, and right ones
    "check_position": ([*KINDS, "identity", "the_inverse", "of_96_keys"], ["by_divmod", "by_table", "as_array"]),
    "check_offset": (
        [f"{answer}, 'e4m3'" for answer in (*KINDS, "one_too_few", "lambda largest: 8", "lambda largest: 10**6")]
        + [f"by_frexp, {choice}" for choice in ("'e5m2'", "torch.float8_e5m2", "None", "'e4m3 or e5m2'", "448")],
        ["by_frexp, 'e4m3'", "by_counting, torch.float8_e4m3fn", "by_frexp, cutlass.Float8E4M3FN"],
    ),
    "check_rows": (
        [*KINDS, "inverse_rows", "twice_the_first", "lambda keys: range(keys)", "always_128", "between_the_keys"],
        ["as_numpy", "generated", "as_torch"],
    ),
    "check_mask": (
        [*KINDS, "k4.mask", "one_key_too_many", "by_row_alone", "by_the_first_row", "of_64_keys"],
        ["by_key", "by_helper"],
    ),
    "check_power": ([*KINDS, "many_terms", "linear", "cute.math.exp2"], ["by_shift", "with_floor"]),
}


names = exercises.judges_of(CHAPTER, f"import numpy as np\n{ANSWERS}")
test_answers_are_judged = exercises.answers_are_judged(CHECKS)
test_wrong_answers_get_hints = exercises.wrong_answers_get_hints(
    {
        "check_position(identity)": "key 2 stands at another position than 2",
        "check_offset(lambda largest: 1 // 0, 'e4m3')": "your function raises ZeroDivisionError: ",
        "check_offset(lambda largest: 8, 'e4m3')": "for 57344 nothing saturates with an offset of 9",
        "check_offset(lambda largest: 10**6, 'e4m3')": "for 448 an offset of 1e+06 lets the largest weight saturate",
        "check_offset(by_frexp, 'e5m2')": "with e5m2 O is off by 5.",
        "check_offset(by_frexp, None)": 'the format for P is "e4m3" or "e5m2"',
        "check_rows(identity_rows)": "position 2 of P's row gets the score of key 8, and V has key 2 there",
        "check_rows(inverse_rows)": "position 2 of P's row gets the score of key ",
        "check_position(of_96_keys)": "key 96 stands at another position than 0",
        "check_rows(always_128)": "the list for 32 keys is 32 numbers, not 128",
        "check_rows(between_the_keys)": "number 1 of the list for 32 keys is a whole number, not 0.4",
        "check_mask(by_row_alone)": "row 1 sees the keys from 128 to 165: the score of key 132 becomes -inf, not 0",
        "check_mask(of_64_keys)": "row 0 sees the keys from 128 to 128: the score of key 192 becomes 0, not -inf",
        "check_mask(k4.mask)": "row 2 sees the keys from 64 to 66: the score of key 68 becomes 0, not -inf",
        "check_mask(one_key_too_many)": "row 0 sees the keys from 64 to 64: the score of key 65 becomes 0, not -inf",
        "check_mask(nothing)": "row 0 sees the keys from 64 to 64: the score of key 65 becomes 0, not -inf",
        "check_mask(without_the_block)": "row 0 sees the keys from 64 to 64: the score of key 65 becomes 0, not -inf",
        "check_mask(outside)": "; kernel ",
    }
)


test_solutions_belong_to_exercises = exercises.solutions_belong_to_exercises(CHAPTER)
