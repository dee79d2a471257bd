"""Loads in machine code.

`checked` takes the addresses of a load of global memory from a register and checks them itself, against one
allocation: a load that reaches outside it, or is not aligned, has no effect and is left to the unit, which finds other
allocations or raises the right error. `fetch` is the second half only, for addresses that the unit has checked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..machine.threads import Selection
from . import engine
from .code import LANES
from .engine import address_of, compiler

COMPILING = 8_000.0  # microseconds for one form
PER_LOAD, PER_THREAD = 10.0, 0.01  # numpy's time for one load, without what the unit's checks take

_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
    ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
)  # fmt: skip


@dataclass(frozen=True)
class LoadForm:
    """Bytes of one value, bytes of each register it goes to (0: to none), and how it fills a wider one."""

    unit: int
    widths: tuple[int, ...]
    signed: bool
    masked: bool

    @property
    def total(self) -> int:
        return self.unit * len(self.widths)


class CompiledLoad:
    """One ld on one machine: where its values go, and for global memory where the addresses come from."""

    def __init__(self, unit: int, targets: list[np.ndarray | None], signed: bool) -> None:
        """unit: bytes of a value; targets: rows of unsigned integers, at least as wide, or None for a sink."""
        widths = tuple(0 if row is None else row.itemsize for row in targets)
        self.forms = (LoadForm(unit, widths, signed, False), LoadForm(unit, widths, signed, True))
        self.rows, self.total = targets, unit * len(targets)
        self.addresses = np.array([0 if row is None else address_of(row) for row in targets], np.uint64)
        self.targets: int = self.addresses.ctypes.data
        self.base: np.ndarray | None = None
        self.origin = self.offset = 0

    def read_from(self, base: np.ndarray, offset: int) -> None:
        """This is ld.global [base + offset]; base: a row of int64."""
        self.base, self.origin, self.offset = base, address_of(base), offset

    def checked(self, sel: Selection, low: int, high: int) -> bool:
        """Load from [base + offset] if that lies in low..high for all threads and is aligned; whether that was done."""
        whole = isinstance(sel, slice) and not (sel.start | sel.stop) & (LANES - 1)
        function = _functions.get(self.forms[not whole])
        if function is None or self.base is None:
            return False
        limit = high - self.total
        if isinstance(sel, slice):
            first, stop = sel.start, sel.stop
        else:
            first, stop = int(sel[0]), int(sel[-1]) + 1
        if whole:
            return not function(self.origin, self.targets, self.offset, low, limit, first, stop, None)
        mask = np.zeros(len(self.base), np.bool_)
        mask[sel] = True
        first, stop = first & -LANES, (stop + LANES - 1) & -LANES
        return not function(self.origin, self.targets, self.offset, low, limit, first, stop, mask.ctypes.data)

    def fetch(self, host: np.ndarray, sel: Selection) -> bool:
        """Load from host addresses that have been checked, one for each selected thread; whether that was done."""
        whole = isinstance(sel, slice) and not (sel.start | sel.stop) & (LANES - 1)
        if not whole and self.base is None:
            return False
        function = _ready(self.forms[not whole], len(host))
        if function is None or not isinstance(sel, slice) or not whole or host.strides != (8,):
            return False
        origin = address_of(host) - 8 * sel.start
        return not function(origin, self.targets, 0, _LOWEST, _HIGHEST, sel.start, sel.stop, None)


_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_functions: dict[LoadForm, Callable[..., int]] = {}
_spent: dict[LoadForm, float] = {}  # microseconds of numpy


def _ready(form: LoadForm, threads: int) -> Callable[..., int] | None:
    """The function of a form, compiled when numpy has spent on it what that costs; None before."""
    function = _functions.get(form)
    if function is not None:
        return function
    if _spent.get(form, 0.0) < COMPILING or not engine.affordable():
        cost = PER_LOAD + PER_THREAD * threads
        _spent[form] = _spent.get(form, 0.0) + cost
        engine.spend(cost)
        return None
    address = compiler().compile_text(_text(form), ["load"], optimise=2)[0]
    function = _functions[form] = _FUNCTION(address)
    return function


def _text(form: LoadForm) -> str:
    """Two loops: the first only looks at the addresses, so that a load that is refused has changed nothing."""
    n = LANES
    vector = f"<{n} x i64>"
    selected = f"""%mp = getelementptr i8, ptr %mask, i64 %i
  %mv = load <{n} x i8>, ptr %mp, align 1
  %on = icmp ne <{n} x i8> %mv, zeroinitializer
  %wrong = and <{n} x i1> %off, %on"""
    everybody = f"%wrong = or <{n} x i1> %off, zeroinitializer"
    return f"""
declare i1 @llvm.vector.reduce.or.v{n}i1(<{n} x i1>)
define i64 @load(ptr %base, ptr %targets, i64 %offset, i64 %low, i64 %high, i64 %start, i64 %stop, ptr %mask) {{
entry:
  {_splat("offset")}
  {_splat("low")}
  {_splat("high")}
  {_targets(form)}
  br label %look
look:
  %i = phi i64 [ %start, %entry ], [ %i2, %look ]
  %seen = phi <{n} x i1> [ zeroinitializer, %entry ], [ %seen2, %look ]
  %ap = getelementptr i64, ptr %base, i64 %i
  %av = load {vector}, ptr %ap, align 8
  %a = add {vector} %av, %voffset
  %below = icmp slt {vector} %a, %vlow
  %above = icmp sgt {vector} %a, %vhigh
  %odd = and {vector} %a, splat (i64 {form.total - 1})
  %askew = icmp ne {vector} %odd, zeroinitializer
  %outside = or <{n} x i1> %below, %above
  %off = or <{n} x i1> %outside, %askew
  {selected if form.masked else everybody}
  %seen2 = or <{n} x i1> %seen, %wrong
  %i2 = add i64 %i, {n}
  %more = icmp slt i64 %i2, %stop
  br i1 %more, label %look, label %looked
looked:
  %any = call i1 @llvm.vector.reduce.or.v{n}i1(<{n} x i1> %seen2)
  br i1 %any, label %refuse, label %next
refuse:
  ret i64 1
next:
  %j = phi i64 [ %start, %looked ], [ %j2, %done ]
  {_whether(form)}
fetch:
  %bp = getelementptr i64, ptr %base, i64 %j
  %b = load i64, ptr %bp, align 8
  %at = add i64 %b, %offset
  %from = inttoptr i64 %at to ptr
  {_moves(form)}
  br label %done
done:
  %j2 = add i64 %j, 1
  %again = icmp slt i64 %j2, %stop
  br i1 %again, label %next, label %end
end:
  ret i64 0
}}
"""


def _splat(name: str) -> str:
    vector = f"<{LANES} x i64>"
    return f"""%s{name} = insertelement {vector} poison, i64 %{name}, i64 0
  %v{name} = shufflevector {vector} %s{name}, {vector} poison, <{LANES} x i32> zeroinitializer"""


def _whether(form: LoadForm) -> str:
    if not form.masked:
        return "br label %fetch"
    return """%np = getelementptr i8, ptr %mask, i64 %j
  %nv = load i8, ptr %np
  %go = icmp ne i8 %nv, 0
  br i1 %go, label %fetch, label %done"""


def _targets(form: LoadForm) -> str:
    lines = []
    for k, width in enumerate(form.widths):
        if width:
            lines += [f"%tp{k} = getelementptr ptr, ptr %targets, i64 {k}", f"%t{k} = load ptr, ptr %tp{k}"]
    return "\n  ".join(lines)


def _moves(form: LoadForm) -> str:
    """A thread's values to its registers; its address has been read before, so a target may be the base itself."""
    lines, bits = [], 8 * form.unit
    for k, width in enumerate(form.widths):
        if not width:
            continue
        lines += [f"%f{k} = getelementptr i8, ptr %from, i64 {k * form.unit}"]
        lines += [f"%l{k} = load i{bits}, ptr %f{k}, align {form.unit}"]
        value = f"%l{k}"
        if width > form.unit:
            value = f"%w{k}"
            lines += [f"{value} = {'sext' if form.signed else 'zext'} i{bits} %l{k} to i{8 * width}"]
        lines += [
            f"%d{k} = getelementptr i{8 * width}, ptr %t{k}, i64 %j",
            f"store i{8 * width} {value}, ptr %d{k}, align {width}",
        ]
    return "\n  ".join(lines)
