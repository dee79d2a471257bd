"""A package `triton` for programs that import it and use it little: its kernels are not emulated, and say so.

It is there only where Triton is not installed, for import statements of programs: torch, which asks whether there is
Triton to compile for, learns the truth.  What needs no GPU works: cdiv, next_power_of_2, do_bench, the file cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import cuda_api
from .cuda_api import CudaCallError
from .patches import Patches

NAME = "triton"
_MODULES = (NAME, f"{NAME}.language", f"{NAME}.runtime", f"{NAME}.testing", f"{NAME}.compiler")


def install(patches: Patches) -> None:
    """Let `import triton` succeed when Triton is not installed."""
    if NAME in sys.modules or importlib.util.find_spec(NAME) is not None:
        return
    from torch.utils import _triton

    _triton.has_triton_package()  # remembers that there is none
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    patches.later(finder.remove)


def _error(what: str) -> CudaCallError:
    return CudaCallError(
        f"triton kernels need triton, which is not installed; {what} is not emulated",
        hint="leave this part out on this machine, or guard it",
    )


class _Absent(type):
    """A name of Triton's: it can be looked up, subclassed and written in annotations, but not used."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(f"{cls.__name__}.{name}")

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise _error(cls.__name__)


def _absent(name: str) -> Any:
    return _Absent(name, (), {})


class Kernel:
    """A function behind @triton.jit: it can be defined, not launched."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn, self.__name__, self.__doc__ = function, function.__name__, function.__doc__

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise _error(f"the kernel {self.__name__}")

    run = warmup = __call__


def _jit(function: Any = None, **_: Any) -> Any:
    """triton.jit, with and without options."""
    return Kernel if function is None else Kernel(function)


def _decorator(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """triton.autotune and triton.heuristics: what they choose for is never launched."""
    return lambda kernel: kernel


class Config:
    """triton.Config: options of a kernel to choose from."""

    def __init__(self, kwargs: dict[str, Any], **options: Any) -> None:
        self.kwargs = kwargs
        self.__dict__.update(options)


class constexpr:
    """triton.language.constexpr: a constant of a kernel."""

    def __init__(self, value: Any) -> None:
        self.value = value


class FileCacheManager:
    """triton.runtime.cache.FileCacheManager: files of one key in a folder of the cache."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        root = os.environ.get("TRITON_CACHE_DIR") or os.path.join(tempfile.gettempdir(), "cutetut-triton")
        self.cache_dir = os.path.join(root, key)
        self.lock_path = os.path.join(self.cache_dir, "lock")

    def has_file(self, filename: str) -> bool:
        return os.path.exists(os.path.join(self.cache_dir, filename))

    def get_file(self, filename: str) -> str | None:
        path = os.path.join(self.cache_dir, filename)
        return path if os.path.exists(path) else None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Write a file whole or not at all; returns where it is."""
        os.makedirs(self.cache_dir, exist_ok=True)
        content = data if isinstance(data, bytes) else str(data).encode()
        path = os.path.join(self.cache_dir, filename)
        with tempfile.NamedTemporaryFile(dir=self.cache_dir, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
        return path


def _do_bench(function: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """triton.testing.do_bench: one call and the emulator's wall time for it, in milliseconds."""
    cuda_api.warn_about_time()
    started = time.perf_counter()
    function()
    elapsed = (time.perf_counter() - started) * 1e3
    return [elapsed] * len(quantiles) if quantiles is not None else elapsed


class Active:
    """triton.runtime.driver.active: what benchmarks ask of it to begin with an empty cache, of which there is none."""

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that would fill the L2 cache."""
        import torch

        return torch.zeros(1, dtype=torch.int32, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        """There is no cache to clear."""

    def get_benchmarker(self) -> Callable[..., Any]:
        return _do_bench

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(f"{NAME}.runtime.driver.active.{name}")


def _contents(name: str) -> dict[str, Any]:
    """What there is in a module besides names that cannot be used."""
    cache = types.SimpleNamespace(
        FileCacheManager=FileCacheManager,
        default_cache_dir=tempfile.gettempdir,
        get_cache_manager=lambda key: FileCacheManager(hashlib.sha256(str(key).encode()).hexdigest()),
    )
    common: dict[str, Any] = {"jit": _jit, "autotune": _decorator, "heuristics": _decorator, "Config": Config}
    modules: dict[str, dict[str, Any]] = {
        NAME: common
        | {
            "__version__": "0.0.0",
            "cdiv": lambda x, y: (x + y - 1) // y,
            "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
        },
        f"{NAME}.language": {"constexpr": constexpr},
        f"{NAME}.runtime": common | {"cache": cache, "driver": types.SimpleNamespace(active=Active())},
        f"{NAME}.testing": {"do_bench": _do_bench, "do_bench_cudagraph": _do_bench},
    }
    return modules.get(name, {})


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(_contents(module.__name__))

        def missing(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if f"{module.__name__}.{name}" in _MODULES:
                return importlib.import_module(f"{module.__name__}.{name}")
            return _absent(f"{module.__name__}.{name}")

        module.__getattr__ = missing  # type: ignore[method-assign]


class _WithoutTriton(importlib.abc.Loader):
    """Loads a module of torch as where there is no Triton."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self.loader, self.finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        with self.finder.hidden():
            self.loader.exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._hidden = 0

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith("torch.") and NAME in sys.modules:
            spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _WithoutTriton(spec.loader, self)
            return spec
        if fullname not in _MODULES or self._hidden or _asked_by().split(".")[0] in ("torch", "importlib"):
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """While modules of torch are imported there is no Triton."""
        ours = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == NAME}
        self._hidden += 1
        try:
            yield
        finally:
            self._hidden -= 1
            sys.modules.update(ours)

    def remove(self) -> None:
        """Take the stand-in away again."""
        sys.meta_path.remove(self)
        for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
            del sys.modules[name]


def _asked_by() -> str:
    """The module whose import statement is being executed; importlib.util only asks whether there is a package."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in ("importlib._bootstrap", "importlib._bootstrap_external", "importlib", __name__):
            return name
        frame = frame.f_back
    return ""
