"""Every form of every arithmetic instruction, as PTX lines with registers of the right widths."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from cutetut.emulator.units.alu.compare import (
    BITWISE,
    COMPARABLE,
    FLOAT,
    HALF,
    SELECTABLE,
    SET_RESULTS,
    SIGNED,
    UNSIGNED,
)
from cutetut.emulator.units.alu.convert import FLOATS, PACKED_MODIFIERS, TF32_MODIFIERS, scalar_modifiers
from cutetut.emulator.units.alu.forms import FORMS, INTEGER

WIDTHS = {"pred": "p", "8": "b", "16": "h", "32": "r", "64": "d"}
NARROW_FORMATS = {"e4m3x2": "h", "e5m2x2": "h", "tf32": "r"}
ONE = {"f32": "0f3F800000", "f64": "0d3FF0000000000000"}


OTHERS = """
slct.ftz.u32.f32 $r, %ra, %rb, %rc;
mov.pred $p, %pa;
mov.pred $p, !%pb;
mov.u32 $r, %tid.x;
mov.f32 $r, 0fFF800000;
mov.u32 $r, 0x12345678;
mov.u64 $d, -2;
mov.f64 $d, 0d7FF8000000000001;
mov.b32 $r, {%ha, %hb};
mov.b64 $d, {%ra, %rb};
mov.b64 $d, {%ha, %hb, %hc, %ha};
mov.b32 {$h, $h}, %ra;
mov.b64 {$r, $r}, %da;
mov.b64 {_, $r}, %da;
mov.b64 {$h, $h, _, $h}, %db;
and.pred $p, %pa, !%pb;
or.pred $p, !%pa, %pb;
xor.pred $p, %pa, %pb;
not.pred $p, %pa;
lop3.and.b32 $r|$p, %ra, %rb, %rc, 0x96, %pa;
lop3.b32 $r, %ra, 0xFF00, %ra, 0xEA;
prmt.b32 $r, %ra, %rb, 0x5410;
prmt.b32 $r, %ra, 0, 0x9B3F;
cvta.to.global.u64 $d, %da;
cvta.shared.u64 $d, %da;
cvta.to.shared.u64 $d, %da;
cvta.local.u64 $d, %db;
add.s32 $r, %ra, 7;
sub.f32 $r, %ra, 0f7F7FFFFF;
add.s64 $d, %da, -1;
shl.b32 $r, %ra, 35;
add.u16 $h, %ha, 65535;
fma.rn.f32 $r, %ra, 0f3F000000, 0fBF800000;
"""


def letter(kind: str) -> str:
    """The register class of a type: b, h, r, d for 8 to 64 bits, p for predicates."""
    if kind in NARROW_FORMATS:
        return NARROW_FORMATS[kind]
    if kind.endswith("x2"):
        return "r"
    return WIDTHS[kind if kind == "pred" else kind.lstrip("bfsu")]


def choices(modifiers: str) -> Iterable[tuple[str, ...]]:
    """Every combination that a form's groups of modifiers allow."""
    groups = []
    for group in modifiers.split():
        names = group.rstrip("!").split("|")
        groups.append(names if group.endswith("!") else ["", *names])
    for chosen in itertools.product(*groups):
        yield tuple(name for name in chosen if name)


def _illegal(name: str, kind: str, m: set[str]) -> bool:
    """Combinations that the arithmetic units refuse."""
    if name in ("mad", "mad24") and "sat" in m and "hi" not in m:
        return True
    if ("xorsign" in m) != ("abs" in m) and name in ("min", "max"):
        return True
    if kind == "f64" and name == "rcp" and ("approx" in m) != ("ftz" in m):
        return True
    return "oob" in m and "ftz" in m


def table_lines(name: str) -> Iterable[str]:
    """The lines of a mnemonic that has a table of forms; the first operand is $, to be replaced."""
    for kind, form in FORMS[name].items():
        for m in choices(form.modifiers):
            if _illegal(name, kind, set(m)):
                continue
            yield f"{'.'.join((name, *m, kind))} {', '.join(_registers(name, kind, m))};"


def _registers(name: str, kind: str, m: tuple[str, ...]) -> list[str]:
    wide = {"h": "r", "r": "d"}
    one = letter(kind.split(".")[0])
    counts = {"fma": 3, "mad": 3, "mad24": 3, "sad": 3, "shf": 3, "dp4a": 3, "dp2a": 3, "fns": 3}
    unary = "neg abs not cnot rcp sqrt rsqrt sin cos lg2 ex2 tanh popc clz brev bfind testp".split()
    n = 1 if name in unary else counts.get(name, 2)
    sources = [f"%{one}{'abc'[i]}" for i in range(n)]
    target = f"${one}"
    if "wide" in m:
        target = f"${wide[one]}"
        sources[2:] = [f"%{wide[one]}c"] * len(sources[2:])
    elif name in ("popc", "clz", "bfind"):
        target = "$r"
    elif name == "testp":
        target = "$p"
    elif name in ("shl", "shr"):
        sources[1] = "%rb"
    elif name == "bfe":
        sources[1:] = ["%rb", "%rc"]
    elif name == "bfi":
        sources[1:] = [f"%{one}b", "%rb", "%rc"]
    return [target, *sources]


def comparison_lines() -> Iterable[str]:
    """setp in all its forms, with constants too."""
    for kind in COMPARABLE:
        names = FLOAT if "f" in kind else {"b": BITWISE, "u": UNSIGNED, "s": SIGNED}[kind[0]]
        one = letter(kind)
        for name, ftz in itertools.product(names, ("", ".ftz") if kind in ("f32", "f16", "f16x2") else ("",)):
            pair = "$p|$p" if kind.endswith("x2") else "$p"
            yield f"setp.{name}{ftz}.{kind} {pair}, %{one}a, %{one}b;"
            operator = "and" if ftz else "or"
            both = pair if kind in HALF else "$p|$p"
            yield f"setp.{name}.{operator}{ftz}.{kind} {both}, %{one}a, %{one}b, !%pa;"
            yield f"setp.{name}.xor{ftz}.{kind} {both}, %{one}a, %{one}b, %pb;"


def set_lines() -> Iterable[str]:
    for kind, results in SET_RESULTS.items():
        names = FLOAT if "f" in kind else {"b": BITWISE, "u": UNSIGNED, "s": SIGNED}[kind[0]]
        one = letter(kind)
        for (i, name), result in itertools.product(enumerate(names), results):
            if result == "bf16" and "f16" in kind:
                continue
            tail = ("", ".and", ".xor")[i % 3]
            more = ("", ", %pa", ", !%pb")[i % 3]
            yield f"set.{name}{tail}.{result}.{kind} ${letter(result)}, %{one}a, %{one}b{more};"


def other_lines() -> Iterable[str]:
    """Logic on predicates, lop3, prmt, selection and moves."""
    for kind in SELECTABLE:
        one = letter(kind)
        yield f"selp.{kind} ${one}, %{one}a, %{one}b, %pa;"
        yield f"selp.{kind} ${one}, %{one}a, {ONE.get(kind, 5)}, !%pb;"
        yield f"slct.{kind}.s32 ${one}, %{one}a, %{one}b, %rc;"
        yield f"mov.{kind} ${one}, %{one}a;"
    yield from (f"lop3.b32 $r, %ra, %rb, %rc, {table};" for table in range(0, 256, 5))
    yield from (f"prmt.b32{mode} $r, %ra, %rb, %rc;" for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"))
    yield from OTHERS.strip().splitlines()


def conversion_lines(to: str) -> Iterable[str]:
    """cvt to one type from all others; integers also to wider registers."""
    for of in (*INTEGER, *FLOATS):
        allowed = scalar_modifiers(to, of)
        if allowed is None or ("bf16" in (to, of) and {to, of} & {"u8", "s8"}):
            continue
        for m in choices(allowed):
            if {"relu", "satfinite"} & set(m) and {"sat", "rm", "rp", "ftz"} & set(m):
                continue
            yield f"{'.'.join(('cvt', *m, to, of))} ${letter(to)}, %{letter(of)}a;"
        if to in INTEGER and to not in ("u64", "s64") and of in INTEGER and "bf16" not in (to, of):
            yield f"cvt.{to}.{of} $d, %{letter(of)}b;"


def packing_lines() -> Iterable[str]:
    for (to, of), allowed in PACKED_MODIFIERS.items():
        for m in choices(allowed):
            sources = "%ra, %rb" if of == "f32" else f"%{letter(of)}a"
            yield f"{'.'.join(('cvt', *m, to, of))} ${letter(to)}, {sources};"
    for m in choices(TF32_MODIFIERS):
        if not (("satfinite" in m and "rna" not in m) or ("relu" in m and "rna" in m)):
            yield f"{'.'.join(('cvt', *m, 'tf32', 'f32'))} $r, %ra;"
