"""How CuTe DSL compiles here: PTX is kept, a kernel compiled before is taken from disk, host code calls ours.

Each function takes a function of the DSL and returns the one that replaces it; `driver.py` puts them in place.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import compile_cache
from .host_calls import HostCalls

FRAME = "<cutetut emulator>"  # the file name tracebacks give these wrappers of DSL functions
PLACES = 4096  # of source, that are remembered for the messages of a compilation

FORMAT = "2"  # of what is kept of a compilation: a change makes earlier entries unknown
_DUMP_PATHS = re.compile(r"dump-(?:ptx|cubin)-path='[^']*'")
_CELL = re.compile(r"ipykernel_\d+")  # in the file names of a notebook's cells: the process that runs them
_ANY_CELL = "ipykernel_0"


def unseen(function: Any) -> Callable[..., Any]:
    """The same function as a frame the DSL takes for its own: its messages then point at the caller's line."""
    code = function.__code__.replace(co_filename=FRAME)
    scope = {**function.__globals__, "__name__": "cutlass.cutetut"}
    twin = types.FunctionType(code, scope, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def keep_artifacts(compiler: Any, original: Callable[..., None], with_ffi: Callable[[], None]) -> Callable[..., None]:
    """Every compilation keeps PTX, cubin and source lines; `with_ffi` is called for one that is called by TVM-FFI."""

    def apply_envar_settings(self: Any, envar: Any, function_name: str) -> None:
        for option in (compiler.KeepPTX, compiler.KeepCUBIN, compiler.GenerateLineInfo):
            self.options[option].value = True
        original(self, envar, function_name)
        if self.enable_tvm_ffi:
            with_ffi()
        for path in (self.full_ptx_path, self.full_cubin_path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # of an earlier function of the same name: a reader must not take it for this one's

    return unseen(apply_envar_settings)


def once_per_place(original: Callable[[types.FrameType], Any]) -> Callable[[types.FrameType], Any]:
    """Where in its source a frame stands; looked up anew for each operation, it takes a fifth of a trace's time."""
    known: dict[tuple[int, int], tuple[types.CodeType, Any]] = {}

    def frameinfo(frame: types.FrameType) -> Any:
        place = id(frame.f_code), frame.f_lasti
        if place not in known:
            if len(known) == PLACES:
                known.clear()
            known[place] = frame.f_code, original(frame)  # the code is kept, or its id could become another's
        return known[place][1]

    return unseen(frameinfo)


def compiled_once(dsl: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """The compiler's passes are run once for a module and its options: later processes read what came out."""

    def compile(self: Any, module: Any, pipeline: str, *args: Any, **options: Any) -> Any:
        artifacts = _artifacts(_owner(dsl, self))
        name = _cache_key(module, pipeline, args, options) if len(artifacts) == 2 else None
        if name is None:
            return original(self, module, pipeline, *args, **options)
        if (entry := compile_cache.load(name)) is not None:
            for kind, path in artifacts.items():
                if kind in entry:
                    Path(path).write_bytes(_for_this_process(entry[kind]) if kind == "ptx" else entry[kind])
            compiled = type(module).parse(entry["module"], module.context)
        else:
            with _without_hook(self):
                compiled = original(self, module, pipeline, *args, **options)
            files = {kind: Path(path).read_bytes() for kind, path in artifacts.items() if os.path.exists(path)}
            compile_cache.store(name, {"module": _bytecode(compiled), **files})
        if self._post_compile_hook:
            self._post_compile_hook(compiled)
        return compiled

    return unseen(compile)


@contextlib.contextmanager
def _without_hook(compiler: Any) -> Iterator[None]:
    """What is to be kept does not have what the hook adds: TVM-FFI's functions are made anew in every process."""
    hook, compiler._post_compile_hook = compiler._post_compile_hook, None
    try:
        yield
    finally:
        compiler._post_compile_hook = hook


def engine_with_our_calls(dsl: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Each execution engine gets callbacks of its own, with the PTX that its compilation just wrote."""

    def jit(self: Any, module: Any, opt_level: int = 2, shared_libs: Any = ()) -> Any:
        engine = original(self, module, opt_level, shared_libs)
        calls = HostCalls(_read(_owner(dsl, self).compile_options.full_ptx_path))
        calls.register(engine)
        engine.cutetut_calls = calls  # native code holds their addresses: they live as long as the engine
        return engine

    return unseen(jit)


def _owner(dsl: Any, compiler: Any) -> Any:
    """The DSL that a compiler belongs to."""
    return next(each for each in dsl.DSLSingletonMeta._instances.values() if each.compiler_provider is compiler)


def _artifacts(owner: Any) -> dict[str, str]:
    """Where a compilation leaves what it was asked to keep, by kind."""
    options = owner.compile_options
    paths = {"ptx": options.full_ptx_path, "cubin": options.full_cubin_path}
    return {kind: path for kind, path in paths.items() if path}


def _cache_key(module: Any, pipeline: str, args: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Everything that decides what comes out; None where the compiler is asked to tell or to keep more than that."""
    told = any(options.get(name) for name in ("remark_output", "collect_compiler_diagnostics"))
    ours = _DUMP_PATHS.sub("", pipeline)
    if compile_cache.folder() is None or told or "dump" in ours or "ptx-options" in ours:
        return None
    version = importlib.metadata.version("nvidia-cutlass-dsl")
    text = _CELL.sub(_ANY_CELL, module.operation.get_asm(enable_debug_info=True))
    parts = (FORMAT, version, text, ours, repr(args), repr(sorted(options.items())))
    return compile_cache.key(*(part.encode() for part in parts))


def _bytecode(module: Any) -> bytes:
    stream = io.BytesIO()
    module.operation.write_bytecode(stream)
    return stream.getvalue()


def _for_this_process(ptx: bytes) -> bytes:
    """PTX names the files of its source lines: those of a notebook's cells carry the number of the process."""
    return re.sub(_CELL.pattern.encode(), b"ipykernel_%d" % os.getpid(), ptx)


def _read(path: str | None) -> str | None:
    if path is None or not os.path.exists(path):
        return None  # host code without kernels
    with open(path) as file:
        return file.read().rstrip("\0")
