"""Run a script whose packages import Triton for a name or two, without it: `without_triton.py SCRIPT ...`."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
import types
from pathlib import Path
from typing import Any


class FileCacheManager:
    """A base class of quack's autotuner, which these scripts do not use."""


def _module(name: str, **names: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module
    return module


def install() -> None:
    """Let `import triton` succeed; torch, which asks whether it can compile with Triton, has had its answer before."""
    importlib.import_module("torch.utils._triton").has_triton_package()
    importlib.import_module("torch._inductor.runtime.triton_compat")
    cache = _module("triton.runtime.cache", FileCacheManager=FileCacheManager, default_cache_dir=lambda: "")
    runtime, testing = _module("triton.runtime", cache=cache), _module("triton.testing", do_bench=None)
    _module("triton", runtime=runtime, testing=testing, __version__="0")


def main() -> None:
    """Become the script."""
    if importlib.util.find_spec("triton") is None:
        install()
    script = Path(sys.argv[1]).resolve()
    sys.argv = [str(script), *sys.argv[2:]]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
