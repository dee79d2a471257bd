"""cuBLASLt's column: what is asked of the library, which algorithm is taken, what is refused; graphs of launches."""

from __future__ import annotations

import ctypes
import gc
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutetut.measure import bench, cublaslt, graphs
from cutetut.measure.cublaslt import LtError, Product


class Library:
    """A libcublasLt that notes what it is asked: three proposals, the second of which cannot be used."""

    def __init__(self, states: tuple[int, ...] = (0, 1, 0), refuses: int = -1) -> None:
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.states, self.refuses, self.made = states, refuses, 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.log.append((name, arguments))
            if name.endswith("Create"):
                self.made += 1
                arguments[0]._obj.value = self.made
            if name == "cublasLtMatmulAlgoGetHeuristic":
                found, number = arguments[-2], arguments[-1]._obj
                for i, state in enumerate(self.states):
                    found[i].state, found[i].algorithm[0] = state, i
                number.value = len(self.states)
            if name == "cublasLtMatmul":
                return 7 if arguments[12]._obj[0] == self.refuses else 0
            return 0

        return call

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.log if called == name]


class Stream:
    cuda_stream = 5


def operands(dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    A, B, C = (torch.zeros(shape).to(dtype) for shape in ((3, 8), (5, 8), (3, 5)))
    return A, B, C


def test_it_asks_for_the_transposed_product_of_row_major_matrices() -> None:
    A, B, C = operands()
    lt = Library()
    Product(A, B, C, count=4, lt=lt)
    sizes = [[getattr(x, "value", x) for x in arguments[1:]] for arguments in lt.of("cublasLtMatrixLayoutCreate")]
    assert sizes == [[14, 8, 5, 8], [14, 8, 3, 8], [14, 5, 3, 5]]  # B, A and C: type, rows, columns, distance
    (attribute,) = lt.of("cublasLtMatmulDescSetAttribute")
    assert attribute[1] == 3 and attribute[2]._obj.value == 1 and attribute[3].value == 4  # the first is transposed
    (asked,) = lt.of("cublasLtMatmulAlgoGetHeuristic")
    assert [getattr(x, "value", x) for x in asked[2:6]] == [3, 4, 5, 5] and asked[7] == 4
    lt = Library()
    product = Product(A.to(torch.float8_e4m3fn), B.to(torch.float8_e4m3fn), C, lt=lt)
    of_float8 = lt.of("cublasLtMatmulDescSetAttribute")[1:]
    assert [(attribute[1], attribute[3].value) for attribute in of_float8] == [(17, 8), (18, 8), (25, 1)]  # cublasLt.h
    scales = [ctypes.cast(attribute[2]._obj, ctypes.POINTER(ctypes.c_float))[0] for attribute in of_float8[:2]]
    assert scales == [1.0, 1.0] == [float(product._scale)] * 2 and of_float8[2][2]._obj.value == 1


def test_unusable_and_refused_proposals_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream)
    lt = Library(refuses=2)
    product = Product(*operands(), lt=lt)
    assert [proposal.algorithm[0] for proposal in product.proposals] == [0, 2]
    product.best(lambda launch, launches: 1.0, 3)()
    A, B, C = (t.data_ptr() for t in product._tensors)
    last = lt.of("cublasLtMatmul")[-1]
    assert [last[i].value for i in (3, 5, 8, 10)] == [B, A, C, C]  # cuBLAS' first operand is our B
    assert last[12]._obj[0] == 0 and last[15].value == 5  # the algorithm that runs, on torch's stream


def test_what_cannot_be_done_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream)
    with pytest.raises(LtError, match="proposes no algorithm"):
        Product(*operands(), lt=Library(states=(1,)))
    with pytest.raises(LtError, match="no proposed algorithm runs"):
        Product(*operands(), lt=Library(states=(0,), refuses=0)).best(lambda launch, launches: 1.0, 3)
    with pytest.raises(LtError, match=r"no cudaDataType_t is known here for torch\.int32"):
        Product(*operands(torch.int32), lt=Library())
    (tmp_path / "maps").write_text("7f00-7f01 r-xp 0 0:0 1 /usr/lib/libc.so.6\n")
    with pytest.raises(LtError, match="has not loaded libcublasLt"):
        cublaslt.library(str(tmp_path / "maps"))


def test_the_fastest_is_the_best_of_the_finalists_second_times() -> None:
    cost: dict[Any, list[float]] = {
        "a": [9.0, 0.1], "b": [2.0, 4.0], "c": [3.0, 1.0], "d": [4.0, 5.0], "e": [5.0, 2.0]
    }  # fmt: skip
    seen: dict[str, int] = {}

    def seconds(launch: Any, launches: int) -> float:
        if launches == 2:  # to warm up
            return 0.0
        seen[launch] = seen.get(launch, 0) + 1
        return cost[launch][seen[launch] - 1]

    assert str(cublaslt.fastest(list(cost), seconds, 9)) == "c"  # "a" was not among the four best
    assert seen == {"a": 1, "b": 2, "c": 2, "d": 2, "e": 2}


def test_the_structure_has_the_size_of_the_header() -> None:
    assert ctypes.sizeof(cublaslt.Proposal) == 64 + 8 + 4 + 4 + 16  # the last is int[4]
    assert cublaslt.version(SimpleNamespace(cublasLtGetVersion=lambda: 130102)) == "13.1.2"


def test_a_graph_needs_launches() -> None:
    with pytest.raises(ValueError, match="a graph needs a launch"):
        graphs.captured([])


class Workspace:
    """A launch that owns what it needs, as cuBLASLt's does."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1


def test_a_graph_keeps_what_its_launches_need(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, stands_in in {
        "Stream": object, "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None), "synchronize": lambda: None,
        "stream": lambda stream: nullcontext(), "graph": lambda graph, stream: nullcontext(),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stands_in)
    launch = Workspace()
    alive = weakref.ref(launch)
    replay = graphs.captured([launch])
    assert launch.runs == 2  # once before, and captured
    del launch
    gc.collect()
    replay()
    assert alive() is not None
    del replay
    gc.collect()
    assert alive() is None


@pytest.mark.gpu
def test_on_a_gpu_a_graph_of_a_library_outlives_its_products() -> None:
    A = torch.randn(16, 4096, device="cuda").bfloat16()  # for so few rows cuBLASLt proposes to split K: a workspace
    B = torch.randn(4096, 4096, device="cuda").bfloat16()
    C, expected = torch.empty(16, 4096, device="cuda", dtype=torch.bfloat16), A @ B.T
    product = Product(A, B, C)
    usable = product.usable()
    assert any(proposal.workspace for proposal in usable)
    replays = [graphs.captured([product.launch(proposal)]) for proposal in usable]
    del product, usable
    torch.cuda.empty_cache()  # as the next capture does
    for replay in replays:
        C.fill_(torch.nan)
        replay()
        assert torch.allclose(C.float(), expected.float(), atol=0.5, rtol=2e-2)  # NaN fails


@pytest.mark.gpu
def test_on_a_gpu_float8_is_what_scaled_mm_computes() -> None:
    A, B = (torch.randn(rows, 512, device="cuda").to(torch.float8_e4m3fn) for rows in (384, 640))
    C, one = torch.empty(384, 640, device="cuda", dtype=torch.bfloat16), torch.ones((), device="cuda")
    expected = torch._scaled_mm(A, B.T, one, one, out_dtype=C.dtype, use_fast_accum=True)
    product = Product(A, B, C)
    for proposal in product.usable():
        C.fill_(torch.nan)
        product.launch(proposal)()
        assert torch.allclose(C.float(), expected.float(), atol=0.5, rtol=2e-2)  # NaN fails


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_on_a_gpu_every_algorithm_and_a_graph_of_two_give_the_product(dtype: torch.dtype) -> None:
    A, B = (torch.randn(rows, 512, device="cuda", dtype=dtype) for rows in (384, 640))
    C, expected = torch.full((384, 640), torch.nan, device="cuda", dtype=dtype), A @ B.T
    product = Product(A, B, C)
    for proposal in product.proposals:
        C.fill_(torch.nan)
        product.launch(proposal)()
        assert torch.allclose(C.float(), expected.float(), atol=0.5, rtol=2e-2)  # NaN fails
    replay = graphs.captured([product.best(bench.CudaTimer().seconds, 3)] * 2)
    C.fill_(torch.nan)
    replay()
    assert torch.allclose(C.float(), expected.float(), atol=0.5, rtol=2e-2)
