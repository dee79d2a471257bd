"""Parts of torch besides torch.cuda, on the device "cuda": as torch documents them for a GPU."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.two_tensor import TwoTensor

from cutetut.emulator.host import cuda_torch, live, pool, torch_streams
from cutetut.emulator.host.cuda_api import CudaCallError
from cutetut.emulator.host.patches import Patches

pytestmark = pytest.mark.emulator


@pytest.fixture(autouse=True)
def cuda() -> Iterator[None]:
    patches = Patches()
    try:
        torch_streams.install(patches)
        with cuda_torch.whole_device(patches):
            yield
    finally:
        patches.restore()
        pool.clear()


def test_threads_see_the_device() -> None:
    def work() -> bool:
        return torch.zeros(2, device="cuda").is_cuda

    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(work()))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(2) as workers:
        seen += [future.result() for future in [workers.submit(work) for _ in range(4)]]
    assert seen == [True] * 5


def test_a_tensor_on_the_device_is_not_sent_to_another_process() -> None:
    there, here = torch.arange(4.0, device="cuda"), torch.arange(3)
    for value in (there, there[1:], [there], torch.nn.Parameter(there), there.untyped_storage()):
        with pytest.raises(CudaCallError, match="sent to another process"):
            ForkingPickler.dumps(value)
    assert pickle.loads(ForkingPickler.dumps(here)).tolist() == [0, 1, 2]
    assert pickle.loads(ForkingPickler.dumps(there.cpu())).tolist() == [0, 1, 2, 3]


def test_the_accelerator_is_the_gpu() -> None:
    accelerator = torch.accelerator
    where = accelerator.current_accelerator()
    assert accelerator.is_available() and where == torch.device("cuda") and accelerator.device_count() == 1
    assert torch.zeros(2, device=where).is_cuda and accelerator.current_device_index() == 0
    stream = torch.cuda.Stream()
    with stream:
        assert accelerator.current_stream() == stream
    with accelerator.device_index(0):
        accelerator.synchronize()
    accelerator.set_device_index(0)
    assert accelerator.memory_allocated() == 0 and torch.get_device_module() is torch.cuda
    assert accelerator.get_memory_info() == torch.cuda.mem_get_info()
    with pytest.raises(CudaCallError, match="torch.accelerator.get_device_capability is not emulated"):
        accelerator.get_device_capability()


def test_a_tensor_that_wraps_others_has_no_memory_of_its_own() -> None:
    x = torch.arange(4.0, device="cuda")
    wrapped = TwoTensor(torch.ones(4), torch.ones(4)) + x  # as is a DTensor, or a result of a functional collective
    assert wrapped.is_cuda and wrapped.a.tolist() == [1.0, 2.0, 3.0, 4.0]
    for find in (pool.find, live.search):
        assert (found := find(x.data_ptr() + 4)) is not None and found[:2] == (x.data_ptr(), 16)
    assert pool.gpu_of(x.data_ptr()) == 0


def _through_a_file(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def test_files_remember_where_tensors_were() -> None:
    there, here = torch.arange(4.0, device="cuda"), torch.arange(3)
    saved = {"there": there, "here": here, "view": there[1:]}
    found = _through_a_file(saved)
    assert found["there"].is_cuda and found["view"].is_cuda and not found["here"].is_cuda
    assert found["there"].tolist() == [0, 1, 2, 3] and found["view"].tolist() == [1, 2, 3]
    places = (("cpu", False), ("cuda", True), (torch.device("cuda:0"), True), ({"cuda:0": "cpu"}, False))
    for where, on_device in places:
        found = _through_a_file(saved, map_location=where)
        assert found["there"].is_cuda is on_device, where
    assert _through_a_file(here, map_location="cuda").is_cuda
    loaded = _through_a_file(there)
    assert pool.find(loaded.data_ptr()) is not None, "a kernel can reach it"
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        _through_a_file(here, map_location="cuda:1")


def test_dlpack_shares_memory_on_the_device() -> None:
    x = torch.zeros(3, device="cuda")
    y = torch.from_dlpack(x)
    y += 1
    assert y.is_cuda and x.tolist() == [1, 1, 1]
    assert not torch.from_dlpack(torch.zeros(2)).is_cuda


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    a = torch.randn(8, 8, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        product = a @ a
    assert product.dtype == dtype and product.is_cuda and (a @ a).dtype == torch.float32
    torch.testing.assert_close(product.float(), a @ a, atol=0.1, rtol=0.05)
    with torch.autocast("cuda"):
        assert (a @ a).dtype == torch.float16, "the default of the device cuda"
    with torch.autocast("cuda", enabled=False):
        assert (a @ a).dtype == torch.float32


@pytest.mark.parametrize("backend", [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
def test_every_backend_of_attention_may_be_asked_for(backend: SDPBackend) -> None:
    x = torch.randn(1, 2, 16, 8, device="cuda")
    expected = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    with sdpa_kernel(backend):
        torch.testing.assert_close(torch.nn.functional.scaled_dot_product_attention(x, x, x), expected)


def test_the_profiler_records_what_there_is(capfd: pytest.CaptureFixture[str]) -> None:
    from torch.profiler import ProfilerActivity, profile

    for activities in ([ProfilerActivity.CPU, ProfilerActivity.CUDA], [ProfilerActivity.CUDA]):
        with profile(activities=activities) as found:
            torch.ones(4, device="cuda") * 2
        assert "aten::mul" in {each.key for each in found.key_averages()}
    assert "Failed to record" not in capfd.readouterr().err


def test_the_devices_generator() -> None:
    torch.cuda.manual_seed(11)
    first = torch.rand(3, device="cuda", generator=torch.cuda.default_generators[0]).tolist()
    torch.cuda.manual_seed(11)
    assert torch.rand(3, device="cuda").tolist() == first


def _operator(name: str, shape_of: Any) -> Any:
    """Twice its argument, by a function that wants the device; `shape_of` says what its fake kernel returns."""

    def twice(x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda
        y = torch.empty(x.shape, device="cuda")
        assert y.is_cuda
        return y.copy_(x).mul_(2)

    op = torch.library.custom_op(f"cutetut_tests::{name}", twice, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(shape_of)
    op.register_autograd(lambda ctx, dy: op(dy.contiguous()))
    return op


@pytest.mark.parametrize("gradient", [False, True])
def test_pytorchs_judge_of_operators_takes_tensors_on_the_device(gradient: bool) -> None:
    """With a gradient, torch's C++ code ended the process when a fake tensor said "cuda"."""
    x = torch.arange(6.0, device="cuda").requires_grad_(gradient)
    right = _operator(f"twice_{gradient}", torch.empty_like)
    assert set(torch.library.opcheck(right, (x,)).values()) == {"SUCCESS"}
    wrong = _operator(f"wrong_{gradient}", lambda x: x.new_empty(x.shape[0] + 1))
    with pytest.raises(torch.testing._internal.optests.OpCheckError, match=r"\(6,\)|\[6\]|7"):
        torch.library.opcheck(wrong, (x,))
    assert x.is_cuda and x.tolist() == [0, 1, 2, 3, 4, 5]  # and the device is there again
    assert torch.autograd.grad(right(x.requires_grad_()).sum(), x)[0].tolist() == [2] * 6


def test_pytorchs_judge_of_operators_of_the_host_is_as_ever() -> None:
    op = torch.library.custom_op(
        "cutetut_tests::on_host", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    op.register_fake(torch.empty_like)
    assert set(torch.library.opcheck(op, (torch.arange(6.0),)).values()) == {"SUCCESS"}
