"""The swizzle with which threads store a tile and that with which TMA reads it must be one, or the result is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutetut.emulator.errors import AsyncMismatch, EmulatorWarning
from tests.emulator.mutants import CASES, MUTANTS, Loaded, Mutant, compiled, load

IN_SMEM = "sC = storage.c.get_tensor(c_layout.outer, swizzle=c_layout.inner)"
OTHER = "sC = storage.c.get_tensor(c_layout.outer, swizzle=cute.make_swizzle({}, 4, 3))[None, None, 0]"
PLAIN = "sC = storage.c.get_tensor(c_layout.outer)[None, None, 0]"
STMATRIX = Mutant(
    "tma_gemm", "    cute.autovec_copy(narrow, tCsC)",
    "copy = cute.make_tiled_copy_C(cute.make_copy_atom(cute.nvgpu.warp.StMatrix8x8x16bOp(False, 4), cutlass.Float16), "
    "tiled_mma).get_slice(thread); cute.copy(copy, copy.retile(narrow), copy.partition_D(sC))",
)  # fmt: skip
BY = {"st.shared": (), "stmatrix": (STMATRIX,)}


def loaded(folder: Path, how: str, *changes: Mutant) -> Loaded:
    """The GEMM that stores its tile in this way, with some lines replaced."""
    return load("tma_gemm", folder, *BY[how], *changes)


@pytest.mark.parametrize("how", BY)
def test_one_swizzle_is_right(how: str, tmp_path: Path, device: str, recwarn: pytest.WarningsRecorder) -> None:
    arguments, want = CASES["tma_gemm"]()
    launch, tensors = compiled(loaded(tmp_path, how).module, arguments, device)
    launch()
    assert torch.equal(tensors[-1].cpu().double(), want)
    assert not [w for w in recwarn if issubclass(w.category, EmulatorWarning)]


@pytest.mark.emulator
@pytest.mark.parametrize("how", BY)
@pytest.mark.parametrize(
    ("line", "named"),
    [(OTHER.format(1), "the 32-byte swizzle"), (OTHER.format(2), "the 64-byte swizzle"), (PLAIN, "no swizzle")],
)
def test_two_swizzles_are_told(how: str, line: str, named: str, tmp_path: Path) -> None:
    kernel = loaded(tmp_path, how, Mutant("tma_gemm", IN_SMEM, line))
    launch, _ = compiled(kernel.module, CASES["tma_gemm"]()[0])
    with pytest.raises(AsyncMismatch, match=f"with the 128-byte swizzle; it was stored there with {named}") as caught:
        launch()
    stored, read = ("cute.copy(copy", "cute.copy(store_c") if how == "stmatrix" else ("autovec_copy", "copy(store_c")
    lines = {side.source_text for side in caught.value.report.sides}
    assert any(stored in line for line in lines) and any(read in line for line in lines)


@pytest.mark.emulator
def test_a_swizzle_that_only_the_threads_use_may_be_meant(tmp_path: Path) -> None:
    """The tensor may be meant to lie swizzled in global memory."""
    plain = "storage.c.get_tensor(c_layout.outer)[None, None, 0]"
    changes = (
        Mutant("tma_gemm", "store_c, tC = cpasync",
               "store_c, tC = cpasync.make_tiled_tma_atom(store, mC, one_c.outer, (TILE, TILE))"),
        Mutant("tma_gemm", "tCsC, tCgC = cpasync", "tCsC, tCgC = cpasync.tma_partition(store_c, 0, one, "
               f"cute.group_modes({plain}, 0, 2), cute.group_modes(gC, 0, 2))"),
    )  # fmt: skip
    launch, _ = compiled(loaded(tmp_path, "st.shared", *changes).module, CASES["tma_gemm"]()[0])
    with pytest.warns(EmulatorWarning, match="with no swizzle; it was stored there with the 128-byte swizzle"):
        launch()


IN_PLACE = """cute.arch.mbarrier_wait(full + stage, turn & 1)
                plain = storage.a.get_tensor(a_layout.outer)
                values = cute.make_rmem_tensor(TILE * TILE // 128, cutlass.Float16)
                for i in cutlass.range_constexpr(TILE * TILE // 128):
                    values[i] = plain[i * 2 + thread // TILE, thread % TILE, stage]
                cute.arch.barrier(barrier_id=1, number_of_threads=128)
                for i in cutlass.range_constexpr(TILE * TILE // 128):
                    sA[i * 2 + thread // TILE, thread % TILE, stage] = values[i]
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.barrier(barrier_id=1, number_of_threads=128)"""


@pytest.mark.emulator
def test_what_threads_store_in_place_is_no_longer_as_tma_brought_it(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """TMA brings A without a swizzle; the threads then store it in the same place as WGMMA reads it."""
    rearranged = Mutant("tma_gemm", "cute.arch.mbarrier_wait(full + stage, turn & 1)", IN_PLACE)
    arguments, want = CASES["tma_gemm"]()
    launch, tensors = compiled(loaded(tmp_path, "st.shared", rearranged, MUTANTS["swizzles_differ"]).module, arguments)
    launch()
    assert torch.equal(tensors[-1].double(), want)
    assert not [w for w in recwarn if issubclass(w.category, EmulatorWarning)]
