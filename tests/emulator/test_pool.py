"""Device memory outlives its tensor, as in PyTorch's caching allocator; using it then is a warning."""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import warnings
from collections.abc import Iterator

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import make_ptr

from cutetut.emulator.errors import EmulatorWarning, OutOfBounds
from cutetut.emulator.host import cuda_torch, live, pool
from cutetut.emulator.host.patches import Patches

pytestmark = pytest.mark.emulator


@cute.kernel
def increment(x: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    x[i] = x[i] + 1


@cute.jit
def run_increment(pointer: cute.Pointer):
    increment(cute.make_tensor(pointer, cute.make_layout(32))).launch(grid=(1, 1, 1), block=(32, 1, 1))


def launch(address: int) -> None:
    run_increment(make_ptr(cutlass.Float32, address, cute.AddressSpace.gmem, assumed_align=4))


@pytest.fixture(autouse=True)
def cuda_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    patches = Patches()
    monkeypatch.setattr(live, "on_device", cuda_torch.marked)
    monkeypatch.setattr(live, "lookup", pool.find)
    with cuda_torch.whole_device(patches):
        yield
    patches.restore()
    pool.clear()


def test_a_pointer_to_a_tensor_on_the_device() -> None:
    x = torch.zeros(32, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(x.data_ptr())
        launch(x.view(4, 8).data_ptr())
    assert x.tolist() == [2] * 32


def test_freed_memory_can_be_used_with_a_warning() -> None:
    x = torch.ones(32, device="cuda")
    address = x.data_ptr()
    del x
    with pytest.warns(EmulatorWarning, match=r"a tensor \(32,\) float32, which has been freed"):
        launch(address)


def test_a_tensor_of_the_host_is_out_of_reach() -> None:
    x = torch.zeros(32)
    with pytest.raises(OutOfBounds):
        launch(x.data_ptr())


def test_freed_memory_is_given_back_before_it_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LIMIT", 1 << 20)
    pool.clear()
    held = []
    for i in range(200):
        x = torch.zeros(25_600, device="cuda")  # 100 KiB
        if i % 10 == 0:
            held.append(x)
        assert sum(storage.nbytes() for storage, _ in pool._kept.values()) <= (len(held) + 2) * 102_400 + (1 << 20)
    for x in held:
        found = pool.find(x.data_ptr() + 512)
        assert found is not None and found[:2] == (x.data_ptr(), 102_400)


def test_memory_is_found_again_until_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LIMIT", 1 << 20)
    pool.clear()
    tensors = [torch.zeros(25_600, device="cuda") for _ in range(50)]
    for tensor in [*tensors, tensors[0], tensors[-1]]:
        assert (found := pool.find(tensor.data_ptr() + 8)) is not None and found[0] == tensor.data_ptr()
    address = tensors[0].data_ptr()
    del tensor
    tensors.clear()
    made = [torch.zeros(25_600, device="cuda") for _ in range(50)]
    assert pool.find(address) is None or any(tensor.data_ptr() == address for tensor in made)
    assert all((found := pool.find(t.data_ptr())) is not None and found[0] == t.data_ptr() for t in made)
