"""cuBLASLt beside torch: the fastest of the algorithms that its heuristics propose for C = A B^T.

torch.matmul takes the heuristics' first proposal. cuBLASLt proposes more, and whoever calls it directly may time them.
The library is the one that torch has loaded; constants are those of cublasLt.h and library_types.h of CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WORKSPACE = 64 << 20  # bytes that an algorithm may use
PROPOSALS = 32  # algorithms that the heuristics are asked for
FINALISTS = 4  # algorithms that are timed twice

COMPUTE_32F, SCALE_32F = 68, 0  # cublasComputeType_t, and cudaDataType_t of alpha and beta
TRANSPOSE_A = 3  # cublasLtMatmulDescAttributes_t: TRANSA
SCALE_OF_A, SCALE_OF_B, FAST_ACCUMULATION = 17, 18, 25  # the same: A_SCALE_POINTER, B_SCALE_POINTER, FAST_ACCUM
MAX_WORKSPACE = 1  # cublasLtMatmulPreferenceAttributes_t
TYPES = {"torch.float32": 0, "torch.float16": 2, "torch.bfloat16": 14, "torch.float8_e4m3fn": 28}  # cudaDataType_t

Pointer = ctypes.c_void_p
Launch = Callable[[], Any]


class LtError(RuntimeError):
    """cuBLASLt is not there, refuses a product, or proposes nothing for it."""


class Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm, the workspace it needs, and whether it can be used (state 0)."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


def library(maps: str = "/proc/self/maps") -> Any:
    """The libcublasLt of this process. Raises LtError unless torch has loaded one."""
    for line in Path(maps).read_text().splitlines():
        if "libcublasLt.so" in line:
            return ctypes.CDLL(line.split(maxsplit=5)[-1])
    raise LtError("torch has not loaded libcublasLt: multiply two matrices on the GPU first")


def version(lt: Any) -> str:
    """The library's version, such as 13.1.0: cublasLtGetVersion gives 10000 * major + 100 * minor + patch."""
    lt.cublasLtGetVersion.restype = ctypes.c_size_t
    number = int(lt.cublasLtGetVersion())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


class Product:
    """C = A B^T for A (M, K), B (N, K) and C (M, N), row-major and on the GPU, by any proposed algorithm.

    cuBLAS is column-major: it computes C^T = B A^T. Sums are float32; float8 products use fast
    accumulation, as `_scaled_mm` does with `use_fast_accum`, with scales of 1 on the GPU. Raises LtError for types that
    cuBLASLt does not take, and if it proposes nothing.
    """

    def __init__(
        self, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, count: int = PROPOSALS, lt: Any = None
    ) -> None:
        import torch

        (M, K), N = A.shape, B.shape[0]
        self._lt = lt or library()
        self._tensors = A, B, C
        self._workspace = A.new_empty(WORKSPACE, dtype=torch.uint8)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._handle = self._made("cublasLtCreate")
        self._product = self._made("cublasLtMatmulDescCreate", COMPUTE_32F, SCALE_32F)
        self._set("cublasLtMatmulDescSetAttribute", self._product, TRANSPOSE_A, ctypes.c_int32(1))
        if str(A.dtype) == "torch.float8_e4m3fn":
            self._scale = A.new_ones(1, dtype=torch.float32)
            for attribute in (SCALE_OF_A, SCALE_OF_B):
                self._set("cublasLtMatmulDescSetAttribute", self._product, attribute, Pointer(self._scale.data_ptr()))
            self._set("cublasLtMatmulDescSetAttribute", self._product, FAST_ACCUMULATION, ctypes.c_int8(1))
        self._layouts = [self._layout(t, rows, columns) for t, rows, columns in ((B, K, N), (A, K, M), (C, N, M))]
        self.proposals = self._proposed(count)

    def launch(self, proposal: Proposal) -> Launch:
        """A function without arguments that writes C by one algorithm, on torch's current stream."""
        import torch

        A, B, C = (Pointer(t.data_ptr()) for t in self._tensors)
        b, a, c = self._layouts
        one, zero, algorithm = (ctypes.byref(x) for x in (self._one, self._zero, proposal.algorithm))
        workspace = Pointer(self._workspace.data_ptr()), ctypes.c_size_t(WORKSPACE)

        def go() -> None:
            stream = Pointer(torch.cuda.current_stream().cuda_stream)
            operands = one, B, b, A, a, zero, C, c, C, c
            self._call("cublasLtMatmul", self._handle, self._product, *operands, algorithm, *workspace, stream)

        return go

    def usable(self) -> list[Proposal]:
        """The proposals that run; launches each once. Raises LtError if none does."""
        found = []
        for proposal in self.proposals:
            try:
                self.launch(proposal)()
            except LtError:  # proposed, and then refused
                continue
            found.append(proposal)
        if not found:
            raise LtError("no proposed algorithm runs")
        return found

    def best(self, seconds: Callable[[Launch, int], float], launches: int) -> Launch:
        """The fastest algorithm's launch, by `seconds(launch, launches)`. Raises LtError if none runs."""
        return fastest([self.launch(proposal) for proposal in self.usable()], seconds, launches)

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._lt, name)(*arguments):
            raise LtError(f"{name} failed with cublasStatus_t {status}")

    def _made(self, name: str, *arguments: Any) -> Pointer:
        made = Pointer()
        self._call(name, ctypes.byref(made), *arguments)
        return made

    def _set(self, name: str, target: Pointer, attribute: int, value: Any) -> None:
        self._call(name, target, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _layout(self, t: torch.Tensor, rows: int, columns: int) -> Pointer:
        """A column-major matrix of these rows, without gaps."""
        if str(t.dtype) not in TYPES:
            raise LtError(f"no cudaDataType_t is known here for {t.dtype}")
        size = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        return self._made("cublasLtMatrixLayoutCreate", TYPES[str(t.dtype)], *size)

    def _proposed(self, count: int) -> list[Proposal]:
        wish = self._made("cublasLtMatmulPreferenceCreate")
        self._set("cublasLtMatmulPreferenceSetAttribute", wish, MAX_WORKSPACE, ctypes.c_size_t(WORKSPACE))
        found, number = (Proposal * count)(), ctypes.c_int()
        b, a, c = self._layouts
        asked = self._handle, self._product, b, a, c, c, wish, count, found, ctypes.byref(number)
        self._call("cublasLtMatmulAlgoGetHeuristic", *asked)
        usable = [found[i] for i in range(number.value) if found[i].state == 0]
        if not usable:
            raise LtError("cuBLASLt proposes no algorithm")
        return usable


def fastest(candidates: Sequence[Launch], seconds: Callable[[Launch, int], float], launches: int) -> Launch:
    """The candidate of least time: all are warmed up and timed once, the best few a second time, which counts."""
    first = []
    for candidate in candidates:
        seconds(candidate, 2)
        first.append((seconds(candidate, launches), candidate))
    finalists = [candidate for _, candidate in sorted(first, key=lambda timed: timed[0])[:FINALISTS]]
    return min(finalists, key=lambda candidate: seconds(candidate, launches))
