"""cuTensorMapEncodeTiled: images against those that an H200's driver packed, rules against CUDA's documentation."""
# no `from __future__ import annotations`: CuTe DSL reads the annotations of the functions it compiles

import json
from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
import torch
from cuda.bindings import driver
from cutlass.cute.runtime import from_dlpack
from cutlass.experimental import cuda
from cutlass.experimental import primitives as prims

from cutetut.emulator.host.tensormap_encode import TensorMapError, Tiled
from tests.emulator.tensors import TYPES
from tests.emulator.test_tensormap import BASE, RECORDED

pytestmark = pytest.mark.emulator
KINDS = list(driver.CUtensorMapDataType)


def tiled(case: dict[str, Any]) -> Tiled:
    return Tiled(
        int(KINDS[TYPES[case["type"]]]), case["address"], tuple(case["sizes"]), tuple(case["strides"]),
        tuple(case["box"]), tuple(case["element_strides"]), case["interleave"], case["swizzle"], case["l2"],
        case["nan"],
    )  # fmt: skip


def test_images_are_the_drivers() -> None:
    recorded = json.loads(RECORDED.read_text())["maps"]
    assert len(recorded) > 20
    for each in recorded:
        assert tiled(each["case"]).pack().hex() == each["image"], each["case"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"address": 0x1008}, "address"),
        ({"sizes": [512, 0]}, "sizes"),
        ({"sizes": [512, (1 << 32) + 1]}, "sizes"),
        ({"strides": [1032]}, "strides"),
        ({"strides": [1 << 40]}, "strides"),
        ({"box": [64, 257]}, "box"),
        ({"box": [0, 32]}, "box"),
        ({"box": [4, 32]}, "8 bytes"),
        ({"element_strides": [1, 9]}, "element strides"),
        ({"element_strides": [1, 0]}, "element strides"),
        ({"swizzle": 1, "box": [32, 32]}, "swizzle's 32"),
        ({"swizzle": 3, "box": [72, 32]}, "swizzle's 128"),
        ({"swizzle": 9}, "swizzle 9"),
        ({"l2": 4}, "L2 promotion 4"),
        ({"interleave": 1}, "rank"),
        ({"sizes": [], "strides": [], "box": [], "element_strides": []}, "rank"),
        ({"type": "s32", "nan": 1, "box": [16, 32]}, "NaN"),
        ({"interleave": 2, "sizes": [512, 64, 16], "strides": [1024, 1 << 16], "box": [16, 8, 8],
          "element_strides": [1, 1, 1]}, "32-byte swizzle only"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(TensorMapError, match=rule):
        tiled({**BASE, **change}).pack()


@cute.kernel
def copy_box(source: cutlass.GridConstant[cuda.TensorMap], target: cute.Tensor, row: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    box = cutlass.Array(cutlass.Float16, 8 * 32, space=cutlass.AddressSpace.smem, alignment=128)
    full = cutlass.Array(cutlass.Int64, 1, space=cutlass.AddressSpace.smem, alignment=8)
    if thread == 0:
        prims.mbarrier_init(full, 1)
        prims.fence_mbarrier_init()
        prims.mbarrier_arrive_expect_tx(full, source.global_tx_bytes())
        prims.cp_async_bulk_tensor_shared_cta_global(box, source.get_ptr(), (0, row), full)
    prims.barrier_cta_sync(0)
    while not prims.mbarrier_try_wait_parity(full, 0):
        pass
    for i in cutlass.range_constexpr(8):
        target[i, thread] = (box.data_ptr() + i * 32 + thread).load()


@cute.jit
def copy_through_a_map(source: cute.Tensor, offset: cutlass.Int64, target: cute.Tensor, row: cutlass.Int32):
    """A map that host code makes through the driver, of 16 x 32 float16 that begin `offset` bytes into the source."""
    made = cuda.create_tensor_map_tiled(
        global_address=source.iterator.toint() + offset,
        dtype=cutlass.Float16,
        global_dims=[32, 16],
        global_strides=[32 * 2 // 16],
        box_dims=[32, 8],
    )
    copy_box(made, target, row).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_host_code_makes_a_map_and_tma_uses_it() -> None:
    source = torch.arange(16 * 32, dtype=torch.float16).reshape(16, 32)
    target = torch.zeros(8, 32, dtype=torch.float16)
    compiled = cute.compile(copy_through_a_map, from_dlpack(source), 0, from_dlpack(target), 0)
    compiled(from_dlpack(source), 0, from_dlpack(target), 12)
    expected = np.zeros((8, 32), np.float16)  # rows beyond the tensor are zero
    expected[:4] = np.arange(12 * 32, 16 * 32).reshape(4, 32)
    assert np.array_equal(target.numpy(), expected)


def test_a_map_that_cannot_be_made_is_an_error_and_not_the_end_of_the_process() -> None:
    source, target = torch.zeros(16, 32, dtype=torch.float16), torch.zeros(8, 32, dtype=torch.float16)
    compiled = cute.compile(copy_through_a_map, from_dlpack(source), 0, from_dlpack(target), 0)
    with pytest.raises(TensorMapError, match="global address .* is no multiple of 16"):
        compiled(from_dlpack(source), 8, from_dlpack(target), 0)
    assert not target.any()
