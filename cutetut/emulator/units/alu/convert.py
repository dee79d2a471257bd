"""cvt and cvt.pack (PTX ISA sections 9.7.9.21 and 9.7.9.22).

A conversion has three parts: read a value (an integer, or float64, which holds every float exactly),
round it, store it.  Special rules of the ISA: float to integer clamps; NaN becomes 0, or the lowest signed
number where a 64-bit type takes part; .sat clamps floats to [0, 1] and integers to the destination's range.

Seen on an H200: NaN becomes the canonical one from f32, but from f64 to bf16 it keeps its sign and upper bits;
f64 to f16 and f32 is the same instruction of the machine, F2F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...machine.arithmetic import Compute, Modifiers, Operation
from ...machine.opcodes import Selection, Step, unsupported
from ...numbers.rounding import (
    FORMATS,
    TO_INTEGRAL,
    Format,
    add64,
    bfloat_nearest,
    decode,
    encode,
    f32,
    f64,
    flush32,
    flush32_result,
    half_nearest,
    integer_odd,
    narrow,
    quiet,
    round32,
    saturate,
)
from ...numbers.types import DTYPES, INTEGER, PAIR_DTYPES
from ...ptx.syntax import Register
from .forms import IllegalForm, bind, check_modifiers, operands, refuse_constants
from .half import relu
from .integer import split

if TYPE_CHECKING:
    from ...machine.machine import Machine
    from ...ptx.syntax import Instruction

FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
TO_INTEGER = "rni|rzi|rmi|rpi"
TO_FLOAT = "rn|rz|rm|rp"


# -- the legal modifiers of a pair of types --------------------------------------------------------


def scalar_modifiers(result: str, source: str) -> str | None:
    """The modifiers that cvt.result.source takes on sm_90, None if there is no such conversion."""
    known = {*INTEGER, *FLOATS}
    ftz = " ftz" if "f32" in (result, source) else ""
    sat = "" if "bf16" in (result, source) else " sat"
    if result not in known or source not in known:
        return None
    if result in INTEGER:
        if source in INTEGER:
            return "sat" if _may_saturate(result, source) else ""
        return f"{TO_INTEGER}!{ftz}{sat}"
    if source in INTEGER:
        return f"{TO_FLOAT}!{ftz}{sat}"
    if result == source:
        return f"{TO_INTEGER}{ftz}{sat}"
    if source == "f32" and FLOATS[result] == 16:
        return f"{TO_FLOAT}! relu satfinite{ftz}{sat}"
    if source == "bf16" or (result, source) == ("bf16", "f16"):
        return f"{TO_FLOAT}{ftz}"
    return f"{TO_FLOAT}!{ftz}{sat}" if FLOATS[result] < FLOATS[source] else f"{ftz}{sat}"


def _check_byte(inst: Instruction, machine: Machine, result: str, source: str) -> None:
    """Between bytes and bf16 NVIDIA's assembler takes 8-bit registers only, elsewhere wider ones too."""
    for operand, kind in zip(inst.operands, (result, source), strict=False):
        if kind in ("u8", "s8") and machine.register_dtype(operand).itemsize != 1:
            raise unsupported(inst, "a byte that is converted to or from .bf16 must be in a .b8 register")


def _may_saturate(result: str, source: str) -> bool:
    """Whether some value of the source lies outside the result's range."""
    to, of = np.iinfo(INTEGER[result]), np.iinfo(INTEGER[source])
    return int(of.min) < int(to.min) or int(of.max) > int(to.max)


# -- one value to one value ------------------------------------------------------------------------


def integer_to_integer(result: str, source: str, m: Modifiers) -> Compute:
    to, of = np.iinfo(INTEGER[result]), np.iinfo(INTEGER[source])
    dtype = INTEGER[result]
    if "sat" not in m:
        return lambda a: a.astype(dtype)
    low, high = max(int(to.min), int(of.min)), min(int(to.max), int(of.max))
    return lambda a: np.clip(a, low, high).astype(dtype)


def float_to_integer(result: str, source: str, m: Modifiers) -> Compute:
    """Round to an integral value, clamp to the range; NaN as the ISA's integer notes say."""
    mode = next(name for name in TO_INTEGER.split("|") if name in m)
    info, dtype = np.iinfo(INTEGER[result]), INTEGER[result]
    low, high = float(info.min), float(info.max)
    if high > info.max:  # 2**64-1 and 2**63-1 round up in float64
        high = float(np.nextafter(high, 0.0))
    wide = source == "f64" or info.bits == 64
    nan = dtype(info.min if info.min else 1 << (info.bits - 1)) if wide else dtype(0)
    load = reader(source, m)
    rounded = TO_INTEGRAL[mode[:2]]

    def compute(a: np.ndarray) -> np.ndarray:
        value = rounded(load(a))
        number = np.fmin(np.fmax(value, low), high)
        integer = number.astype(dtype)
        if info.bits == 64:
            integer = np.where(value > high, dtype(info.max), integer)
        return np.where(value != value, nan, integer)

    return compute


def reader(source: str, m: Modifiers) -> Callable[[np.ndarray], np.ndarray]:
    """Registers of a float type as float64, .ftz applied to float32."""
    if source == "f64":
        return lambda a: a
    if source == "f32":
        return (lambda a: flush32(a).astype(f64)) if "ftz" in m else (lambda a: a.astype(f64))
    fmt = FORMATS[source]
    return lambda a: decode(np.ascontiguousarray(a), fmt)


def to_float(result: str, source: str, m: Modifiers) -> Compute:
    """Any source to a float type."""
    mode = next((name for name in TO_FLOAT.split("|") if name in m), "rn")
    load = integer_odd if source in INTEGER else reader(source, m)
    integral = next((TO_INTEGRAL[name[:2]] for name in TO_INTEGER.split("|") if name in m), None)
    store = writer(result, mode, m)
    if result == "f64":
        if source in ("s64", "u64"):
            return _saturated(lambda a: integer_to_double(a, mode), m)
        store = lambda x: x  # noqa: E731
    if integral is not None:
        return lambda a: store(_clamped(integral(load(a)), m))
    if source == "f64" and result != "f64" and "sat" not in m:
        return lambda a: with_nans_of(a, store(a), FORMATS[result])
    return lambda a: store(_clamped(load(a), m))


def with_nans_of(a: np.ndarray, result: np.ndarray, fmt: Format) -> np.ndarray:
    """Narrowed float64 with NaNs as an H200 makes them: the sign and the upper fraction bits stay, quiet is set."""
    bad = a != a
    if not np.count_nonzero(bad):
        return result
    kept = fmt.precision - 1  # fraction bits; above them the exponent, all ones, and the sign
    top = 8 * np.dtype(fmt.dtype).itemsize - 1
    bits = a[bad].view(np.uint64)
    quiet_nan = (1 << top) - (1 << (kept - 1))  # the exponent and the highest fraction bit
    fraction = (bits >> np.uint64(52 - kept)) & np.uint64((1 << kept) - 1)
    pattern = (bits >> np.uint64(63)) << np.uint64(top) | np.uint64(quiet_nan) | fraction
    stored = np.array(result)
    stored.view(fmt.dtype)[bad] = pattern.astype(fmt.dtype)
    return stored


def _clamped(x: np.ndarray, m: Modifiers) -> np.ndarray:
    return saturate(x) if "sat" in m else x


def _saturated(compute: Compute, m: Modifiers) -> Compute:
    return (lambda a: saturate(compute(a))) if "sat" in m else compute


def integer_to_double(x: np.ndarray, mode: str) -> np.ndarray:
    """A 64-bit integer to float64: the sum of its two halves, each of which is exact."""
    high, low = (x >> 32).astype(f64) * 2.0**32, (x & x.dtype.type(0xFFFFFFFF)).astype(f64)
    result = add64(high, low, mode)
    return result + 0.0  # zero is +0 in every mode


def writer(result: str, mode: str, m: Modifiers) -> Callable[[np.ndarray], np.ndarray]:
    """float64 values, exact or rounded to odd, as register contents of a narrower type."""
    if result == "f32":
        if "ftz" in m:
            return lambda x: flush32_result(quiet(round32(x, mode)), lambda lanes: x[lanes], mode)
        return lambda x: quiet(round32(x, mode))
    if result == "f64":
        return lambda x: x
    fmt, positive, satfinite = FORMATS[result], "relu" in m, "satfinite" in m
    return lambda x: encode(narrow(relu(x) if positive else x, fmt, mode, satfinite), fmt)


NEAREST: dict[str, Compute] = {"bf16": bfloat_nearest, "f16": half_nearest}


def scalar(result: str, source: str, m: Modifiers) -> Compute:
    """The function of cvt.result.source."""
    if result in INTEGER:
        return (integer_to_integer if source in INTEGER else float_to_integer)(result, source, m)
    if source == "f32" and m == {"rn"} and result in NEAREST:
        return NEAREST[result]
    if m == {"rn"} and source in INTEGER and result in ("f32", "f64"):
        return lambda a: a.astype(DTYPES[result])  # the host rounds integers to nearest even, once
    return to_float(result, source, m)


# -- two values to a pair, and back ----------------------------------------------------------------

PACKED_MODIFIERS = {  # (result, source) -> modifiers
    ("f16x2", "f32"): "rn|rz! relu satfinite", ("bf16x2", "f32"): "rn|rz! relu satfinite",
    ("e4m3x2", "f32"): "rn! satfinite! relu", ("e5m2x2", "f32"): "rn! satfinite! relu",
    ("e4m3x2", "f16x2"): "rn! satfinite! relu", ("e5m2x2", "f16x2"): "rn! satfinite! relu",
    ("f16x2", "e4m3x2"): "rn! relu", ("f16x2", "e5m2x2"): "rn! relu",
}  # fmt: skip

def pair(result: str, source: str, m: Modifiers) -> Operation:
    """The operation of a conversion to a pair: from two float32 (the first operand to the upper half) or a pair."""
    to = result[:-2]
    dtype = PAIR_DTYPES[result]
    mode = "rz" if "rz" in m else "rn"
    if source == "f32":
        store = NEAREST[to] if m == {"rn"} else _from_single(to, mode, m)

        def join(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            both = np.empty((len(a), 2), f32)
            both[:, 0], both[:, 1] = b, a
            return store(both.ravel()).view(dtype)

        return Operation(dtype, (np.float32, np.float32), join)
    fmt, write = FORMATS[source[:-2]], writer(to, mode, m)
    element = fmt.dtype
    return Operation(dtype, (PAIR_DTYPES[source],), lambda a: write(decode(split(a, element), fmt)).view(dtype))


def _from_single(to: str, mode: str, m: Modifiers) -> Compute:
    write = writer(to, mode, m)
    return lambda x: write(x.astype(f64))


TF32_MODIFIERS = "rna|rn|rz! satfinite relu"


def to_tf32(m: Modifiers) -> Compute:
    """float32 rounded to 10 fraction bits; the 13 bits below are zero."""
    if "satfinite" in m and "rna" not in m:
        raise IllegalForm(".satfinite needs .rna on sm_90")
    if "relu" in m and "rna" in m:
        raise IllegalForm(".relu needs .rn or .rz")
    mode = next(name for name in ("rna", "rn", "rz") if name in m)
    return _from_single("tf32", mode, m)


# -- decoders --------------------------------------------------------------------------------------


def decode_cvt(inst: Instruction, machine: Machine) -> Step:
    """cvt{modifiers}.dtype.atype d, a{, b}"""
    if len(inst.parts) < 3:
        raise unsupported(inst, "cvt needs two types")
    result, source = inst.parts[-2:]
    refuse_constants(inst, source)
    present = inst.parts[1:-2]
    if (result, source) in PACKED_MODIFIERS:
        modifiers = check_modifiers(inst, PACKED_MODIFIERS[result, source], present)
        return bind(inst, machine, pair(result, source, modifiers))
    if (result, source) == ("tf32", "f32"):
        try:
            compute = to_tf32(check_modifiers(inst, TF32_MODIFIERS, present))
        except IllegalForm as error:
            raise unsupported(inst, str(error)) from None
        return bind(inst, machine, Operation(np.uint32, (np.float32,), compute))
    allowed = scalar_modifiers(result, source)
    if allowed is None:
        raise unsupported(inst, f"no conversion from .{source} to .{result} on sm_90")
    if "bf16" in (result, source):
        _check_byte(inst, machine, result, source)
    modifiers = check_modifiers(inst, allowed, present)
    if {"relu", "satfinite"} & modifiers and ({"sat", "rm", "rp", "ftz"} & modifiers):
        raise unsupported(inst, ".relu and .satfinite go with .rn or .rz only")
    operation = Operation(DTYPES[result], (DTYPES[source],), scalar(result, source, modifiers))
    return _bind_extending(inst, machine, result, operation)


def _bind_extending(inst: Instruction, machine: Machine, result: str, op: Operation) -> Step:
    """Results fill a wider register: signed integers with their sign, all others with zeros (section 9.4.1)."""
    first, second = operands(inst, 2)
    narrow_bytes = np.dtype(op.result).itemsize
    wide_bytes = machine.register_dtype(first).itemsize if isinstance(first, Register) else narrow_bytes
    if wide_bytes <= narrow_bytes:
        return bind(inst, machine, op)
    a = machine.source(second, op.sources[0])
    d = machine.target(first, DTYPES[f"{'s' if result[0] == 's' else 'u'}{8 * wide_bytes}"])
    stored = op.result if result in INTEGER else DTYPES[f"u{8 * narrow_bytes}"]

    def step(sel: Selection) -> None:
        d[sel] = op.compute(a[sel]).view(stored)

    return step


@dataclass(frozen=True)
class PackedInteger:
    """A field of cvt.pack: width in bits and the range values are clamped to."""

    bits: int
    low: int
    high: int


PACK_TYPES = {
    f"{sign}{bits}": PackedInteger(bits, -(1 << bits - 1) if sign == "s" else 0, (1 << bits - (sign == "s")) - 1)
    for sign in "us"
    for bits in (2, 4, 8, 16)
}


def decode_cvt_pack(inst: Instruction, machine: Machine) -> Step:
    """cvt.pack.sat.type.s32{.b32} d, a, b{, c}: c shifted up, then the clamped a and b below it."""
    parts = inst.parts
    field = PACK_TYPES.get(parts[3]) if len(parts) > 3 else None
    if field is None or parts[2] != "sat" or parts[4:] != (("s32",) if field.bits == 16 else ("s32", "b32")):
        raise unsupported(inst, "the forms are cvt.pack.sat.{u16|s16}.s32 and .{u2|s2|u4|s4|u8|s8}.s32.b32")
    bits, low, high = np.uint32(field.bits), field.low, field.high
    mask = np.uint32((1 << field.bits) - 1)

    def clamped(x: np.ndarray) -> np.ndarray:
        return np.clip(x, low, high).astype(np.int32).view(np.uint32) & mask

    def two(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return clamped(a) << bits | clamped(b)

    def three(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return c << (bits + bits) | two(a, b)

    if field.bits == 16:
        return bind(inst, machine, Operation(np.uint32, (np.int32, np.int32), two))
    return bind(inst, machine, Operation(np.uint32, (np.int32, np.int32, np.uint32), three))
