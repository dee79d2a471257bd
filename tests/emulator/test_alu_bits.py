"""Logic, shifts, bit fields and byte permutation, bit by bit in Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.lines import REGISTER, call, execute, refused

UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {16: np.int16, 32: np.int32, 64: np.int64}


def words(rng: np.random.Generator, width: int, n: int = 200) -> np.ndarray:
    """Edge values and random ones of every size."""
    dtype, top = UNSIGNED[width], 1 << (width - 1)
    edge = np.array([0, 1, 2, 3, top, top - 1, 2 * top - 1, 2 * top - 2, top + 1], dtype)
    random = rng.integers(0, 2 * top - 1, n, dtype, endpoint=True) >> rng.integers(0, width, n).astype(dtype)
    return np.concatenate([edge, random])


def amounts(rng: np.random.Generator, n: int) -> np.ndarray:
    """Shift amounts and bit positions: small, at the width, beyond it, huge."""
    edge = [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 2**31 - 1, 2**31, 2**32 - 1]
    return np.concatenate([np.array(edge, np.uint32), rng.integers(0, 70, max(0, n - len(edge))).astype(np.uint32)])[:n]


def check(opcode: str, operands: list[np.ndarray], out: type, function: Callable[..., int], tail: str = "") -> None:
    """The instruction gives function(operands) in every lane; `tail` holds constant operands."""
    names = [f"{REGISTER[x.dtype.itemsize]}{i + 1}" for i, x in enumerate(operands)]
    d = f"{REGISTER[np.dtype(out).itemsize]}20"
    line = f"{opcode} {', '.join([d, *names])}{tail};"
    actual = execute(line, list(zip(operands, names, strict=True)), out, d)
    for i, lane in enumerate(zip(*operands, strict=True)):
        want = function(*map(int, lane))
        assert int(actual[i]) == want, f"{line} of {[hex(x) for x in lane]} gave {int(actual[i]):#x}, not {want:#x}"


@pytest.mark.parametrize("width", [16, 32, 64])
def test_logic(width: int, rng: np.random.Generator) -> None:
    a, b, full = words(rng, width), rng.permutation(words(rng, width)), (1 << width) - 1
    dtype = UNSIGNED[width]
    check(f"and.b{width}", [a, b], dtype, lambda a, b: a & b)
    check(f"or.b{width}", [a, b], dtype, lambda a, b: a | b)
    check(f"xor.b{width}", [a, b], dtype, lambda a, b: a ^ b)
    check(f"not.b{width}", [a], dtype, lambda a: a ^ full)
    check(f"cnot.b{width}", [a], dtype, lambda a: int(a == 0))


def test_logic_on_predicates() -> None:
    a = np.array([0, 0, 1, 1], np.uint32)
    b = np.array([0, 1, 0, 1], np.uint32)
    for line, truth in {
        "and.pred %p3, %p1, %p2;": [0, 0, 0, 1],
        "or.pred %p3, %p1, !%p2;": [1, 0, 1, 1],
        "xor.pred %p3, !%p1, %p2;": [1, 0, 0, 1],
        "not.pred %p3, %p1;": [1, 1, 0, 0],
        "mov.pred %p3, %p2;": [0, 1, 0, 1],
    }.items():
        lines = f"setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0; {line} selp.u32 %r20, 1, 0, %p3;"
        assert execute(lines, [(a, "%r1"), (b, "%r2")], np.uint32, "%r20").tolist() == truth, line


def test_lop3_has_all_256_functions(rng: np.random.Generator) -> None:
    a, b, c = (rng.integers(0, 2**32, 8, np.uint32) for _ in range(3))
    index = [[int(a[k]) >> i & 1, int(b[k]) >> i & 1, int(c[k]) >> i & 1] for k in range(8) for i in range(32)]
    for table in range(256):
        lines = f"lop3.b32 %r20, %r1, %r2, %r3, {table:#x};"
        result = execute(lines, [(a, "%r1"), (b, "%r2"), (c, "%r3")], np.uint32, "%r20")
        bits = [table >> (4 * x + 2 * y + z) & 1 for x, y, z in index]
        want = [sum(bits[32 * k + i] << i for i in range(32)) for k in range(8)]
        assert result.tolist() == want, hex(table)


def test_lop3_with_a_predicate() -> None:
    a, b = np.array([0, 0, 6, 6], np.uint32), np.array([0, 1, 0, 1], np.uint32)
    for op, truth in {"and": [0, 0, 0, 1], "or": [0, 1, 1, 1]}.items():
        lines = f"setp.ne.u32 %p1, %r2, 0; lop3.{op}.b32 %r9|%p2, %r1, 2, 0, 0xC0, %p1; selp.u32 %r20, %r9, 99, %p2;"
        result = execute(lines, [(a, "%r1"), (b, "%r2")], np.uint32, "%r20")
        assert result.tolist() == [(x & 2) if t else 99 for x, t in zip(a.tolist(), truth, strict=True)]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_push_everything_out(width: int, rng: np.random.Generator) -> None:
    a, full = words(rng, width), (1 << width) - 1
    n = amounts(rng, len(a))
    check(f"shl.b{width}", [a, n], UNSIGNED[width], lambda a, n: a << min(n, 64) & full)
    check(f"shr.u{width}", [a, n], UNSIGNED[width], lambda a, n: a >> min(n, 64))
    check(f"shr.b{width}", [a, n], UNSIGNED[width], lambda a, n: a >> min(n, 64))
    check(f"shr.s{width}", [a.view(SIGNED[width]), n], SIGNED[width], lambda a, n: a >> min(n, 64))
    constant = execute(f"shr.s{width} {REGISTER[width // 8]}2, {REGISTER[width // 8]}1, 99;",
                       [(a, f"{REGISTER[width // 8]}1")], SIGNED[width], f"{REGISTER[width // 8]}2")  # fmt: skip
    assert (constant == np.where(a.view(SIGNED[width]) < 0, -1, 0)).all()


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(mode: str, rng: np.random.Generator) -> None:
    a, b = words(rng, 32), rng.permutation(words(rng, 32))
    n = amounts(rng, len(a))

    def amount(c: int) -> int:
        return c & 31 if mode == "wrap" else min(c, 32)

    check(f"shf.l.{mode}.b32", [a, b, n], np.uint32, lambda a, b, c: ((b << 32 | a) << amount(c)) >> 32 & 0xFFFFFFFF)
    check(f"shf.r.{mode}.b32", [a, b, n], np.uint32, lambda a, b, c: (b << 32 | a) >> amount(c) & 0xFFFFFFFF)


@pytest.mark.parametrize("width", [32, 64])
def test_counting_and_finding(width: int, rng: np.random.Generator) -> None:
    a, none = words(rng, width), 0xFFFFFFFF
    check(f"popc.b{width}", [a], np.uint32, lambda a: a.bit_count())
    check(f"clz.b{width}", [a], np.uint32, lambda a: width - a.bit_length())
    check(f"brev.b{width}", [a], UNSIGNED[width], lambda a: int(f"{a:0{width}b}"[::-1], 2))

    def highest(a: int) -> int:
        return (a if a >= 0 else ~a).bit_length() - 1

    for kind, operand in (("u", a), ("s", a.view(SIGNED[width]))):
        check(f"bfind.{kind}{width}", [operand], np.uint32, lambda a: highest(a) % 2**32)
        check(f"bfind.shiftamt.{kind}{width}", [operand], np.uint32,
              lambda a: width - 1 - highest(a) if highest(a) >= 0 else none)  # fmt: skip


def test_find_nth_set(rng: np.random.Generator) -> None:
    mask = rng.integers(0, 2**32, 300, np.uint32)
    base = rng.integers(0, 32, 300).astype(np.uint32)
    offset = rng.integers(-6, 7, 300).astype(np.int32)

    def nth(mask: int, base: int, offset: int) -> int:
        """The ISA's own loop."""
        if offset == 0:
            return base if mask >> base & 1 else 0xFFFFFFFF
        position, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
        while 0 <= position < 32:
            if mask >> position & 1:
                if count == 0:
                    return position
                count -= 1
            position += step
        return 0xFFFFFFFF

    check("fns.b32", [mask, base, offset], np.uint32, nth)


def bounds(position: int, length: int, width: int) -> tuple[int, int]:
    """Modulo 256 by the ISA's words, but an H200 does not reduce them for 64 bits: len 0x100 takes in all of them."""
    return (position & 0xFF, length & 0xFF) if width == 32 else (min(position, 64), min(length, 64))


def field(a: int, position: int, length: int, width: int, signed: bool) -> int:
    """bfe by the ISA's words, one bit at a time."""
    (position, length), top = bounds(position, length, width), width - 1
    sign = a >> min(position + length - 1, top) & 1 if signed and length else 0
    bits = [a >> (position + i) & 1 if i < length and position + i <= top else sign for i in range(width)]
    return sum(bit << i for i, bit in enumerate(bits))


def inserted(a: int, b: int, position: int, length: int, width: int) -> int:
    """bfi by the ISA's words, one bit at a time."""
    position, length = bounds(position, length, width)
    for i in range(length):
        if position + i < width:
            b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return b


@pytest.mark.parametrize("width", [32, 64])
def test_bit_fields(width: int, rng: np.random.Generator) -> None:
    a, b = words(rng, width), rng.permutation(words(rng, width))
    position, length = rng.permutation(amounts(rng, len(a))), rng.permutation(amounts(rng, len(a)))
    dtype = UNSIGNED[width]
    check(f"bfe.u{width}", [a, position, length], dtype, lambda a, p, n: field(a, p, n, width, False))
    check(f"bfe.s{width}", [a, position, length], dtype, lambda a, p, n: field(a, p, n, width, True))
    check(f"bfi.b{width}", [a, b, position, length], dtype, lambda a, b, p, n: inserted(a, b, p, n, width))


def test_masks_and_extension(rng: np.random.Generator) -> None:
    a = words(rng, 32)
    p, n = rng.permutation(amounts(rng, len(a))), rng.permutation(amounts(rng, len(a)))

    def mask(p: int, n: int) -> int:
        return sum(1 << i for i in range(p, min(p + n, 32)))

    check("bmsk.clamp.b32", [p, n], np.uint32, lambda p, n: mask(min(p, 32), min(n, 32)))
    check("bmsk.wrap.b32", [p, n], np.uint32, lambda p, n: mask(p & 31, n & 31))

    def extended(a: int, n: int, signed: bool) -> int:
        low = a & ((1 << n) - 1)
        return (low - (1 << n)) % 2**32 if signed and 0 < n < 32 and low >> (n - 1) else low

    for mode, size in (("clamp", lambda n: min(n, 32)), ("wrap", lambda n: n & 31)):
        check(f"szext.{mode}.u32", [a, n], np.uint32, lambda a, n, size=size: extended(a, size(n), False))
        check(f"szext.{mode}.s32", [a, n], np.uint32, lambda a, n, size=size: extended(a, size(n), True))


def permuted(a: int, b: int, c: int) -> int:
    """prmt in its default mode, a byte at a time."""
    source = (b << 32 | a).to_bytes(8, "little")
    picked = [source[c >> 4 * i & 7] for i in range(4)]
    signs = [c >> 4 * i & 8 for i in range(4)]
    return int.from_bytes(bytes(255 * (p >> 7) if s else p for p, s in zip(picked, signs, strict=True)), "little")


def test_permute(rng: np.random.Generator) -> None:
    a, b = (rng.integers(0, 2**32, 400, np.uint32) for _ in range(2))
    check("prmt.b32", [a, b, rng.integers(0, 2**32, 400, np.uint32)], np.uint32, permuted)
    constants = [0x5410, 0x7632, 0x3340, 0x0123, 0x7777, 0x3210, 0x7654, 0x1054, 0xBA98, 0x8001, 0x4321, 0x6540]
    for selector in constants + rng.integers(0, 2**16, 40).tolist():
        check("prmt.b32", [a[:40], b[:40]], np.uint32, lambda a, b, s=selector: permuted(a, b, s), f", {selector:#x}")


def test_permute_modes(rng: np.random.Generator) -> None:
    a, b, c = (rng.integers(0, 2**32, 200, np.uint32) for _ in range(3))

    def extract(start: list[int]) -> Callable[[int, int, int], int]:
        return lambda a, b, c: permuted(a, b, sum((start[c & 3] + i & 7) << 4 * i for i in range(4)))

    check("prmt.b32.f4e", [a, b, c], np.uint32, extract([0, 1, 2, 3]))  # forward 4 extract
    backward = [0x5670, 0x6701, 0x7012, 0x0123]
    check("prmt.b32.b4e", [a, b, c], np.uint32, lambda a, b, c: permuted(a, b, backward[c & 3]))
    check("prmt.b32.rc8", [a, b, c], np.uint32, lambda a, b, c: permuted(a, b, 0x1111 * (c & 3)))
    check("prmt.b32.rc16", [a, b, c], np.uint32, lambda a, b, c: permuted(a, b, 0x3232 if c & 1 else 0x1010))
    left = [0x3210, 0x3211, 0x3222, 0x3333]
    check("prmt.b32.ecl", [a, b, c], np.uint32, lambda a, b, c: permuted(a, b, left[c & 3]))
    right = [0x0000, 0x1110, 0x2210, 0x3210]
    check("prmt.b32.ecr", [a, b, c], np.uint32, lambda a, b, c: permuted(a, b, right[c & 3]))


@pytest.mark.parametrize(
    "opcode", ["and.u32", "shl.u32", "shf.l.b32", "bmsk.b32", "prmt.b32.xyz", "popc.u32", "cnot.pred"]
)
def test_illegal_forms_are_refused(opcode: str) -> None:
    one = np.ones(32, np.uint32)
    count = 1 if opcode[:4] in ("popc", "cnot") else 3 if opcode[:3] in ("shf", "prm") else 2
    with refused(opcode):
        call(opcode, *[one] * count, out=np.uint32)
