"""Correct Hopper kernels (tests/emulator/bugs) and copies of them with one line changed.

Nothing here needs the emulator: `python -m tests.emulator.mutants NAME [RUNS]` runs a mutant on whatever backend is
chosen and prints what came of it, which is how an H200 and its tools are asked about each (sanitize.py).
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

BUGS = Path(__file__).parent / "bugs"
COMPILED = "compiled"  # printed before the first launch


@dataclass(frozen=True)
class Mutant:
    """One line of a kernel's source, found by a part of it, and what replaces it."""

    kernel: str
    old: str
    new: str


PLAIN_A = "one_a, one_b = cute.slice_(a_layout.outer, (None, None, 0)), cute.slice_(b_layout, (None, None, 0))"
MUTANTS = {
    # -- waits --
    "no_wait_before_wgmma": Mutant("tma_gemm", "mbarrier_wait(full + stage", "pass"),
    "no_wait_before_load": Mutant("tma_copy", "mbarrier_wait(full, tile & 1)", "pass"),
    "accumulators_read_in_flight": Mutant("wgmma_tile", "warpgroup.wait_group(0)", "pass"),
    "accumulators_written_in_flight": Mutant("tma_gemm", "warpgroup.wait_group(0)", "accumulators.fill(0.0)"),
    "no_wgmma_fence": Mutant("tma_gemm", "warpgroup.fence()", "pass"),
    "written_after_wgmma_fence": Mutant(
        "wgmma_tile", "warpgroup.fence()", "warpgroup.fence(); accumulators.store(accumulators.load() + mC[0, 0])"
    ),
    "no_wgmma_commit": Mutant("wgmma_tile", "warpgroup.commit_group()", "pass"),
    "no_cp_async_wait": Mutant("cp_async_gemm", "cp_async_wait_group(", "pass"),
    "cp_async_wait_off_by_one": Mutant(
        "cp_async_gemm", "cp_async_wait_group(", "cute.arch.cp_async_wait_group(STAGES - 1)"
    ),
    "no_barrier_after_cp_async_wait": Mutant("cp_async_gemm", "sync_threads()", "pass"),
    "no_bulk_wait_before_reuse": Mutant("tma_copy", "cp_async_bulk_wait_group(0, read=True)\n", "pass"),
    "exit_under_bulk_store": Mutant("tma_copy", "# before the CTA exits", "pass"),
    # -- proxies --
    "no_proxy_fence_before_tma_store": Mutant("tma_gemm", "cute.arch.fence_proxy", "pass"),
    "no_proxy_fence_before_wgmma": Mutant("wgmma_tile", "cute.arch.fence_proxy", "pass"),
    "no_barrier_after_proxy_fence": Mutant("tma_copy", "cute.arch.barrier(barrier_id=1", "pass"),
    # -- plain accesses --
    "no_barrier_before_load": Mutant("mirror", "# the row is there", "pass"),
    "no_barrier_before_store": Mutant("mirror", "# the row is no longer needed", "pass"),
    "no_barrier_after_bulk_wait": Mutant("tma_copy", "        cute.arch.sync_threads()", "pass"),
    # -- mbarriers --
    "too_few_bytes_expected": Mutant("tma_gemm", "FULL_BYTES = 2 * TILE_BYTES", "FULL_BYTES = TILE_BYTES"),
    "too_many_bytes_expected": Mutant("tma_gemm", "FULL_BYTES = 2 * TILE_BYTES", "FULL_BYTES = 3 * TILE_BYTES"),
    "too_few_arrivals": Mutant("tma_gemm", "mbarrier_init(empty + i, 4)", "cute.arch.mbarrier_init(empty + i, 5)"),
    "too_many_arrivals": Mutant("tma_gemm", "mbarrier_init(empty + i, 4)", "cute.arch.mbarrier_init(empty + i, 1)"),
    "producer_parity": Mutant(
        "tma_gemm", "mbarrier_wait(empty + stage", "cute.arch.mbarrier_wait(empty + stage, turn & 1)"
    ),
    "consumer_parity": Mutant(
        "tma_gemm", "mbarrier_wait(full + stage", "cute.arch.mbarrier_wait(full + stage, (turn & 1) ^ 1)"
    ),
    "released_too_early": Mutant("tma_gemm", "warpgroup.wait_group(1)", "warpgroup.wait_group(2)"),
    "no_wait_for_empty": Mutant("tma_gemm", "mbarrier_wait(empty + stage", "pass"),
    "no_init_fence": Mutant("tma_copy", "mbarrier_init_fence()", "pass"),
    "no_barrier_after_init": Mutant("tma_gemm", "sync_threads()", "pass"),
    # -- barriers and divergence --
    "named_barrier_counts_differ": Mutant(
        "ping_pong", "barrier(barrier_id=FULL, number", "cute.arch.barrier(barrier_id=FULL, number_of_threads=128)"
    ),
    "named_barrier_count_too_large": Mutant("ping_pong", "THREADS = 1, 2, 256", "FULL, EMPTY, THREADS = 1, 2, 288"),
    "named_barrier_number": Mutant(
        "ping_pong", "barrier(barrier_id=EMPTY, number", "cute.arch.barrier(barrier_id=3, number_of_threads=THREADS)"
    ),
    "divergent_barrier": Mutant("cp_async_gemm", "sync_threads()", "if tid % 32 < 16: cute.arch.sync_threads()"),
    "divergent_wgmma": Mutant("wgmma_tile", "warpgroup.commit_group()", "if tid < 32: warpgroup.commit_group()"),
    "divergent_ldmatrix": Mutant(
        "cp_async_gemm", "cute.copy(read_a,",
        "if tid % 32 < 8: cute.copy(read_a, tXsA[None, None, None, k % STAGES], tXrA)",
    ),
    # -- registers --
    "registers_never_given_back": Mutant("registers", "setmaxregister_decrease(40)", "pass"),
    "more_registers_than_there_are": Mutant(
        "registers", "setmaxregister_increase(232)", "cute.arch.setmaxregister_increase(240)"
    ),
    "registers_of_half_a_warpgroup": Mutant("registers", "if warp < 4:", "if warp < 2:"),
    "registers_without_a_bound": Mutant(
        "registers", "min_blocks_per_mp=1", "add_kernel(mX, mY).launch(grid=(1, 1, 1), block=(384, 1, 1))"
    ),
    # -- layouts --
    "misaligned_destination": Mutant(
        "tma_copy", "x: cute.struct.Align",
        "x: cute.struct.Align[cute.struct.MemRange[cutlass.Float32, ROWS * COLUMNS], 16]",
    ),
    "swizzles_differ": Mutant("tma_gemm", "one_a, one_b =", PLAIN_A),
    "uninitialised_operand": Mutant("wgmma_tile", "sB[i * 2 + tid // 64, tid % 64] =", "pass"),
    # -- clusters --
    "no_cluster_barrier_at_start": Mutant("cluster_sum", "# before the first access", "cute.arch.sync_threads()"),
    "no_cluster_barrier_at_end": Mutant("cluster_sum", "# before the CTA exits", "pass"),
}  # fmt: skip


@dataclass
class Loaded:
    """A kernel's module, and its source to look lines up in."""

    module: ModuleType
    path: Path

    def line(self, part: str) -> str:
        """ "file.py:12" of the only line that contains a text, or that ends in one with "\\n"."""
        found = [i for i, line in enumerate(self.path.read_text().splitlines(keepends=True), 1) if part in line]
        assert len(found) == 1, f"{part!r} is on lines {found} of {self.path.name}"
        return f"{self.path.name}:{found[0]}"


def load(kernel: str, folder: Path, *mutants: Mutant) -> Loaded:
    """Import a kernel's file, or a copy of it in `folder` with the mutants' lines replaced."""
    source = (BUGS / f"{kernel}.py").read_text()
    for mutant in mutants:
        lines = source.splitlines(keepends=True)
        found = [i for i, line in enumerate(lines) if mutant.old in line]
        assert len(found) == 1, f"{mutant.old!r} is on {len(found)} lines of {kernel}.py"
        old = lines[found[0]]
        lines[found[0]] = old[: len(old) - len(old.lstrip())] + mutant.new + "\n"
        source = "".join(lines)
    path = folder / f"{kernel}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"planted_{kernel}_{abs(hash(source))}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return Loaded(module, path)


Case = tuple[list[torch.Tensor], torch.Tensor]  # arguments, the last of which is the result; what it must be


def _integers(*shape: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape, generator=_generator)


_generator = torch.Generator().manual_seed(7)


def _gemm(m: int, n: int, k: int, out: torch.dtype) -> Case:
    a, b = _integers(m, k).half(), _integers(n, k).half()
    return [a, b, torch.zeros(m, n, dtype=out)], a.double() @ b.double().T


def _elementwise(shape: tuple[int, ...], function: Callable[[torch.Tensor], torch.Tensor]) -> Case:
    x = _integers(*shape).float()
    want = function(x.double())
    return [x, torch.zeros(want.shape)], want


CASES: dict[str, Callable[[], Case]] = {
    "tma_gemm": lambda: _gemm(64, 128, 192, torch.float16),
    "wgmma_tile": lambda: _gemm(64, 64, 64, torch.float32),
    "cp_async_gemm": lambda: _gemm(64, 64, 128, torch.float32),
    "tma_copy": lambda: _elementwise((192, 32), lambda x: x + 1),
    "cluster_sum": lambda: _elementwise(
        (48, 128), lambda x: torch.stack([x.view(3, 16, 128).sum(0) * r for r in (1, 2)])
    ),
    "mirror": lambda: _elementwise((3, 128), lambda x: x.flip(1)),
    "ping_pong": lambda: _elementwise((3, 128), lambda x: 2 * x),
    "registers": lambda: _elementwise((384,), lambda x: x + 1),
}


def compiled(module: ModuleType, arguments: list[torch.Tensor], device: str = "cpu") -> tuple[Any, list[torch.Tensor]]:
    """The kernel's host function compiled for some arguments, and these on the device."""
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    tensors = [t.to(device) for t in arguments]
    views = [from_dlpack(t, assumed_align=16) for t in tensors]
    function = cute.compile(module.run, *views)
    return lambda: function(*views), tensors


def main(name: str, runs: int) -> None:
    """Run a mutant, or a correct kernel, several times and say what comes of it."""
    import cutetut

    mutant = MUTANTS.get(name)
    kernel = mutant.kernel if mutant else name
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(kernel, Path(folder), *([mutant] if mutant else []))
        arguments, want = CASES[kernel]()
        launch, tensors = compiled(loaded.module, arguments, str(cutetut.device))
        print(COMPILED, flush=True)
        wrong = 0
        for _ in range(runs):
            tensors[-1].zero_()
            launch()
            if cutetut.on_gpu:
                torch.cuda.synchronize()
            wrong += not torch.equal(tensors[-1].cpu().double(), want)
    print(f"right {runs - wrong} times, wrong {wrong} times", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10)
