"""Every public operation of cute.arch and cute.nvgpu: those of sm_90a run and are held against an oracle."""

from __future__ import annotations

import inspect
from types import ModuleType

import cutlass.cute as cute
import cutlass.cute.nvgpu as nvgpu
import pytest

from cutetut.emulator.errors import EmulatorError
from tests.emulator.surface import (  # noqa: F401  they register their cases
    arch_float,
    arch_integer,
    arch_memory,
    arch_sync,
    nvgpu_copies,
    nvgpu_mma,
    nvgpu_tma,
)
from tests.emulator.surface.cases import CASES, REFUSED

MODULES = {"arch": cute.arch, "nvgpu": nvgpu, "warp": nvgpu.warp, "warpgroup": nvgpu.warpgroup,
           "cpasync": nvgpu.cpasync}  # fmt: skip
LEFT_OUT = {
    "the function that others swept here are made of": (
        "arch.calc_packed_f32x2_op", "arch.cvt_i4_to_bf16_impl", "arch.cvt_i4_to_bf16_with_shuffle_impl",
        "arch.cvt_i4x8_to_mxf8x8_impl", "arch.fence_view_async_tmem_op", "arch.shuffle_sync_op", "arch.vote_sync_op",
        "nvgpu.normalize_field_to_ir_name",
    ),
    "no operation of the device": (
        "arch.get_max_tmem_alloc_cols", "arch.get_min_tmem_alloc_cols", "arch.is_tmem_allocation_exclusive",
        "arch.size", "warpgroup.rank",
    ),
    "a base class": (
        "cpasync.CopyG2STileBaseOp", "warp.BaseOp", "warp.MmaSM120BlockScaledOp", "warp.WarpMmaOp", "warpgroup.MmaOp",
        "warpgroup.WarpGroupMmaOp",
    ),
    "another layout for the same instruction as cpasync.make_tiled_tma_atom": (
        "nvgpu.make_tiled_tma_atom_A", "nvgpu.make_tiled_tma_atom_B", "nvgpu.make_tiled_tma_atom_C",
    ),
    "deprecated in favour of cute.group_modes": ("cpasync.group_bulk_copy_modes",),
    "no function of 4.8.1 makes an atom of it": (
        "cpasync.CopyBulkTensorTileG2SMulticastOverrideOp", "cpasync.CopyBulkTensorTileG2SOverrideOp",
        "cpasync.CopyBulkTensorTileS2GOverrideOp",
    ),
    "the compiler of 4.8.1 ends the process": (
        "cpasync.CopyBulkTensorIm2ColG2SMulticastOp", "cpasync.CopyBulkTensorIm2ColG2SOp",
        "cpasync.CopyBulkTensorIm2ColS2GOp", "cpasync.make_im2col_tma_atom", "nvgpu.make_im2col_tma_atom_A",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operation(name: str, device: str) -> None:
    CASES[name].check(device)


@pytest.mark.emulator
@pytest.mark.parametrize("name", REFUSED)
def test_operations_that_do_not_exist_on_sm_90a(name: str, device: str) -> None:
    with pytest.raises(Exception) as refusal:  # the DSL has many ways to say so
        REFUSED[name].check(device)
    assert not isinstance(refusal.value, EmulatorError | AssertionError)


def public(prefix: str, module: ModuleType) -> set[str]:
    """Operation classes, and functions that the module or its parts define."""
    names = set()
    for name in (n for n in dir(module) if not n.startswith("_")):
        value = getattr(module, name)
        home = getattr(getattr(value, "func", value), "__module__", "")
        here = home.startswith(module.__name__) or hasattr(value, "func")
        if here and (name.endswith("Op") if inspect.isclass(value) else callable(value)):
            names.add(f"{prefix}.{name}")
    return names


@pytest.mark.emulator
def test_nothing_public_is_forgotten() -> None:
    everything = set().union(*(public(prefix, module) for prefix, module in MODULES.items()))
    swept = {name for cases in (CASES, REFUSED) for case in cases.values() for name in case.covers}
    left_out = {name for names in LEFT_OUT.values() for name in names}
    assert everything - swept - left_out == set()
    assert swept - everything == set() and left_out & swept == set()
