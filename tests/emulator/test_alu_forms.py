"""The forms the emulator accepts are those that NVIDIA's assembler accepts for sm_90a, where there is one to ask."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from cutetut.emulator import ptx
from cutetut.emulator.errors import UnknownInstruction
from cutetut.emulator.machine import opcodes
from cutetut.emulator.machine.machine import Launch, Machine
from cutetut.emulator.machine.memory import GlobalMemory
from cutetut.emulator.units import load_all
from cutetut.emulator.units.alu.forms import FORMS, describe

load_all()  # the table of forms is full once the units are imported, whichever test runs first
pytestmark = pytest.mark.emulator
HEAD = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry k()
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b128 %q<4>;
"""
TYPES = "u8 s8 b8 u16 s16 b16 u32 s32 b32 u64 s64 b64 f16 bf16 f32 f64 f16x2 bf16x2 u16x2 s16x2".split()
SCALARS = "u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64".split()
ROUND = ("", "rn", "rz", "rm", "rp")
TOLERATED = re.compile(  # the assembler takes these, the ISA does not list them
    r"(addc|subc|madc\.\w+)\.[su]16 |fma\.r[zmp](\.relu)?\.bf16|rcp\.r\w\.ftz\.f64 "
)


def register(kind: str, number: int) -> str:
    if kind.endswith("x2"):
        return f"{'%h' if kind[0] == 'e' else '%r'}{number}"
    width = {"tf32": "32", "bf16": "16"}.get(kind, kind[1:])
    return f"{ {'8': '%h', '16': '%h', '32': '%r', '64': '%d'}[width] }{number}"


def lines(names: str, sources: int, *groups: Iterable[str], types: list[str] = TYPES) -> Iterable[str]:
    """Every combination of modifiers and types of an instruction whose operands all have one type."""
    for name, kind, chosen in itertools.product(names.split(), types, itertools.product(*groups)):
        opcode = ".".join(part for part in (name, *chosen, kind) if part)
        yield f"{opcode} {', '.join(register(kind, i + 1) for i in range(sources + 1))};"


def arithmetic() -> Iterable[str]:
    ftz, sat, cc = ("", "ftz"), ("", "sat"), ("", "cc")
    yield from lines("add sub mul", 2, ROUND, ftz, sat)
    yield from lines("fma mad", 3, ROUND, ftz, sat, ("", "relu"))
    yield from lines("mad", 3, ("lo", "hi"), sat, cc)
    yield from lines("madc", 3, ("", "lo", "hi"), cc)
    yield from lines("mad24", 3, ("", "lo", "hi"), sat)
    yield from lines("mul mul24", 2, ("", "lo", "hi"))
    yield from lines("add sub addc subc", 2, cc)
    yield from lines("sad", 3)
    yield from lines("div", 2, (*ROUND, "approx", "full"), ftz)
    yield from lines("rem copysign and or xor", 2)
    yield from lines("abs neg not cnot brev", 1, ftz)
    yield from lines("min max", 2, ftz, ("", "NaN"), ("", "xorsign.abs", "abs"), ("", "relu"))
    yield from lines("rcp sqrt rsqrt sin cos lg2 ex2 tanh", 1, (*ROUND, "approx"), ftz)


def others() -> Iterable[str]:
    for kind in TYPES:
        d, a, b, c = (register(kind, i) for i in (1, 2, 3, 4))
        for name in ("popc", "clz", "bfind", "bfind.shiftamt"):
            yield f"{name}.{kind} %r1, {a};"
        yield f"shl.{kind} {d}, {a}, %r3;"
        yield f"shr.{kind} {d}, {a}, %r3;"
        yield f"bfe.{kind} {d}, {a}, %r3, %r4;"
        yield f"bfi.{kind} {d}, {a}, {b}, %r4, %r5;"
        yield f"testp.normal.{kind} %p1, {a};"
        yield f"selp.{kind} {d}, {a}, {b}, %p1;"
        yield f"mov.{kind} {d}, {a};"
        for mode in ("", ".clamp", ".wrap"):
            yield f"bmsk{mode}.{kind} %r1, %r2, %r3;"
            yield f"szext{mode}.{kind} %r1, %r2, %r3;"
            yield f"shf.l{mode}.{kind} %r1, %r2, %r3, %r4;"
        for compare in "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan".split():
            for ftz in ("", ".ftz"):
                yield f"setp.{compare}{ftz}.{kind} %p1, {a}, {b};"
                yield f"setp.{compare}.or{ftz}.{kind} %p1|%p2, {a}, {b}, !%p3;"
        for other, ftz in itertools.product(TYPES, ("", ".ftz")):
            yield f"set.lt{ftz}.{other}.{kind} {register(other, 1)}, {a}, {b};"
            if kind in ("s32", "f32"):
                yield f"slct{ftz}.{other}.{kind} {', '.join(register(other, i) for i in (1, 2, 3))}, {c};"
    for sign, bits in itertools.product("us", (2, 4, 8, 16)):
        yield f"cvt.pack.sat.{sign}{bits}.s32.b32 %r1, %r2, %r3, %r4;"
        yield f"cvt.pack.sat.{sign}{bits}.s32 %r1, %r2, %r3;"
    for types in ("u32.u32", "u32.s32", "s32.s32", "s32.u64"):
        yield f"dp4a.{types} %r1, %r2, %r3, %r4;"
        yield f"dp2a.lo.{types} %r1, %r2, %r3, %r4;"
        yield f"dp2a.{types} %r1, %r2, %r3, %r4;"


def conversions() -> Iterable[str]:
    rounding = (*ROUND, "rni", "rzi", "rna")
    tails = ("", "ftz", "sat", "ftz.sat", "relu", "satfinite", "satfinite.relu")
    for to, of, mode, tail in itertools.product([*SCALARS, "tf32"], SCALARS, rounding, tails):
        if mode == "rna" and to != "tf32":
            continue
        opcode = ".".join(part for part in ("cvt", mode, tail, to, of) if part)
        yield f"{opcode} {register(to, 1)}, {register(of, 2)};"
    pairs = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")
    for to, of, mode, tail in itertools.product(pairs, ("f32", *pairs), rounding, tails):
        opcode = ".".join(part for part in ("cvt", mode, tail, to, of) if part)
        second = ", %r3" if of == "f32" else ""
        yield f"{opcode} {register(to, 1)}, {register(of, 2)}{second};"


def refused_by_ptxas(text: list[str], folder: Path) -> set[int]:
    path = folder / "forms.ptx"
    path.write_text(HEAD + "\n".join(text) + "\nret;\n}\n")
    done = subprocess.run(
        ["ptxas", "-arch", "sm_90a", "-o", str(folder / "forms.cubin"), str(path)], capture_output=True, text=True
    )
    first = HEAD.count("\n") + 1
    found = re.findall(r"line (\d+); (?:error|fatal)", done.stdout + done.stderr)
    assert found, "a list of which nothing is refused tests nothing"
    return {int(number) - first for number in found}


def refused_by_us(text: list[str]) -> set[int]:
    refused = set()
    for i, line in enumerate(text):
        module = ptx.parse(f"{HEAD}{line}\nret;\n}}\n")
        kernel = module.kernels["k"]
        machine = Machine(module, kernel, Launch((1, 1, 1), (32, 1, 1)), GlobalMemory())
        try:
            opcodes.lookup(kernel.body[0]).decode(kernel.body[0], machine)
        except UnknownInstruction:
            refused.add(i)
        finally:
            machine.release()
    return refused


# Not required: the package that has ptxas would tie torch to one version of CUDA.
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="optional: there is no ptxas to ask")
@pytest.mark.parametrize("family", [arithmetic, others, conversions])
def test_accepts_what_the_assembler_accepts(family: Callable[[], Iterable[str]], tmp_path: Path) -> None:
    text = [line for line in dict.fromkeys(family()) if not TOLERATED.match(line)]
    theirs, ours = refused_by_ptxas(text, tmp_path), refused_by_us(text)
    assert [text[i] for i in sorted(theirs ^ ours)] == []


def test_the_list_of_forms_names_every_type() -> None:
    for mnemonic, forms in FORMS.items():
        text = opcodes.OPS[mnemonic].forms
        assert describe(mnemonic) in text
        assert all(re.search(rf"[.{{|]{re.escape(kind)}\b", text) for kind in forms), mnemonic
        assert opcodes.OPS[mnemonic].section.startswith("9.7.")
