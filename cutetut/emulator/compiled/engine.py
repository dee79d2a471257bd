"""LLVM: loops over threads, each compiled once per process, and chains of them that one call runs.

A *form* is one instruction without its registers: what it computes and how its operands lie in memory. Its function
loops over the threads and finds the addresses of the operands in a record, so that every instruction of that form, in
every kernel, uses the same function. A chain is an array of such records.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .code import LANES, Code, Emit, Value, kind_of

OPERANDS = 9  # a record is the function's address and those of its operands: targets, sources, guard


@dataclass(frozen=True)
class Row:
    """How an operand lies in memory: bytes between threads (0: a constant), and which bits of those it is."""

    kind: str
    stride: int
    shift: int

    @classmethod
    def of(cls, row: np.ndarray) -> Row | None:
        """None for what no loop reads or writes."""
        if row.ndim != 1:
            return None
        stride, size = row.strides[0], row.itemsize
        if stride not in (0, size, 2, 4, 8) or (stride and stride < size):
            return None
        return cls(kind_of(row.dtype), stride, 8 * (address_of(row) % stride) if stride > size else 0)

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return max(1, {"float": 4, "double": 8}.get(self.kind) or int(self.kind[1:]) // 8)

    @property
    def whole(self) -> bool:
        """Whether the values stand one behind the other."""
        return self.stride == self.size


def address_of(row: np.ndarray) -> int:
    address: int = row.__array_interface__["data"][0]
    return address


@dataclass(frozen=True)
class Form:
    """What a function computes; `guard` is "" or "p", or "!" for a negated one; masked: not for all threads."""

    key: str
    targets: tuple[Row, ...]
    sources: tuple[Row, ...]
    guard: str
    masked: bool


# -- the text of one function ----------------------------------------------------------------------


def function_text(name: str, form: Form, emit: Emit) -> tuple[str, set[str]]:
    """The loop of a form in LLVM's language, and the intrinsics it needs declared."""
    entry, body = [], Code()
    rows = [*form.targets, *form.sources]
    for i in range(len(rows) + bool(form.guard)):
        entry += [f"%r{i} = getelementptr ptr, ptr %record, i64 {i + 1}", f"%p{i} = load ptr, ptr %r{i}"]
    first = len(form.targets)
    sources = [_load(body, entry, first + i, row) for i, row in enumerate(form.sources)]
    results = emit(body, *sources)
    active = _active(body, form, len(rows))
    values = results if isinstance(results, tuple) else (results,)
    for i, (row, value) in enumerate(zip(form.targets, values, strict=True)):
        _store(body, i, row, value, active)
    text = "\n  ".join(
        [
            f"define void @{name}(ptr %record, i64 %start, i64 %stop, ptr %mask) {{\nentry:",
            *entry,
            "br label %loop\nloop:",
            "%i = phi i64 [ %start, %entry ], [ %next, %loop ]",
            *body.lines,
            f"%next = add i64 %i, {LANES}",
            "%more = icmp slt i64 %next, %stop",
            "br i1 %more, label %loop, label %end\nend:",
            "ret void",
        ]
    )
    return text + "\n}\n", body.intrinsics


def _load(body: Code, entry: list[str], i: int, row: Row) -> Value:
    stored = "i8" if row.kind == "i1" else row.kind
    if row.stride == 0:
        vector = f"<{LANES} x {stored}>"
        entry += [
            f"%e{i} = load {stored}, ptr %p{i}",
            f"%o{i} = insertelement {vector} poison, {stored} %e{i}, i64 0",
            f"%s{i} = shufflevector {vector} %o{i}, {vector} poison, <{LANES} x i32> zeroinitializer",
        ]
        value = Value(f"%s{i}", stored)
    elif row.whole:
        value = _read(body, f"%p{i}", stored, row.size)
    else:
        base = body.add(f"getelementptr i8, ptr %p{i}, i64 -{row.shift // 8}", "ptr") if row.shift else None
        value = _read(body, base.name if base else f"%p{i}", f"i{8 * row.stride}", row.stride)
        value = body.resize(body.op("lshr", value, row.shift) if row.shift else value, 8 * row.size)
        value = body.cast("bitcast", value, stored)
    return body.icmp("ne", value, 0) if row.kind == "i1" else value


def _read(body: Code, base: str, kind: str, align: int) -> Value:
    at = body.add(f"getelementptr {kind}, ptr {base}, i64 %i", "ptr")
    return body.add(f"load <{LANES} x {kind}>, ptr {at.name}, align {align}", kind)


def _active(body: Code, form: Form, guard: int) -> Value | None:
    """Which threads execute; None for all."""
    conditions = []
    if form.masked:
        conditions.append(body.icmp("ne", _read(body, "%mask", "i8", 1), 0))
    if form.guard:
        conditions.append(body.icmp("eq" if form.guard == "!" else "ne", _read(body, f"%p{guard}", "i8", 1), 0))
    if len(conditions) == 2:
        return body.op("and", *conditions)
    return conditions[0] if conditions else None


def _store(body: Code, i: int, row: Row, value: Value, active: Value | None) -> None:
    stored = "i8" if row.kind == "i1" else row.kind
    value = body.resize(value, 8) if value.kind == "i1" else value
    value = value if value.kind == stored else body.cast("bitcast", value, stored)
    if active is not None:
        value = body.select(active, value, _read(body, f"%p{i}", stored, row.size))
    at = body.add(f"getelementptr {stored}, ptr %p{i}, i64 %i", "ptr")
    body.lines.append(f"store {value.type} {value.name}, ptr {at.name}, align {row.size}")


CHAIN = f"""
define void @chain(ptr %records, i64 %count, i64 %start, i64 %stop, ptr %mask) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %record = getelementptr [{1 + OPERANDS} x ptr], ptr %records, i64 %i
  %function = load ptr, ptr %record
  call void %function(ptr %record, i64 %start, i64 %stop, ptr %mask)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
_CHAIN_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)  # ctypes lets other Python threads run during a call


# -- the compiler ----------------------------------------------------------------------------------


class Compiler:
    """LLVM for the processor of this machine, loaded when the first form is compiled."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm  # loading LLVM takes a tenth of a second or more: only when it pays

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.llvm: Any = llvm
        self.features: Any = llvm.get_host_cpu_features()
        self.has_f16 = "f16c" not in self.features or self.features["f16c"]  # other processors have no such name
        self.kept: list[Any] = []  # compiled code lives as long as its engine
        self.addresses: dict[Form, int] = {}
        self.chain = _CHAIN_TYPE(self.compile_text(CHAIN, ["chain"])[0])

    def compile(self, wanted: dict[Form, Emit]) -> None:
        """Compile the forms that are new, together."""
        new = {form: emit for form, emit in wanted.items() if form not in self.addresses}
        if not new:
            return
        texts, intrinsics, names = [], set(), [f"f{i}" for i in range(len(new))]
        for name, (form, emit) in zip(names, new.items(), strict=True):
            text, needed = function_text(name, form, emit)
            texts.append(text)
            intrinsics |= needed
        addresses = self.compile_text("\n".join([*sorted(intrinsics), *texts]), names)
        self.addresses.update(zip(new, addresses, strict=True))

    def compile_text(self, text: str, names: list[str], optimise: int = 0) -> list[int]:
        """The addresses of functions written in LLVM's language.

        Loops over vectors wait for memory: optimising takes five times as long to compile and makes none faster.
        """
        llvm = self.llvm
        module = llvm.parse_assembly(text)
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=self.features.flatten(),
            opt=optimise,
            jit=True,
        )
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        self.kept.append(engine)
        return [engine.get_function_address(name) for name in names]


_compiler: Compiler | None = None


def compiler() -> Compiler:
    """The process's compiler."""
    global _compiler
    if _compiler is None:
        _compiler = Compiler()
    return _compiler


LOADING = 60_000.0  # microseconds that loading LLVM takes, once per process
_spent = 0.0  # microseconds that numpy has spent on what could have been compiled, by estimate


def spend(microseconds: float) -> None:
    """numpy has executed something that could have been compiled."""
    global _spent
    _spent += microseconds


def affordable() -> bool:
    """Whether LLVM is loaded, or may be because numpy has spent as much as that takes."""
    return _compiler is not None or _spent > LOADING


def known_forms() -> dict[Form, int]:
    """The forms compiled so far, without loading LLVM for that."""
    return {} if _compiler is None else _compiler.addresses


def enabled() -> bool:
    """Whether instructions may be compiled: llvmlite is installed, and CUTETUT_JIT=0 does not forbid it."""
    return os.environ.get("CUTETUT_JIT") != "0" and _installed()


def _installed() -> bool:
    global _is_installed
    if _is_installed is None:
        from importlib.util import find_spec

        _is_installed = find_spec("llvmlite") is not None
    return _is_installed


_is_installed: bool | None = None


class Chain:
    """Instructions of one kernel on one machine that run together, one behind the other."""

    def __init__(self, functions: np.ndarray, operands: np.ndarray, rows: list[np.ndarray]) -> None:
        """functions: their addresses; operands: those of each instruction's, a row each, which lie in these rows."""
        self.records = np.column_stack((functions, operands))
        self.rows = rows
        self.run: Callable[..., None] = compiler().chain
        self.at, self.count = self.records.ctypes.data, len(functions)

    def __call__(self, start: int, stop: int, mask: int | None) -> None:
        """Execute for the threads from start to stop, both multiples of LANES, of which a mask selects."""
        self.run(self.at, self.count, start, stop, mask)
