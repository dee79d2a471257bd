"""Memory that nobody has written: reading it is an error, whoever may have written it is found out from its bytes.

The oracle is what CUDA and torch document: torch.empty and cudaMalloc give memory without values; every other way of
making or filling a tensor writes it.
"""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import cuda.bindings.runtime as cudart
import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cutlass.cute.runtime import from_dlpack, make_ptr

from cutetut.emulator import launch, ptx
from cutetut.emulator.errors import Uninitialized
from cutetut.emulator.host import fresh, live
from cutetut.emulator.machine.memory import GlobalMemory

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("device_memory")]

N = 32


@cute.kernel
def increment_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] + 1


@cute.jit
def increment(x: cute.Tensor):
    increment_kernel(x).launch(grid=(1, 1, 1), block=(N, 1, 1))


@cute.jit
def increment_at(pointer: cute.Pointer):
    increment_kernel(cute.make_tensor(pointer, cute.make_layout(N))).launch(grid=(1, 1, 1), block=(N, 1, 1))


@cute.kernel
def fill_and_increment_kernel(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = 4.0
    x[i] = x[i] + 1


@cute.jit
def fill_and_increment(x: cute.Tensor):
    fill_and_increment_kernel(x).launch(grid=(1, 1, 1), block=(N, 1, 1))


@cute.kernel
def copy_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[i]


@cute.jit
def copy(x: cute.Tensor, y: cute.Tensor):
    copy_kernel(x, y).launch(grid=(1, 1, 1), block=(N, 1, 1))


@cute.kernel
def exchange_kernel(x: cute.Tensor, part: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    if cta == 0:
        y[i] = part[i]  # nothing waits for the other CTA
    else:
        part[i] = x[i]  # which leaves its part here


@cute.jit
def exchange(x: cute.Tensor, part: cute.Tensor, y: cute.Tensor):
    exchange_kernel(x, part, y).launch(grid=(2, 1, 1), block=(N, 1, 1))


def empty(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(N, dtype=dtype, device="cuda")


# -- what is told ---------------------------------------------------------------------------------


MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "empty": empty,
    "empty with gradients": lambda: torch.empty(N, device="cuda", requires_grad=True).detach(),
    "empty_like": lambda: torch.empty_like(torch.ones(N, device="cuda")),
    "empty_like of the host": lambda: torch.empty_like(torch.ones(N), device="cuda"),
    "empty_strided": lambda: torch.empty_strided((N,), (1,), device="cuda"),
    "new_empty": lambda: torch.ones(1, device="cuda").new_empty(N),
    "new_empty_strided": lambda: torch.ones(1, device="cuda").new_empty_strided((N,), (1,)),
    "default device": lambda: _on_default_device(),
    "a view": lambda: torch.empty(4, N, device="cuda")[2],
}


def _on_default_device() -> torch.Tensor:
    with torch.device("cuda"):
        return torch.empty(N)


def test_who_should_have_written_it_is_named() -> None:
    """A workspace is torch.empty on purpose: what is wrong is that the reader does not wait for the writer."""
    tensors = [from_dlpack(t) for t in (torch.ones(N, device="cuda"), empty(), torch.zeros(N, device="cuda"))]
    with pytest.raises(Uninitialized, match="load of 4 bytes reads memory of part .*nobody has written") as caught:
        exchange(*tensors)
    text = str(caught.value)
    assert "this kernel writes there:" in text and "part[i] = x[i]  # which leaves its part here" in text
    assert "the wait for those threads of this kernel that will write it" in text
    assert [side.line for side in caught.value.report.sides] == [_line("# nothing waits"), _line("# which leaves")]


def _line(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if mark in line)


@pytest.mark.parametrize("maker", MAKERS)
def test_accumulating_into_new_memory_is_told(maker: str) -> None:
    with pytest.raises(Uninitialized) as caught:
        increment(from_dlpack(MAKERS[maker]()))
    text = str(caught.value)
    assert "load of 4 bytes reads memory of" in text and "that nobody has written" in text
    assert "Look at: torch.zeros, or write it first" in text and "x[i] = x[i] + 1" in text


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.bool, torch.float16, torch.bfloat16, torch.int32, torch.float64]
)
def test_every_width_is_told(dtype: torch.dtype) -> None:
    x, y = empty(dtype), torch.zeros(N, dtype=dtype, device="cuda")
    if dtype == torch.bool:
        x, y = x.view(torch.uint8), y.view(torch.uint8)
    with pytest.raises(Uninitialized):
        copy(from_dlpack(x), from_dlpack(y))
    assert not y.any()
    x.zero_()
    copy(from_dlpack(x), from_dlpack(y))


def test_new_memory_of_the_runtime_is_told_until_it_is_set() -> None:
    status, address = cudart.cudaMalloc(4 * N)
    assert int(status) == 0
    pointer = make_ptr(cutlass.Float32, int(address), cute.AddressSpace.gmem, assumed_align=4)
    with pytest.raises(Uninitialized, match=f"memory of allocation of {4 * N} bytes"):
        increment_at(pointer)
    cudart.cudaMemset(address, 0, 4 * N)
    increment_at(pointer)
    assert np.ctypeslib.as_array((ctypes.c_float * N).from_address(int(address))).tolist() == [1] * N
    cudart.cudaFree(address)


def test_only_a_part_that_is_new_is_told() -> None:
    x = torch.empty(2 * N, device="cuda")
    x[:N] = 3
    increment(from_dlpack(x[:N]))
    assert x[:N].tolist() == [4] * N
    with pytest.raises(Uninitialized):
        increment(from_dlpack(x[N:]))


# -- what is not ----------------------------------------------------------------------------------


def _fill_through_numpy(x: torch.Tensor) -> None:
    np.ctypeslib.as_array((ctypes.c_float * N).from_address(x.data_ptr()))[:] = 2


def _fill_by_slices(x: torch.Tensor) -> None:
    x[::2] = 1
    x[1::2] = torch.arange(N // 2, dtype=torch.float32, device="cuda")


WRITERS: dict[str, Callable[[torch.Tensor], object]] = {
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(torch.ones(N)),
    "random_": lambda x: x.random_(),
    "normal_": lambda x: x.normal_(),
    "slices": _fill_by_slices,
    "numpy": _fill_through_numpy,
    "out": lambda x: torch.add(torch.ones(N, device="cuda"), 1, out=x),
    "half of every word": lambda x: x[::2].fill_(1),
    "not a number": lambda x: x.fill_(float("nan")),
    "all ones": lambda x: x.view(torch.int32).fill_(-1),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_torch_or_numpy_has_written_can_be_read(writer: str) -> None:
    x = empty()
    WRITERS[writer](x)
    expected = x.cpu() + 1
    increment(from_dlpack(x))
    torch.testing.assert_close(x.cpu(), expected, equal_nan=True)


def test_what_a_kernel_has_written_can_be_read() -> None:
    x = empty()
    fill_and_increment(from_dlpack(x))
    increment(from_dlpack(x))
    y = empty()
    copy(from_dlpack(x), from_dlpack(y))
    assert y.tolist() == [6] * N


def test_tensors_with_values_are_never_new() -> None:
    for x in (torch.zeros(N, device="cuda"), torch.full((N,), 2.0).cuda(), empty().clone(), torch.ones(N).to("cuda")):
        increment(from_dlpack(x))


# -- atomics, vectors and the shape of words --------------------------------------------------------

_PTX = """.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 p) {{ .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<4>;
mov.b32 %r0, 1; ld.param.b64 %rd0, [p]; {lines} ret; }}"""


def run(lines: str, words: list[int], base: np.ndarray) -> None:
    """One thread; of the words at `base` those with these numbers are new."""
    module, memory = ptx.parse(_PTX.format(lines=lines)), GlobalMemory()
    memory.add(base.ctypes.data, base.nbytes, "p (64,) uint64")
    memory.fresh = lambda addresses: np.isin((addresses - base.ctypes.data) // 8, words)
    pointer = int(base.ctypes.data).to_bytes(8, "little")
    launch.launch(module, "k", grid=(1, 1, 1), block=(1, 1, 1), params=[pointer], memory=memory)


@pytest.mark.parametrize(
    ("lines", "words", "told"),
    [
        ("ld.global.b32 %r1, [%rd0];", [0], True),
        ("ld.global.b32 %r1, [%rd0 + 8];", [0], False),
        ("ld.b32 %r1, [%rd0 + 4];", [0], True),
        ("ld.relaxed.gpu.global.b32 %r1, [%rd0];", [0], True),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0];", [0, 1], True),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0];", [1], False),
        ("st.global.b32 [%rd0], %r0;", [0], False),
        ("red.global.add.u32 [%rd0], %r0;", [0], True),
        ("atom.global.cas.b32 %r1, [%rd0], %r0, %r0;", [0], True),
        ("atom.global.exch.b32 %r1, [%rd0], %r0;", [0], False),
    ],
)
def test_which_instructions_need_written_memory(lines: str, words: list[int], told: bool) -> None:
    base = np.zeros(66, np.uint64)
    base = base[base.ctypes.data % 16 // 8 :][:64]  # vectors need multiples of 16
    if not told:
        return run(lines, words, base)
    with pytest.raises(Uninitialized, match=r"memory of p \(64,\) uint64"):
        run(lines, words, base)


# -- what is remembered ---------------------------------------------------------------------------


def watched(*tensors: torch.Tensor) -> GlobalMemory:
    memory = GlobalMemory()
    for tensor in tensors:
        memory.add(tensor.data_ptr(), tensor.nbytes, "x")
    fresh.watch(memory)
    return memory


def words_of(tensor: torch.Tensor) -> np.ndarray:
    return np.arange(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, 8)


def test_words_are_told_one_by_one() -> None:
    x = torch.empty(100_000, dtype=torch.int64, device="cuda")
    memory = watched(x)
    assert memory.fresh is not None and memory.fresh(words_of(x)).all()
    x[5000] = 0
    x[77_777] = int(x[77_776])
    assert np.flatnonzero(~memory.fresh(words_of(x))).tolist() == [5000, 77_777]
    assert not memory.fresh(words_of(torch.zeros(9, dtype=torch.int64, device="cuda"))).any()


def test_nothing_is_asked_when_nothing_new_can_be_reached() -> None:
    x, y = empty(), torch.ones(N, device="cuda")
    assert watched(y).fresh is None
    assert watched(x, y).fresh is not None
    x.zero_()
    assert watched(x, y).fresh is None


def test_memory_is_forgotten_with_its_tensor() -> None:
    fresh.clear()
    x = torch.empty(8 * N, device="cuda")
    address, view = x.data_ptr(), x[N:]
    del x
    gc.collect()
    fresh._sweep()
    assert address in fresh._ranges, "a view holds the memory"
    del view
    gc.collect()
    fresh._sweep()
    assert address not in fresh._ranges and address not in fresh._order
    buffer = live.allocate(64)
    assert buffer in fresh._ranges
    live.free(buffer)
    assert buffer not in fresh._ranges


def test_memory_that_comes_again_belongs_to_the_later_tensor() -> None:
    """Whatever the order: freed memory may come again as a larger or a smaller piece."""
    fresh.clear()
    room = np.zeros(1000, np.uint64)
    base, generator = int(room.ctypes.data), np.random.default_rng(5)
    held: dict[int, int] = {}
    for _ in range(500):
        start, size = (int(v) for v in generator.integers(1, 100, 2))
        held = {s: n for s, n in held.items() if s + n <= start or s >= start + size} | {start: size}
        fresh.remember(base + 8 * start, 8 * size)
        assert fresh._order == sorted(fresh._ranges) == sorted(base + 8 * s for s in held)
    memory = GlobalMemory()
    memory.add(base, room.nbytes, "x")
    fresh.watch(memory)
    assert memory.fresh is not None
    found = memory.fresh(base + 8 * np.arange(1000))
    assert np.flatnonzero(found).tolist() == sorted(w for s, n in held.items() for w in range(s, s + n))
    for start in held:
        fresh.forget(base + 8 * start)


def test_new_memory_is_no_number() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert torch.empty(1000, dtype=dtype, device="cuda").isnan().all()
    words = torch.empty(4096, dtype=torch.int64, device="cuda")
    assert len(set(words.tolist())) == 4096, "each depends on its address"


def test_odd_sizes_end_with_a_whole_word() -> None:
    x = torch.empty(3, dtype=torch.bfloat16, device="cuda")
    assert x.untyped_storage().nbytes() == 6
    memory = watched(x)
    word = np.array([x.data_ptr()])
    assert memory.fresh is not None and memory.fresh(word).all()
    x[2] = 1
    assert not memory.fresh(word).any()
    assert torch.empty(0, device="cuda").numel() == 0
    assert torch.empty((), dtype=torch.bool, device="cuda").shape == ()
