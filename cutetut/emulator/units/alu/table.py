"""The arithmetic units: every mnemonic of PTX's arithmetic, logic, comparison, moves and conversions.

One mnemonic has forms of several units: `add` exists for integers, float32, halves and so on.  The tables are
filled by integer.py, bits.py, float32.py and half.py; instructions whose operands or modifiers do not fit a table have
a decoder of their own.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ...machine.opcodes import Step, opcode
from ...ptx.effects import Effect
from . import float32  # noqa: F401  (it fills the tables)
from .bits import decode_logic, decode_lop3, decode_prmt
from .compare import COMPARABLE, SELECTABLE, SET_RESULTS, decode_selp, decode_set, decode_setp, decode_slct
from .convert import PACK_TYPES, PACKED_MODIFIERS, TF32_MODIFIERS, decode_cvt, decode_cvt_pack
from .forms import FORMS, decode, describe
from .integer import decode_extended
from .move import MOVABLE, decode_mov

if TYPE_CHECKING:
    from ...machine.machine import Machine
    from ...ptx.syntax import Instruction

SECTIONS = {  # of the PTX ISA
    "add": "9.7.1.1, 9.7.3.3, 9.7.4.1", "sub": "9.7.1.2, 9.7.3.4, 9.7.4.2", "mul": "9.7.1.3, 9.7.3.5, 9.7.4.3",
    "mad": "9.7.1.4, 9.7.3.7", "mul24": "9.7.1.5", "mad24": "9.7.1.6", "sad": "9.7.1.7",
    "div": "9.7.1.8, 9.7.3.8", "rem": "9.7.1.9", "abs": "9.7.1.10, 9.7.3.9, 9.7.4.6",
    "neg": "9.7.1.11, 9.7.3.10, 9.7.4.5", "min": "9.7.1.12, 9.7.3.11, 9.7.4.7",
    "max": "9.7.1.13, 9.7.3.12, 9.7.4.8", "popc": "9.7.1.14", "clz": "9.7.1.15", "bfind": "9.7.1.16",
    "fns": "9.7.1.17", "brev": "9.7.1.18", "bfe": "9.7.1.19", "bfi": "9.7.1.20", "szext": "9.7.1.21",
    "bmsk": "9.7.1.22", "dp4a": "9.7.1.23", "dp2a": "9.7.1.24", "testp": "9.7.3.1", "copysign": "9.7.3.2",
    "fma": "9.7.3.6, 9.7.4.4", "rcp": "9.7.3.13, 9.7.3.14", "sqrt": "9.7.3.15", "rsqrt": "9.7.3.16, 9.7.3.17",
    "sin": "9.7.3.18", "cos": "9.7.3.19", "lg2": "9.7.3.20", "ex2": "9.7.3.21, 9.7.4.10",
    "tanh": "9.7.3.22, 9.7.4.9", "and": "9.7.8.1", "or": "9.7.8.2", "xor": "9.7.8.3", "not": "9.7.8.4",
    "cnot": "9.7.8.5", "shf": "9.7.8.7", "shl": "9.7.8.8", "shr": "9.7.8.9",
}  # fmt: skip
LOGIC = ("and", "or", "xor", "not")
EXTENDED = ("add", "sub", "mad")
_arithmetic = functools.partial(opcode, unit="alu", effect=Effect.COMPUTES)


def decode_arithmetic(inst: Instruction, machine: Machine) -> Step:
    """Decode an instruction by its table; add.cc, sub.cc and mad.cc go to extended precision."""
    if "cc" in inst.parts and inst.parts[0] in EXTENDED:
        return decode_extended(inst, machine)
    return decode(inst, machine)


for _name in FORMS:
    _forms = describe(_name)
    _decode = decode_arithmetic
    if _name in LOGIC:
        _forms, _decode = f"{_forms} .pred", decode_logic
    if _name in EXTENDED:
        _forms += ", " + ("(.lo|.hi)" if _name == "mad" else "") + ".cc.{u32|s32|u64|s64}"
    _arithmetic(_name, forms=_forms, section=SECTIONS[_name])(_decode)

_arithmetic("addc", "subc", forms="{.cc}.{u32|s32|u64|s64}", section="9.7.2.2, 9.7.2.4")(decode_extended)
_arithmetic("madc", forms="(.lo|.hi){.cc}.{u32|s32|u64|s64}", section="9.7.2.6")(decode_extended)
_arithmetic("lop3", forms="{.and|.or}.b32", section="9.7.8.6")(decode_lop3)
_arithmetic("prmt", forms=".b32{.f4e|.b4e|.rc8|.ecl|.ecr|.rc16}", section="9.7.9.7")(decode_prmt)
_arithmetic(
    "setp",
    forms=f".cmp{{.and|.or|.xor}}{{.ftz}}.{{{'|'.join(COMPARABLE)}}}",
    section="9.7.6.2, 9.7.7.2",
)(decode_setp)
_arithmetic(
    "set",
    forms=".cmp{.and|.or|.xor}{.ftz}" + ", ".join(f".{{{'|'.join(to)}}}.{of}" for of, to in SET_RESULTS.items()),
    section="9.7.6.1, 9.7.7.1",
)(decode_set)
_arithmetic("selp", forms=f".{{{'|'.join(SELECTABLE)}}}", section="9.7.6.3")(decode_selp)
_arithmetic("slct", forms=f"{{.ftz}}.{{{'|'.join(SELECTABLE)}}}.{{s32|f32}}", section="9.7.6.4")(decode_slct)
_arithmetic("mov", forms=f".{{{'|'.join(MOVABLE)}|b128}}", section="9.7.9.3, 9.7.9.4")(decode_mov)
_arithmetic(
    "cvt",
    forms="{.rni|.rzi|.rmi|.rpi}{.rn|.rz|.rm|.rp}{.ftz}{.sat}{.relu}{.satfinite} between all of u8..u64, s8..s64, "
    f"f16, bf16, f32, f64; .tf32.f32 ({TF32_MODIFIERS}); "
    + ", ".join(f".{result}.{source}" for result, source in PACKED_MODIFIERS),
    section="9.7.9.21",
)(decode_cvt)
_arithmetic("cvt.pack", forms=f".sat.{{{'|'.join(PACK_TYPES)}}}.s32{{.b32}}", section="9.7.9.22")(
    decode_cvt_pack
)
