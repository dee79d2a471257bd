"""The choice of who runs next in machine code; numpy's (machine/picking.py) is the reference, and makes the others.

Two passes over the warps: `survey` finds the lowest block of each and the warp that has waited longest, `take` the
threads that stand where that one does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from ..machine.picking import NEVER, NOWHERE, PATIENCE, Picker
from ..machine.schedule import Schedule
from ..machine.threads import READY, WARP, Selection
from . import engine
from .engine import address_of, compiler

COMPILING = 10_000.0  # microseconds
PER_PICK, PER_WARP = 25.0, 0.15  # numpy's time for one choice, in microseconds
EVERY = -1  # warp: all that stand at the block

_SURVEY = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)
_TAKE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 7, *[ctypes.c_int64] * 4)
_functions: tuple[Callable[..., int], Callable[..., int]] | None = None
_spent = 0.0  # microseconds of numpy


class CompiledPicker(Picker):
    """The same choices, in machine code as soon as numpy has spent on them what compiling costs."""

    def __init__(self, threads: int, schedule: Schedule, warps_per_cta: int) -> None:
        super().__init__(threads, schedule, warps_per_cta)
        self.lowest = np.zeros(self.warps, np.int32)
        self.found = np.zeros(threads, np.int64)
        self.cost = PER_PICK + PER_WARP * self.warps
        self.usable = engine.enabled() and not schedule.drawn
        rows = (self.pc, self.status, self.lowest, self.last_run, self.warp_turns, self.lane_turn, self.found)
        self.addresses = [address_of(row) for row in rows]

    def pick(self, turn: int) -> tuple[int, Selection] | None:
        functions = _ready(self.cost) if self.usable else None
        if functions is None:
            return super().pick(turn)
        survey, take = functions
        warp = survey(*self.addresses[:4], self.warps)
        if warp < 0:
            return None
        number = lowest = int(self.lowest[warp])
        if self.warp_turns[warp] % PATIENCE == 0:
            number = self.starved_block(warp)
        count = take(*self.addresses, self.warps, number, EVERY if number == lowest else warp, turn)
        first, last = int(self.found[0]), int(self.found[count - 1])
        if last - first + 1 == count:
            return number, slice(first, last + 1)
        return number, self.found[:count].copy()


def _ready(cost: float) -> tuple[Callable[..., int], Callable[..., int]] | None:
    """The functions, compiled when numpy has spent on choices what that costs; None before."""
    global _functions, _spent
    if _functions is None:
        if _spent < COMPILING or not engine.affordable():
            _spent += cost
            engine.spend(cost)
            return None
        survey, take = compiler().compile_text(_TEXT, ["survey", "take"])
        _functions = _SURVEY(survey), _TAKE(take)
    return _functions


_LANES = f"""%t = shl i64 %w, 5
  %pp = getelementptr i32, ptr %pc, i64 %t
  %pv = load <{WARP} x i32>, ptr %pp, align 4
  %sp = getelementptr i8, ptr %status, i64 %t
  %sv = load <{WARP} x i8>, ptr %sp, align 1
  %ready = icmp eq <{WARP} x i8> %sv, splat (i8 {READY})"""

_TEXT = f"""
declare i32 @llvm.vector.reduce.smin.v{WARP}i32(<{WARP} x i32>)
declare i32 @llvm.cttz.i32(i32, i1)

define i64 @survey(ptr %pc, ptr %status, ptr %lowest, ptr %last, i64 %warps) {{
entry:
  br label %warp
warp:
  %w = phi i64 [ 0, %entry ], [ %w2, %warp ]
  %best = phi i64 [ -1, %entry ], [ %best2, %warp ]
  %least = phi i64 [ {NEVER}, %entry ], [ %least2, %warp ]
  {_LANES}
  %at = select <{WARP} x i1> %ready, <{WARP} x i32> %pv, <{WARP} x i32> splat (i32 {NOWHERE})
  %low = call i32 @llvm.vector.reduce.smin.v{WARP}i32(<{WARP} x i32> %at)
  %lp = getelementptr i32, ptr %lowest, i64 %w
  store i32 %low, ptr %lp, align 4
  %rp = getelementptr i64, ptr %last, i64 %w
  %run = load i64, ptr %rp, align 8
  %some = icmp ne i32 %low, {NOWHERE}
  %earlier = icmp slt i64 %run, %least
  %better = and i1 %some, %earlier
  %best2 = select i1 %better, i64 %w, i64 %best
  %least2 = select i1 %better, i64 %run, i64 %least
  %w2 = add i64 %w, 1
  %more = icmp slt i64 %w2, %warps
  br i1 %more, label %warp, label %end
end:
  ret i64 %best2
}}

define i64 @take(ptr %pc, ptr %status, ptr %lowest, ptr %last, ptr %turns, ptr %lanes, ptr %found,
                 i64 %warps, i64 %wide, i64 %only, i64 %turn) {{
entry:
  %number = trunc i64 %wide to i32
  %n1 = insertelement <{WARP} x i32> poison, i32 %number, i64 0
  %numbers = shufflevector <{WARP} x i32> %n1, <{WARP} x i32> poison, <{WARP} x i32> zeroinitializer
  %all = icmp slt i64 %only, 0
  br label %warp
warp:
  %w = phi i64 [ 0, %entry ], [ %w2, %next ]
  %count = phi i64 [ 0, %entry ], [ %count2, %next ]
  %lp = getelementptr i32, ptr %lowest, i64 %w
  %low = load i32, ptr %lp, align 4
  %stands = icmp eq i32 %low, %number
  %is = icmp eq i64 %w, %only
  %goes = select i1 %all, i1 %stands, i1 %is
  br i1 %goes, label %go, label %next
go:
  %rp = getelementptr i64, ptr %last, i64 %w
  store i64 %turn, ptr %rp, align 8
  %kp = getelementptr i64, ptr %turns, i64 %w
  %k = load i64, ptr %kp, align 8
  %k2 = add i64 %k, 1
  store i64 %k2, ptr %kp, align 8
  {_LANES}
  %same = icmp eq <{WARP} x i32> %pv, %numbers
  %here = and <{WARP} x i1> %ready, %same
  %bits = bitcast <{WARP} x i1> %here to i32
  br label %lane
lane:
  %left = phi i32 [ %bits, %go ], [ %left2, %lane2 ]
  %n = phi i64 [ %count, %go ], [ %n2, %lane2 ]
  %any = icmp ne i32 %left, 0
  br i1 %any, label %lane2, label %next
lane2:
  %which = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %less = sub i32 %left, 1
  %left2 = and i32 %left, %less
  %offset = zext i32 %which to i64
  %thread = add i64 %t, %offset
  %fp = getelementptr i64, ptr %found, i64 %n
  store i64 %thread, ptr %fp, align 8
  %ap = getelementptr i64, ptr %lanes, i64 %thread
  store i64 %k2, ptr %ap, align 8
  %n2 = add i64 %n, 1
  br label %lane
next:
  %count2 = phi i64 [ %count, %warp ], [ %n, %lane ]
  %w2 = add i64 %w, 1
  %more = icmp slt i64 %w2, %warps
  br i1 %more, label %warp, label %end
end:
  ret i64 %count2
}}
"""
