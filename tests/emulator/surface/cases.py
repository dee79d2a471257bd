"""One kernel around one public operation of CuTe DSL, and an oracle: what the sweep of the surface is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cutlass.cute as cute
import numpy as np
import torch
from cutlass.cute.runtime import from_dlpack

WARP = 32


@dataclass(frozen=True)
class Case:
    """`check(device)` runs it and asserts; `covers` names the public operations it is a test of."""

    covers: tuple[str, ...]
    check: Callable[[str], None]


CASES: dict[str, Case] = {}
REFUSED: dict[str, Case] = {}  # operations that the compiler itself refuses for sm_90a: check only compiles


def register(name: str, check: Callable[[str], None], covers: Sequence[str] = ()) -> None:
    """Add a case; it covers the operation its name begins with ("arch.popc, 64 bits"), or those given."""
    if name in CASES:
        raise ValueError(f"two cases are named {name}")
    CASES[name] = Case(tuple(covers) or (name.split(",")[0],), check)


def case(name: str, *covers: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """Register a function of the device as a case."""

    def decorate(check: Callable[[str], None]) -> Callable[[str], None]:
        register(name, check, covers)
        return check

    return decorate


def refused(name: str, check: Callable[[str], None]) -> None:
    """Add an operation that does not exist on sm_90a."""
    REFUSED[name] = Case((name.split(",")[0],), check)


def launch(
    body: Callable[..., None], tensors: Sequence[torch.Tensor], *, threads: int = WARP, cluster: int = 1, grid: int = 1
) -> None:
    """Run body(thread number, *CuTe tensors) on `grid` CTAs; it is traced, so it may hold no dynamic `if`."""

    @cute.kernel
    def kernel(arguments: list):
        tid, _, _ = cute.arch.thread_idx()
        body(tid, *arguments)

    @cute.jit
    def host(arguments: list):
        kernel(arguments).launch(grid=(grid, 1, 1), block=(threads, 1, 1), cluster=(cluster, 1, 1))

    host([from_dlpack(tensor, assumed_align=16) for tensor in tensors])


def numpy_of(tensor: torch.Tensor) -> np.ndarray:
    """Integers as they are, floats as float64."""
    return (tensor.double() if tensor.is_floating_point() else tensor).cpu().numpy()


def per_thread(
    name: str, operation: Callable, inputs: Sequence[torch.Tensor], out: torch.dtype, want: Callable,
    tolerance: float = 0.0, covers: Sequence[str] = (),
) -> None:  # fmt: skip
    """A case of one value, or a tuple of them, per thread: operation(*values) against want(*arrays).

    Integers must agree bit for bit, floats within `tolerance` (relative; 0: exactly).
    """

    def check(device: str) -> None:
        expected = want(*(numpy_of(x) for x in inputs))
        columns = list(expected) if isinstance(expected, tuple) else [expected]
        result = torch.zeros((WARP, len(columns)), dtype=out, device=device)

        def body(tid, *tensors):
            values = operation(*(x[tid] for x in tensors[:-1]))
            for column, value in enumerate(values if isinstance(values, (tuple, list)) else (values,)):
                tensors[-1][tid, column] = value

        launch(body, [*(x.to(device) for x in inputs), result])
        for column, values in enumerate(columns):
            same(numpy_of(result[:, column]), np.broadcast_to(values, WARP), tolerance, f"{name}, result {column}")

    register(name, check, covers)


def same(got: np.ndarray, want: np.ndarray, tolerance: float = 0.0, note: str = "") -> None:
    """Integers are compared as bits of got's width, floats within a relative tolerance."""
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, np.asarray(want, np.float64), rtol=tolerance, atol=tolerance, err_msg=note)
        return
    width = 8 * got.dtype.itemsize
    wrapped = np.array([int(v) % (1 << width) for v in np.asarray(want).ravel()], object)
    actual = np.array([int(v) % (1 << width) for v in got.ravel()], object)
    np.testing.assert_array_equal(actual, wrapped, err_msg=note)


def by_vector(
    name: str, operation: Callable, source: torch.Tensor, out: torch.dtype, columns: int, want: np.ndarray,
    covers: Sequence[str] = (),
) -> None:  # fmt: skip
    """A case of one MLIR vector per thread: a row of `source` in, a row of `columns` values out."""

    def check(device: str) -> None:
        result = torch.zeros((WARP, columns), dtype=out, device=device)
        width = source.shape[1]

        def body(tid, x, y):
            row = cute.make_rmem_tensor(width, x.element_type)
            for i in range(width):
                row[i] = x[tid, i]
            values = cute.make_rmem_tensor(columns, y.element_type)
            values.store(cute.TensorSSA(operation(row.load()), (columns,), y.element_type))
            for i in range(columns):
                y[tid, i] = values[i]

        launch(body, [source.to(device), result])
        same(numpy_of(result), want, note=name)

    register(name, check, covers)


def integers(
    seed: int, dtype: torch.dtype = torch.int32, low: int | None = None, high: int | None = None
) -> torch.Tensor:
    """32 random integers, of the type's whole range by default."""
    info = torch.iinfo(dtype)
    generator = np.random.default_rng(seed)
    values = generator.integers(info.min if low is None else low, info.max if high is None else high, WARP, np.int64)
    return torch.from_numpy(values).to(dtype)


def quarters(seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """32 random multiples of 1/4 below 2: their sums, products and fused multiply-adds are exact in every format."""
    return (integers(seed, torch.int32, -7, 8) / 4).to(dtype)
