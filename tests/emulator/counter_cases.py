"""One warp, one memory instruction, 32 addresses: what the counters are tested on, here and under Nsight Compute.

Every case is the same few lines of PTX: shared memory is filled (cp.async needs none of that), each
lane takes its byte offset from a table, lanes without one do nothing, and what was loaded goes to an output, so
that the assembler keeps everything.  For cp.async the table goes on with where each lane reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.emulator.harness import kernel, run

SHARED_BYTES = 20480
GLOBAL_BYTES = 1 << 16
OFF = 0xFFFFFFFF  # in the table: this lane does nothing
FILLS = SHARED_BYTES // 128  # stores of 4 bytes per lane that fill shared memory, without conflicts

Offsets = tuple[int | None, ...]

_START = """
    mov.u32 %r0, %tid.x;
    ld.param.b64 %rd0, [p0];
    mad.wide.u32 %rd0, %r0, 4, %rd0;
    ld.global.b32 %r1, [%rd0];
    setp.ne.b32 %p1, %r1, -1;
    ld.param.b64 %rd1, [p1];
    ld.param.b64 %rd2, [p2];
    mad.wide.u32 %rd2, %r0, 4, %rd2;
    mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;
"""
_SHARED = """
    mov.u32 %r2, smem;
    shl.b32 %r3, %r0, 2;
    add.s32 %r6, %r2, %r1;
"""
_FILL = f"""
    add.s32 %r4, %r2, %r3;
    mov.b32 %r5, 0;
FILL:
    st.shared.b32 [%r4], %r5;
    add.s32 %r4, %r4, 128;
    add.s32 %r5, %r5, 1;
    setp.lt.s32 %p2, %r5, {FILLS};
    @%p2 bra FILL;
    bar.sync 0;
"""
_GLOBAL = """
    cvt.u64.u32 %rd3, %r1;
    add.s64 %rd3, %rd1, %rd3;
"""
_READ_BACK = """
    bar.sync 0;
    add.s32 %r7, %r2, %r3;
    ld.shared.b32 %r10, [%r7];
"""
_END = """
    xor.b32 %r10, %r10, %r11;
    xor.b32 %r12, %r12, %r13;
    xor.b32 %r10, %r10, %r12;
    st.global.b32 [%rd2], %r10;
"""
_VALUES = {4: "%r10", 8: "{%r10, %r11}", 16: "{%r10, %r11, %r12, %r13}"}
_TYPES = {1: "u8", 2: "u16", 4: "b32", 8: "v2.b32", 16: "v4.b32"}
_MATRICES = {4: ("x1", "{%r10}"), 8: ("x2", "{%r10, %r11}"), 16: ("x4", "{%r10, %r11, %r12, %r13}")}


@dataclass(frozen=True)
class Case:
    """One instruction: `nbytes` per lane at `offsets` in the space (None: the lane's guard is false).

    operation is ld, st, atom, red, cp.async (shared: the destination; sources: where each lane reads), ldmatrix or
    stmatrix.
    """

    name: str
    operation: str
    space: str
    nbytes: int
    offsets: Offsets
    sources: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The PTX; its kernel's name begins with case_."""
        shared = self.space == "shared"
        lines = [_START, _SHARED if shared else _GLOBAL]
        if shared and self.operation != "cp.async":
            lines.append(_FILL)
        lines.append(self._instruction())
        if shared and self.operation in ("st", "stmatrix"):
            lines.append(_READ_BACK)
        name = f"case_{self.operation.replace('.', '_')}_{self.space}_{self.nbytes}"
        header = f".shared .align 1024 .b8 smem[{SHARED_BYTES}];" if shared else ""
        return kernel("\n".join([*lines, _END]), 3, header, name)

    def _instruction(self) -> str:
        address = "[%r6]" if self.space == "shared" else "[%rd3]"
        values, kind = _VALUES.get(self.nbytes, "%r10"), _TYPES[self.nbytes]
        matrices, rows = _MATRICES.get(self.nbytes, ("", ""))
        name = f"{self.operation}.sync.aligned.m8n8.{matrices}.shared.b16"
        return {
            "ld": f"@%p1 ld.{self.space}.{kind} {values}, {address};",
            "st": f"@%p1 st.{self.space}.{kind} {address}, {values};",
            "atom": f"@%p1 atom.{self.space}.add.u32 %r10, {address}, %r0;",
            "red": f"@%p1 red.{self.space}.add.u32 {address}, %r0;",
            "cp.async": "ld.global.b32 %r8, [%rd0 + 128];\ncvt.u64.u32 %rd4, %r8;\nadd.s64 %rd4, %rd1, %rd4;\n"
            f"@%p1 cp.async.ca.shared.global [%r6], [%rd4], {self.nbytes};\ncp.async.wait_all;",
            "ldmatrix": f"{name} {rows}, [%r6];",
            "stmatrix": f"{name} [%r6], {rows};",
        }[self.operation]

    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The offsets of the lanes, the global memory and the output."""
        table = np.array([OFF if o is None else o for o in (*self.offsets, *self.sources)], np.uint32)
        return aligned(table), aligned(np.zeros(GLOBAL_BYTES, np.uint8)), aligned(np.zeros(32, np.uint32))

    def launch(self) -> None:
        """Run it where the harness runs PTX."""
        run(self.text, *self.arguments())

    def launch_on(self, device: str) -> None:
        """Run it in the emulator ("cpu") or, in this process and not in the harness's worker, on the GPU ("cuda")."""
        if device == "cpu":
            return self.launch()
        from tests.emulator.hardware import launch_here

        launch_here(self.text, *self.arguments())

    def __str__(self) -> str:
        return f"{self.operation} {self.space} {self.nbytes} B, {self.name}"


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 512 bytes, as an allocation on a GPU does."""
    raw = np.zeros(array.nbytes + 512, np.uint8)
    start = -raw.ctypes.data % 512
    copy = raw[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


# -- patterns --------------------------------------------------------------------------------------


def _patterns(nbytes: int, limit: int) -> dict[str, Offsets]:
    """Byte offsets of 32 lanes that access nbytes each, by name; none reaches beyond limit."""
    lanes = range(32)
    random = np.random.default_rng(7)
    elements = {f"stride {s}": [s * i for i in lanes] for s in (1, 2, 4, 8, 16, 32, 33)}
    elements |= {
        "all one": [5] * 32,
        "pairs": [i // 2 for i in lanes],
        "pairs two apart": [i // 4 * 2 + i % 2 for i in lanes],
        "pairs, stride 32": [i // 2 * 32 for i in lanes],
        "pairs in one half": [i // 2 if i < 16 else i for i in lanes],
        "halves alike": [i % 16 for i in lanes],
        "quarters alike": [i % 8 for i in lanes],
        "reversed": [31 - i for i in lanes],
        "offset 3": [i + 3 for i in lanes],
        "two rows": [i % 16 + i // 16 * 64 for i in lanes],
        **{f"random {n}": random.integers(0, 256, 32).tolist() for n in range(3)},
    }
    found: dict[str, Offsets] = {name: tuple(nbytes * e for e in row) for name, row in elements.items()}
    found["odd lanes off"] = tuple(nbytes * i if i % 2 == 0 else None for i in lanes)
    found["one lane"] = tuple(nbytes * 9 if i == 17 else None for i in lanes)
    found["half off, stride 32"] = tuple(nbytes * 32 * i if i < 16 else None for i in lanes)
    return {name: row for name, row in found.items() if max(o or 0 for o in row) + nbytes <= limit}


def _meetings() -> dict[str, Offsets]:
    """Words of 4 bytes that lanes of an atomic meet at: two of them, in sectors dealt out to all; then many."""
    found = {}
    for a, b in ((0, 1), (0, 2), (0, 5), (6, 19), (6, 18), (0, 31), (30, 31), (15, 16), (3, 12)):
        words = np.array([lane % 4 * 8 + lane // 4 for lane in range(32)])
        words[b] = words[a]
        found[f"lanes {a} and {b} meet"] = words
    random = np.random.default_rng(1)
    for n in range(12):
        words = random.permutation(32)
        a, b = random.choice(32, 2, replace=False)
        words[b] = words[a]
        found[f"two lanes meet, {n}"] = words
    found |= {f"random of 40, {n}": random.integers(0, 40, 32) for n in range(12)}
    return {name: tuple((4 * words).tolist()) for name, words in found.items()}


def _copies(nbytes: int) -> list[Case]:
    """cp.async to each pattern; then from rows of global memory, and from places at random, to several places."""
    lanes, random = np.arange(32), np.random.default_rng(3)
    in_a_row = tuple(nbytes * lane for lane in range(32))
    found = [
        Case(name, "cp.async", "shared", nbytes, offsets, in_a_row)
        for name, offsets in _patterns(nbytes, SHARED_BYTES).items()
        if len(set(offsets)) == 32  # no two copies to one place
    ]

    def add(name: str, sources: np.ndarray, **places: np.ndarray) -> None:
        for place, offsets in places.items():
            to = tuple(offsets.tolist())
            found.append(Case(f"{name}, {place}", "cp.async", "shared", nbytes, to, tuple(sources.tolist())))

    packed, two = nbytes * lanes, 2 * nbytes * lanes
    eight = 8 * nbytes * lanes if nbytes < 16 else 64 * lanes
    for row in (1, 2, 4, 8, 16, 32):
        for pitch in (32, 64, 128, 1024):
            if row * nbytes <= pitch:
                places = {"packed": packed, **({"two": two, "eight": eight} if pitch == 128 else {})}
                if nbytes == 4:
                    places["turned"] = 528 * (lanes % row) + 4 * (lanes // row)
                add(f"{row} of a row of {pitch}", lanes // row * pitch + nbytes * (lanes % row), **places)
    for n in range(5):
        lines, in_line = int(random.integers(1, 9)), 128 // nbytes
        slots = random.permutation(lines * in_line)[:32] if lines * in_line >= 32 else random.integers(0, in_line, 32)
        scattered = nbytes * random.permutation(256)[:32]
        add(f"random {n} of {lines} lines", nbytes * slots, packed=packed, two=two, eight=eight, scattered=scattered)
    return found


def _tiles() -> dict[str, Offsets]:
    """Rows of 16 bytes that the lanes name in a tile: matrix lane // 8, row lane % 8."""

    def tile(pitch: int, mask: int) -> Offsets:
        rows = [lane % 8 * pitch + lane // 8 * 16 for lane in range(32)]
        return tuple(at ^ (at >> 7 & mask) << 4 for at in rows)

    return {
        "packed": tuple(16 * lane for lane in range(32)),
        "128-byte rows": tile(128, 0),
        "128-byte rows, 128B swizzle": tile(128, 7),
        "64-byte rows": tile(64, 0),
        "64-byte rows, 64B swizzle": tile(64, 3),
        "144-byte rows": tile(144, 0),
        "256-byte rows": tile(256, 0),
        "all one": (48,) * 32,
    }


def cases() -> list[Case]:
    """Every case, in a fixed order."""
    found = []
    for operation in ("ld", "st"):
        for space, limit in (("shared", SHARED_BYTES), ("global", GLOBAL_BYTES)):
            for nbytes in (1, 2, 4, 8, 16):
                for name, offsets in _patterns(nbytes, limit).items():
                    found.append(Case(name, operation, space, nbytes, offsets))
    for operation in ("ldmatrix", "stmatrix"):
        for nbytes in (4, 8, 16):
            found += [Case(name, operation, "shared", nbytes, rows) for name, rows in _tiles().items()]
    for operation in ("atom", "red"):
        meetings = _meetings() if operation == "red" else {}
        for name, offsets in (_patterns(4, SHARED_BYTES) | meetings).items():
            found.append(Case(name, operation, "global", 4, offsets))
    for nbytes in (4, 8, 16):
        found += _copies(nbytes)
    return found
