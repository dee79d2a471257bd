"""Comparison and selection (PTX ISA sections 9.7.6 and 9.7.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...machine.arithmetic import Compute
from ...machine.opcodes import Selection, Step, unsupported
from ...numbers.logic import LOGIC
from ...numbers.rounding import decode as decode_format
from ...numbers.rounding import encode, flush32
from ...numbers.types import DTYPES, INTEGER
from ...ptx.syntax import Pair
from .forms import check_modifiers, operands, refuse_constants
from .half import flush16, format_of
from .integer import split

if TYPE_CHECKING:
    from ...machine.machine import Machine
    from ...ptx.syntax import Instruction

SIGNED = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
UNSIGNED = {**SIGNED, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
BITWISE = {"eq": np.equal, "ne": np.not_equal}
FLOAT: dict[str, Compute] = {  # the plain ones are false and the ...u ones true where an operand is NaN
    "eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "equ": lambda a, b: ~((a < b) | (a > b)), "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b), "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: (a == a) & (b == b), "nan": lambda a, b: (a != a) | (b != b),
}  # fmt: skip
HALF = ("f16", "bf16", "f16x2", "bf16x2")
COMPARABLE = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", *HALF)


def comparison(inst: Instruction, kind: str, name: str, ftz: bool) -> Compute:
    """The function of two operands' rows; for x2 types the result has twice as many elements."""
    table = FLOAT if "f" in kind else {"b": BITWISE, "u": UNSIGNED, "s": SIGNED}[kind[0]]
    if kind not in COMPARABLE or name not in table:
        raise unsupported(inst, f".{name} is no comparison for .{kind}")
    compare = table[name]
    if ftz and kind not in ("f32", "f16", "f16x2"):
        raise unsupported(inst, f".ftz does not apply to .{kind}")
    if kind == "f32" and ftz:
        return lambda a, b: compare(flush32(a), flush32(b))
    if kind not in HALF:
        return compare
    refuse_constants(inst, kind)
    fmt = format_of(kind)

    def halves(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = [split(x, np.uint16) for x in (a, b)]
        return compare(*(decode_format(flush16(x) if ftz else x, fmt) for x in bits))

    return halves


def _split_modifiers(inst: Instruction, present: tuple[str, ...]) -> tuple[str, str | None, bool]:
    """The comparison, the boolean operator that joins it with a predicate, and .ftz."""
    names = "|".join({**UNSIGNED, **FLOAT})
    modifiers = check_modifiers(inst, f"{names}! and|or|xor ftz", present)
    operator = next((name for name in LOGIC if name in modifiers), None)
    return next(iter(modifiers - {"ftz", operator})), operator, "ftz" in modifiers


# -- setp ------------------------------------------------------------------------------------------


def decode_setp(inst: Instruction, machine: Machine) -> Step:
    """setp.cmp p|q, a, b and setp.cmp.op p|q, a, b, c: p = cmp op c, q = !cmp op c.

    For packed halves p is about the low and q about the high half.
    """
    name, operator, ftz = _split_modifiers(inst, inst.parts[1:-1])
    kind = inst.parts[-1]
    compare = comparison(inst, kind, name, ftz)
    first, *sources = operands(inst, 4 if operator else 3)
    if isinstance(first, Pair) and kind in ("f16", "bf16"):
        raise unsupported(inst, f"setp.{kind} gives one predicate")
    p = machine.target(first.first if isinstance(first, Pair) else first, np.bool_)
    q = machine.target(first.second, np.bool_) if isinstance(first, Pair) else None
    a, b = (machine.source(x, DTYPES[kind]) for x in sources[:2])
    if q is None and operator is None and not kind.endswith("x2"):

        def plain(sel: Selection) -> None:
            p[sel] = compare(a[sel], b[sel])

        return plain
    combine: Compute = LOGIC[operator] if operator else (lambda value, _: value)
    other: Callable = machine.predicate(sources[2]) if operator else (lambda sel: None)

    def step(sel: Selection) -> None:
        result, c = compare(a[sel], b[sel]), other(sel)
        low, high = (result[::2], result[1::2]) if kind.endswith("x2") else (result, ~result)
        low, high = combine(low, c), combine(high, c)  # before writing: c may be p or q
        p[sel] = low
        if q is not None:
            q[sel] = high

    return step


# -- set -------------------------------------------------------------------------------------------

SET_RESULTS = {  # source type -> result types
    **{kind: ("u32", "s32", "f32", "f16", "bf16") for kind in COMPARABLE if kind not in HALF},
    "f16": ("u16", "s16", "u32", "s32", "f16", "bf16"), "bf16": ("u16", "s16", "u32", "s32", "bf16"),
    "f16x2": ("u32", "s32", "f16x2"), "bf16x2": ("u32", "s32", "bf16x2"),
}  # fmt: skip


def decode_set(inst: Instruction, machine: Machine) -> Step:
    """set.cmp{.op}.dtype.stype d, a, b{, c}: all ones (1.0 for a float type) where true, otherwise zero."""
    if len(inst.parts) < 4:
        raise unsupported(inst, "set needs a comparison and two types")
    result_kind, kind = inst.parts[-2:]
    name, operator, ftz = _split_modifiers(inst, inst.parts[1:-2])
    if result_kind not in SET_RESULTS.get(kind, ()) or (ftz and result_kind == "bf16"):
        raise unsupported(inst, f"no result of .{result_kind} from .{kind}")
    compare = comparison(inst, kind, name, ftz)
    first, *sources = operands(inst, 4 if operator else 3)
    a, b = (machine.source(x, DTYPES[kind]) for x in sources[:2])
    packed = kind.endswith("x2")
    dtype = DTYPES[result_kind]
    d = machine.target(first, dtype)
    element = np.uint16 if packed else dtype
    truth = _truth(result_kind, packed)
    combine = LOGIC[operator] if operator else None
    other = machine.predicate(sources[2]) if operator else None

    def step(sel: Selection) -> None:
        result = compare(a[sel], b[sel])
        if combine is not None and other is not None:
            result = combine(result, np.repeat(other(sel), 2) if packed else other(sel))
        values = np.where(result, element(truth), element(0))
        d[sel] = values.view(dtype) if packed else values

    return step


def _truth(kind: str, packed: bool) -> int | float:
    """What `set` writes for true, as an element of the destination."""
    if kind == "f32":
        return 1.0
    if kind.startswith(("f16", "bf16")):
        return int(encode(np.ones(1), format_of(kind))[0])
    if packed:
        return 0xFFFF
    return -1 if kind[0] == "s" else np.iinfo(INTEGER[kind]).max


# -- selp, slct ------------------------------------------------------------------------------------

SELECTABLE = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def decode_selp(inst: Instruction, machine: Machine) -> Step:
    """selp d, a, b, p: a where p holds, otherwise b."""
    kind = inst.parts[-1]
    if kind not in SELECTABLE or len(inst.parts) != 2:
        raise unsupported(inst, f"selp is emulated for the types {', '.join(SELECTABLE)}")
    first, *sources = operands(inst, 4)
    dtype = DTYPES[kind]
    d, a, b = machine.target(first, dtype), machine.source(sources[0], dtype), machine.source(sources[1], dtype)
    predicate = machine.predicate(sources[2])

    def step(sel: Selection) -> None:
        d[sel] = np.where(predicate(sel), a[sel], b[sel])

    return step


def decode_slct(inst: Instruction, machine: Machine) -> Step:
    """slct d, a, b, c: a where c >= 0 (not where c is NaN), otherwise b."""
    if len(inst.parts) < 3 or inst.parts[-2] not in SELECTABLE or inst.parts[-1] not in ("s32", "f32"):
        raise unsupported(inst, "the form is slct{.ftz}.type.s32 or .f32")
    kind, condition = inst.parts[-2:]
    present = check_modifiers(inst, "ftz" if condition == "f32" else "", inst.parts[1:-2])
    first, *sources = operands(inst, 4)
    dtype = DTYPES[kind]
    d, a, b = machine.target(first, dtype), machine.source(sources[0], dtype), machine.source(sources[1], dtype)
    c = machine.source(sources[2], DTYPES[condition])
    load: Callable[[np.ndarray], np.ndarray] = flush32 if "ftz" in present else (lambda x: x)

    def step(sel: Selection) -> None:
        d[sel] = np.where(load(c[sel]) >= 0, a[sel], b[sel])

    return step
