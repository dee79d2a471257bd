"""torch.cuda without a GPU takes every argument that torch's own functions declare, and computes what they compute."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutetut.emulator.host import cuda_torch, torch_functions, torch_streams
from cutetut.emulator.host.patches import Patches
from tests import warm

pytestmark = pytest.mark.emulator

# by torch itself, before anything is replaced: a new process, because this one runs in the emulator
_SHOW = """
import inspect, json, torch
def parameters(f):
    try:
        return [(p.name, p.kind) for p in inspect.signature(f).parameters.values()]
    except (TypeError, ValueError):
        return None
found = {}
for name, value in vars(torch.cuda).items():
    if isinstance(value, type):
        methods = {n: m for n, m in vars(value).items() if callable(m) and not n.startswith("_")}
        first = "__new__" if "__new__" in vars(value) else "__init__"
        found[name] = {n: parameters(m) for n, m in methods.items()} | {"": parameters(getattr(value, first))[1:]}
    elif callable(value):
        found[name] = parameters(value)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def declared() -> dict[str, Any]:
    """The parameters of everything in torch.cuda, as torch declares them."""
    import json

    done = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True, cwd="/")
    return dict(json.loads(done.stdout))


@pytest.fixture
def cuda() -> Iterator[None]:
    patches = Patches()
    try:
        torch_streams.install(patches)
        with cuda_torch.whole_device(patches):
            yield
    finally:
        patches.restore()


_STREAMS = ("Stream", "ExternalStream", "Event", "StreamContext", "stream", "current_stream", "default_stream",
            "set_stream", "synchronize", "get_stream_from_external")  # fmt: skip


def _takes(ours: Any, parameters: list[tuple[str, int]], where: str) -> None:
    """Every parameter as torch names it, in torch's order, and those that may go by position also so."""
    named = {name: None for name, kind in parameters if kind not in (2, 4)}  # neither *args nor **kwargs
    positional = [name for name, kind in parameters if kind in (0, 1)]
    signature = inspect.signature(ours)
    assert signature.bind(**named).arguments is not None, where
    by_position = signature.bind(*positional).arguments
    for name in positional:
        assert by_position.get(name, name) == name, f"{where}: {name} comes in another place"


def test_streams_and_classes_take_every_argument_that_torch_declares(cuda: None, declared: dict[str, Any]) -> None:
    for name in (*_STREAMS, *torch_functions._CLASSES):
        ours, theirs = getattr(torch.cuda, name), declared[name]
        if isinstance(theirs, dict):
            _takes(ours, theirs[""], name)
            for method, parameters in theirs.items():
                if method and hasattr(ours, method):
                    _takes(getattr(ours, method), parameters, f"{name}.{method}")
        else:
            _takes(ours, theirs, name)


_VALUES = {
    "device": "cuda:0", "seed": 3, "including_emulation": True, "abbreviated": True, "fraction": 0.5,
    "debug_mode": 0, "data_ptr": 64,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(torch_functions._ANSWERS))
def test_functions_answer_with_every_argument_that_torch_declares(
    cuda: None, declared: dict[str, Any], name: str
) -> None:
    if name not in declared:
        pytest.skip("this version of torch has none")
    state = torch.get_rng_state()
    values = _VALUES | {"new_state": state, "new_states": [state]}
    given = {parameter: values.get(parameter) for parameter, _ in declared[name]}
    function = getattr(torch.cuda, name)
    if name == "make_graphed_callables":
        with pytest.raises(Exception, match="emulat"):
            function(**given)
        return
    function(**given)
    function(*given.values())
    with pytest.raises(TypeError):
        function(**given, no_such_argument=1)
    if "device" in given:
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            function(**{**given, "device": "cuda:1"})
        with pytest.raises(ValueError, match="Expected a cuda device"):
            function(**{**given, "device": "cpu"})
    torch.set_rng_state(state)


def test_functions_are_replaced_where_they_are_defined_too(cuda: None) -> None:
    assert torch.cuda.memory.max_memory_allocated() == 0
    assert torch.cuda.random.get_rng_state().dtype == torch.uint8
    assert torch.cuda.graphs.graph is torch.cuda.graph


def test_a_stream_in_place_of_a_device_means_the_current_gpu(cuda: None) -> None:
    """As in torch, whose functions look for an index and take the current GPU's where there is none."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize(stream)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream(stream) == stream


def test_contexts_of_streams(cuda: None) -> None:
    stream = torch.cuda.Stream(device="cuda", priority=-1)
    context = torch.cuda.stream(stream)
    assert isinstance(context, torch.cuda.StreamContext) and isinstance(stream, torch.cuda.Stream)
    before = torch.cuda.current_stream(device=0)
    with context:
        assert torch.cuda.current_stream() == stream != before
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == before
    torch.cuda.set_stream(None)
    assert torch.cuda.current_stream() == before == torch.cuda.default_stream("cuda")


# -- torch.compile --------------------------------------------------------------------------------


def test_compiled_functions_run(cuda: None) -> None:
    @torch.compile
    def twice(x: torch.Tensor) -> torch.Tensor:
        """Twice as much."""
        return 2 * x + torch.zeros(4, device=x.device)

    @torch.compile(fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")
    def thrice(x: torch.Tensor, *, plus: float = 0) -> torch.Tensor:
        return 3 * x + plus

    x = torch.ones(4, device="cuda", requires_grad=True)
    assert twice(x).is_cuda and twice(x).tolist() == [2] * 4 and twice.__doc__ == "Twice as much."
    (gradient,) = torch.autograd.grad(thrice(x, plus=1).sum(), x)
    assert gradient.is_cuda and gradient.tolist() == [3] * 4
    assert twice(torch.ones(4)).tolist() == [2] * 4
    layer = torch.nn.Linear(2, 2, device="cuda")
    layer.compile()
    assert torch.compile(layer)(torch.ones(1, 2, device="cuda")).is_cuda


def test_dynamo_traces_where_only_streams_are_replaced() -> None:
    """Without `emulate` torch.compile is torch's own; it asks isinstance of torch.cuda.StreamContext."""
    compiled = torch.compile(lambda x: x * torch.tensor(2.0) + 1, backend="eager")
    assert compiled(torch.ones(3)).tolist() == [3] * 3


def test_wrong_uses_of_compile_are_told_as_by_torch(cuda: None) -> None:
    with pytest.raises(TypeError):
        torch.compile(lambda x: x, fullgraf=True)
    with pytest.raises(TypeError):
        torch.compile(3)


def test_it_is_said_once_that_nothing_is_compiled(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nf = torch.compile(lambda x: x + 1)\ng = torch.compile(lambda x: x * 2)\n"
        "print(f(g(torch.ones(1, device='cuda'))).item())\n"
    )
    root = Path(__file__).resolve().parents[2]
    command = warm.command("cutetut", "emulate", str(script))
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.stdout == "3.0\n" and done.stderr.count("torch.compile does nothing here") == 1


# -- products -------------------------------------------------------------------------------------


def _operands(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator).to(dtype).cuda() for shape in shapes]


def _double(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().double().numpy()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_with_a_wider_result(cuda: None, dtype: torch.dtype) -> None:
    """Against numpy in float64, which is exact but for 1e-16: a result rounded to 16 bits would be off by 1e-3."""
    a, b, c = _operands(dtype, (24, 300), (300, 40), (24, 40))
    product = _double(a) @ _double(b)
    wide = torch.mm(a, b, out_dtype=torch.float32)
    assert wide.is_cuda and wide.dtype == torch.float32
    np.testing.assert_allclose(_double(wide), product, atol=1e-4)
    np.testing.assert_allclose(_double(torch.mm(a, b, torch.float32)), product, atol=1e-4)
    batched = torch.bmm(a.expand(3, -1, -1), b.expand(3, -1, -1), out_dtype=torch.float32)
    np.testing.assert_allclose(_double(batched), np.stack([product] * 3), atol=1e-4)
    expected = 2 * product - 0.5 * _double(c)
    for third in (c, c.float()):
        summed = torch.addmm(third, a, b, out_dtype=torch.float32, alpha=2, beta=-0.5)
        np.testing.assert_allclose(_double(summed), expected, atol=2e-4)
    summed = torch.baddbmm(c[None], a[None], b[None], out_dtype=torch.float32, alpha=2, beta=-0.5)
    np.testing.assert_allclose(_double(summed), expected[None], atol=2e-4)
    out = torch.empty(24, 40, device="cuda")
    assert torch.mm(a, b, out_dtype=torch.float32, out=out) is out
    np.testing.assert_allclose(_double(out), product, atol=1e-4)
    narrow = torch.mm(a, b, out_dtype=dtype)
    assert narrow.dtype == dtype
    np.testing.assert_allclose(_double(narrow), product, rtol=2**-8, atol=1e-2)


def test_products_refuse_what_a_gpu_refuses(cuda: None) -> None:
    a, b = _operands(torch.float16, (4, 4), (4, 4))
    with pytest.raises(RuntimeError, match="same as input dtype or fp32"):
        torch.mm(a, b, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.mm(a, b.bfloat16(), out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="to add must be"):
        torch.addmm(a.double(), a, b, out_dtype=torch.float32)


def test_products_of_eight_bits_with_scales(cuda: None) -> None:
    a, b = _operands(torch.float8_e4m3fn, (32, 64), (48, 64))
    rows, columns = torch.rand(32, 1).cuda(), torch.rand(1, 48).cuda()
    product = _double(a.float()) @ _double(b.float()).T
    one, half = torch.ones((), device="cuda"), torch.full((), 0.5, device="cuda")
    for scale_a, scale_b in ((one, half), (rows, columns)):
        expected = product * _double(scale_a) * _double(scale_b)
        result = torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.float32)
        assert result.is_cuda
        np.testing.assert_allclose(_double(result), expected, atol=1e-4)
        result = torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)
        np.testing.assert_allclose(_double(result), expected, rtol=2**-8, atol=1e-4)


def test_products_of_groups(cuda: None) -> None:
    x, w = _operands(torch.bfloat16, (64, 16), (3, 16, 8))
    ends = torch.tensor([10, 40, 64], dtype=torch.int32, device="cuda")
    parts = [_double(x[first:last]) @ _double(w[i]) for i, (first, last) in enumerate([(0, 10), (10, 40), (40, 64)])]
    result = torch._grouped_mm(x, w, offs=ends)
    assert result.is_cuda
    np.testing.assert_allclose(_double(result), np.concatenate(parts), rtol=2**-8, atol=1e-2)


def test_attention(cuda: None) -> None:
    q, k, v = _operands(torch.bfloat16, (2, 3, 20, 16), (2, 3, 20, 16), (2, 3, 20, 16))
    scores = _double(q) @ _double(k).swapaxes(-1, -2) / 4
    scores[..., np.triu(np.ones((20, 20), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ _double(v)
    result = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert result.is_cuda
    np.testing.assert_allclose(_double(result), expected, atol=2e-2)


# -- torch.func -----------------------------------------------------------------------------------


CONTIGUOUS = torch.contiguous_format


@pytest.mark.parametrize(
    ("given", "named", "on_cuda", "dtype", "copies"),
    [
        (("cuda",), {}, True, torch.float32, False),
        (("cuda", None, False), {}, True, torch.float32, False),  # as Module.to has it
        (("cuda", None, False, True), {}, True, torch.float32, True),
        (("cuda", torch.float16, True, True), {}, True, torch.float16, True),
        ((torch.device("cuda", 0), torch.bfloat16), {"copy": True}, True, torch.bfloat16, True),
        ((0,), {"non_blocking": True}, True, torch.float32, False),
        ((torch.float16, False, True), {}, None, torch.float16, True),
        ((torch.float32,), {"non_blocking": True}, None, torch.float32, False),
        (("cpu", None, False, True), {}, False, torch.float32, True),
        ((None, torch.int32), {}, None, torch.int32, False),
        ((), {"device": "cuda", "dtype": torch.int64, "memory_format": CONTIGUOUS}, True, torch.int64, False),
        ((), {"dtype": torch.float16}, None, torch.float16, False),
    ],
)  # fmt: skip
def test_every_form_of_to(
    given: Any, named: Any, on_cuda: bool | None, dtype: torch.dtype, copies: bool, cuda: None
) -> None:
    host = torch.arange(6.0).reshape(2, 3)
    for tensor in (host, host.cuda()):
        moved = tensor.to(*given, **named)
        assert moved.dtype == dtype and moved.is_cuda == (tensor.is_cuda if on_cuda is None else on_cuda)
        assert moved.tolist() == host.to(dtype).tolist()
        same = dtype == torch.float32 and moved.is_cuda == tensor.is_cuda and not copies
        assert (moved is tensor) == same and (moved.data_ptr() == tensor.data_ptr()) == same
    like = torch.zeros(1, dtype=torch.float16, device="cuda")
    for moved in (host.to(like), host.to(like, False), host.to(tensor=like, copy=True)):
        assert moved.is_cuda and moved.dtype == torch.float16


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}])
def test_an_optimizer_takes_the_same_steps_as_on_the_host(options: Any, cuda: None) -> None:
    results = []
    for where in ("cpu", "cuda"):
        layer = torch.nn.Linear(3, 2).to(where)
        with torch.no_grad():
            layer.weight.fill_(0.5), layer.bias.zero_()
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, **(options if where == "cuda" else {}))
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.arange(6.0, device=where).reshape(2, 3)).square().sum().backward()
            optimizer.step()
        results.append(layer.weight.detach().cpu())
        assert layer.weight.is_cuda == (where == "cuda")
    torch.testing.assert_close(*results)


def test_modules_move_as_a_whole(cuda: None) -> None:
    layer = torch.nn.Linear(2, 3)
    wanted = layer.weight.detach().clone()
    for where in ("cuda", torch.device("cuda"), 0, torch.accelerator.current_accelerator()):
        assert layer.to(where).weight.is_cuda and layer.bias.dtype == torch.float32
        assert not layer.to("cpu").weight.is_cuda and torch.equal(layer.weight, wanted)
    assert layer.to("cuda", torch.float16).weight.dtype == torch.float16 and layer.bias.is_cuda


def test_vmap_and_gradients_of_functions(cuda: None) -> None:
    x = torch.arange(6.0, device="cuda").reshape(2, 3)

    def row(r: torch.Tensor) -> torch.Tensor:
        assert r.is_cuda
        made = torch.empty_like(r).fill_(1) + torch.zeros(3, device=r.device) + r.new_ones(3)
        return r * made

    doubled = torch.vmap(row)(x)
    assert doubled.is_cuda and doubled.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert torch.vmap(lambda a, b: a + b, in_dims=(1, None))(x, x[:, 0]).shape == (3, 2)
    gradient = torch.func.grad(lambda r: (row(r) ** 2).sum())(x[1])
    assert gradient.is_cuda and gradient.tolist() == [24, 32, 40]
    per_row = torch.vmap(torch.func.grad(lambda r: row(r).sum()))(x)
    assert per_row.is_cuda and per_row.tolist() == [[2] * 3] * 2
    assert not torch.vmap(lambda r: r + 1)(torch.ones(2, 2)).is_cuda


def test_flex_attention(cuda: None) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    (q,) = _operands(torch.float32, (1, 2, 64, 16))
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 64, 64, device="cuda", BLOCK_SIZE=16)
    blocks = mask.to_dense()
    assert blocks.is_cuda and torch.equal(blocks[0, 0].cpu(), torch.ones(4, 4).tril().to(blocks.dtype))
    result = flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -float("inf")))
    assert result.is_cuda
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(result, expected)
