"""Programs that import triton run as far as they need none of it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutetut.emulator.errors import EmulatorError
from cutetut.emulator.host import cuda_torch, torch_streams, triton_absent
from cutetut.emulator.host.patches import Patches

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed"),
]


@pytest.fixture
def stand_in() -> Iterator[None]:
    patches = Patches()
    triton_absent.install(patches)
    yield
    patches.restore()
    assert "triton" not in sys.modules and not any(isinstance(f, triton_absent._Finder) for f in sys.meta_path)


PROGRAM = """
import triton
import triton.language as tl
from triton.testing import Benchmark, do_bench

EIGHT = tl.constexpr(8)

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
@triton.jit
def copy(x, n: tl.constexpr, dtype: tl.dtype = tl.float32):
    "Copies."

@triton.jit(do_not_specialize=["n"])
def other(x, n):
    pass

class Manager(triton.runtime.cache.FileCacheManager):
    pass
"""


def program() -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "program"}
    exec(PROGRAM, scope)
    return scope


def test_programs_that_define_kernels_can_be_imported(stand_in: None) -> None:
    scope = program()
    triton = scope["triton"]
    assert [triton.cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [triton.next_power_of_2(n) for n in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]
    assert scope["EIGHT"].value == 8 and scope["copy"].__doc__ == "Copies."
    assert isinstance(scope["do_bench"](lambda: None), float)


def test_a_benchmark_that_empties_the_cache_itself(stand_in: None) -> None:
    scope: dict[str, Any] = {"__name__": "program"}
    exec("from triton import runtime", scope)
    active, calls = scope["runtime"].driver.active, []
    patches = Patches()
    torch_streams.install(patches)
    with cuda_torch.whole_device(patches):
        cache = active.get_empty_cache_for_benchmark()
        assert cache.is_cuda
        active.clear_cache(cache)
        assert isinstance(active.get_benchmarker()(lambda: calls.append(1)), float) and calls == [1]
    patches.restore()


def test_using_a_kernel_says_what_is_missing(stand_in: None) -> None:
    scope = program()
    triton, tl = scope["triton"], scope["tl"]
    for use, name in (
        (lambda: scope["copy"][(1,)](0, n=1), "the kernel copy"),
        (lambda: scope["other"].run(0), "the kernel other"),
        (lambda: tl.load(0), "triton.language.load"),
        (lambda: triton.compile(None), "triton.compile"),
        (lambda: triton.runtime.driver.active.get_current_device(), "triton.runtime.driver.active.get_current_device"),
    ):
        with pytest.raises(EmulatorError, match=f"triton kernels need triton, .*; {name} is not emulated"):
            use()


def test_files_of_the_cache(stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    manager = program()["Manager"]("key")
    assert manager.get_file("a.json") is None and not manager.has_file("a.json")
    path = manager.put("{}", "a.json", binary=False)
    assert manager.get_file("a.json") == path == str(tmp_path / "key" / "a.json") and Path(path).read_text() == "{}"
    assert [p.name for p in (tmp_path / "key").iterdir()] == ["a.json"]


def test_who_asks_whether_there_is_triton_is_told_no(stand_in: None) -> None:
    assert importlib.util.find_spec("triton") is None
    program()
    from torch.utils._triton import has_triton_package

    assert not has_triton_package()
    name = "torch.utils.flop_counter"  # imports a class of triton's, if there is one
    before = sys.modules.pop(name, None)
    try:
        assert "triton" in sys.modules
        assert not isinstance(importlib.import_module(name)._JITFunction, triton_absent._Absent)
        assert "triton" in sys.modules
    finally:
        if before is not None:
            sys.modules[name] = before


def test_parts_that_are_often_guarded_are_missing(stand_in: None) -> None:
    program()
    for name in ("triton.tools.disasm", "triton.backends.compiler"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
