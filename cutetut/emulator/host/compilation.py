"""How CuTe DSL compiles here: PTX is kept, a kernel compiled before is taken from disk, host code calls ours.

Each function takes a function of the DSL and returns the one that replaces it; `driver.py` puts them in place.
"""

from __future__ import annotations

import contextlib
import functools
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

FORMAT = "3"  # of what is kept of a compilation: a change makes earlier entries unknown
_DUMP_PATHS = re.compile(r"dump-(?:ptx|cubin)-path='[^']*'")
_PLACE = re.compile(r'"(/[^"\n]*/)(?=[^"/\n]+":\d+:\d+)')  # the folder of a file in one of a module's locations
_ESCAPED = re.compile(rb"\\([0-9A-F]{2})")  # a byte of it that is no printable ASCII, or a quote
_FILE = re.compile(r'(?m)^(\s*\.file\s+\d+\s+")([^"\n]*/)(?=[^"/\n]+")')  # the folder in PTX's directive
_FOLDER = "<folder {}>/"  # stands for one in what is kept


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


def once_per_context(original: Callable[[Any], Any], ir: Any) -> Callable[[Any], Any]:
    """The location of a place is made once in each trace, which has a context of its own."""
    latest: list[tuple[Any, dict[int, tuple[Any, Any]]]] = [(None, {})]

    def location(info: Any) -> Any:
        context, known = latest[0]
        if context is not ir.Context.current:
            known = {}
            latest[0] = ir.Context.current, known  # at once: another thread may trace, too
        if id(info) not in known:
            known[id(info)] = info, original(info)  # it is kept, or its id could become another's
        return known[id(info)][1]

    return unseen(location)


def compiled_once(dsl: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """The compiler's passes are run once for a module and its options: later processes read what came out."""

    def compile(self: Any, module: Any, pipeline: str, *args: Any, **options: Any) -> Any:
        artifacts = _artifacts(_owner(dsl, self))
        if len(artifacts) != 2 or not _can_be_kept(pipeline, options):
            return original(self, module, pipeline, *args, **options)
        text, folders = _anywhere(module.operation.get_asm(enable_debug_info=True))
        name = _cache_key(text, pipeline, args, options)
        if (entry := compile_cache.load(name)) is not None:
            for kind, path in artifacts.items():
                if kind in entry:
                    Path(path).write_bytes(_with_folders(entry[kind], folders) if kind == "ptx" else entry[kind])
            compiled = type(module).parse(entry["module"], module.context)
        else:
            with _without_hook(self):
                compiled = original(self, module, pipeline, *args, **options)
            files = {kind: Path(path).read_bytes() for kind, path in artifacts.items() if os.path.exists(path)}
            if "ptx" in files:
                files["ptx"] = _without_folders(files["ptx"], folders)
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
        # the host's code only fills in arguments, which is quicker done than optimised
        engine = original(self, module, 0, shared_libs)
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


def _can_be_kept(pipeline: str, options: dict[str, Any]) -> bool:
    """Whether the cache can keep the result: not where the compiler is asked to report, or to write, more than that."""
    reports = any(options.get(name) for name in ("remark_output", "collect_compiler_diagnostics"))
    asked = _DUMP_PATHS.sub("", pipeline)
    return compile_cache.folder() is not None and not reports and "dump" not in asked and "ptx-options" not in asked


def _cache_key(text: str, pipeline: str, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """The hash of everything that decides what comes out."""
    ours = _DUMP_PATHS.sub("", pipeline)
    parts = (FORMAT, _dsl_version(), text, ours, repr(args), repr(sorted(options.items())))
    return compile_cache.key(*(part.encode() for part in parts))


@functools.cache
def _dsl_version() -> str:
    return importlib.metadata.version("nvidia-cutlass-dsl")


def _anywhere(text: str) -> tuple[str, list[str]]:
    """A module's text with numbers for the folders of its source files, and these folders.

    A notebook's cells stand in a folder with the number of the process that runs them, a test's kernels in a scratch
    folder, a checkout anywhere: the same source in another folder is the same entry. Its PTX gets this process's
    folders; the locations of its module keep those of whoever compiled it.
    """
    found = {escaped: _unescaped(escaped) for escaped in _PLACE.findall(text)}
    folders = {escaped: folder for escaped, folder in found.items() if not {'"', "\\"} & set(folder)}
    numbers = {escaped: _FOLDER.format(number) for number, escaped in enumerate(folders)}
    return _PLACE.sub(lambda place: f'"{numbers.get(place[1], place[1])}', text), list(folders.values())


def _unescaped(name: str) -> str:
    """A name as MLIR writes it, in plain text."""
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode()).decode(errors="replace")


def _without_folders(ptx: bytes, folders: list[str]) -> bytes:
    """PTX that is to be kept: in its names of source files, numbers stand for these folders."""
    numbers = {folder: _FOLDER.format(number) for number, folder in enumerate(folders)}
    return _FILE.sub(lambda found: found[1] + numbers.get(found[2], found[2]), ptx.decode()).encode()


def _with_folders(ptx: bytes, folders: list[str]) -> bytes:
    """PTX that was kept, with the folders where this process has its source files."""
    known = {_FOLDER.format(number): folder for number, folder in enumerate(folders)}
    return _FILE.sub(lambda found: found[1] + known.get(found[2], found[2]), ptx.decode()).encode()


def _bytecode(module: Any) -> bytes:
    stream = io.BytesIO()
    module.operation.write_bytecode(stream)
    return stream.getvalue()


def _read(path: str | None) -> str | None:
    if path is None or not os.path.exists(path):
        return None  # host code without kernels
    with open(path) as file:
        return file.read().rstrip("\0")
