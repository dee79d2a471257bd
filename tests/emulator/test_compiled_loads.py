"""Loads of global memory in machine code against numpy, and what they leave to numpy."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.compiled import loads
from cutetut.emulator.errors import EmulatorError, Misaligned, OutOfBounds
from tests.emulator.harness import HEADER, on_gpu, run

pytestmark = [pytest.mark.emulator, pytest.mark.skipif(on_gpu(), reason="about the emulator's two ways to load")]
THREADS = 1024
BYTES = {"h": 2, "r": 4, "d": 8}

LOADS = [
    f"ld.global.{vector}{kind} {registers}"
    for kind, registers, vector in [
        ("b32", "%ro0", ""), ("b64", "%do0", ""), ("b16", "%ho0", ""), ("u8", "%ro0", ""), ("s8", "%do0", ""),
        ("s16", "%ro0", ""), ("u16", "%ro0", ""), ("s32", "%do0", ""), ("f32", "{%ro0, %ro1}", "v2."),
        ("b32", "{%ro0, _, %ro1, %ro2}", "v4."), ("b16", "{%ho0, %ho1}", "v2."), ("b64", "{%do0, %do1}", "v2."),
    ]
]  # fmt: skip
STORED = ("%ro0", "%ro1", "%ro2", "%do0", "%do1", "%ho0", "%ho1")


def load_kernel(load: str, offset: int, skip: str) -> str:
    """Every thread loads from the address at its place in p0, which is absolute, and stores all registers to p1."""
    declared = ".reg .b32 %r<4>, %ro<4>; .reg .b64 %rd<6>, %do<4>; .reg .b16 %ho<4>; .reg .pred %p1;"
    lines = ["mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1];"]
    lines += [f"mov.b{BYTES[name[1]] * 8} {name}, 1;" for name in STORED]
    lines += ["mad.wide.u32 %rd3, %r1, 8, %rd1; ld.global.b64 %rd4, [%rd3]; mad.wide.u32 %rd5, %r1, 8, %rd2;"]
    lines += [skip, f"{load}, [%rd4{offset:+}];", "END:"]
    lines += [f"st.global.b{BYTES[x[1]] * 8} [%rd5+{i * 8 * THREADS}], {x};" for i, x in enumerate(STORED)]
    text = "\n".join([declared, *lines])
    return f"{HEADER}.visible .entry k(.param .b64 p0, .param .b64 p1, .param .b64 p2) {{\n{text}\nret;\n}}\n"


def run_load(load: str, addresses: np.ndarray, data: np.ndarray, offset: int, skip: str, threads: int) -> np.ndarray:
    out = np.zeros((len(STORED), THREADS), np.uint64)
    run(load_kernel(load, offset, skip), addresses, out, data, block=(threads, 1, 1))
    return out


@pytest.mark.parametrize("skip", ["", "setp.gt.u32 %p1, %r1, 77; @%p1 bra END;", "and.b32 %r2, %r1, 5; "
                                  "setp.eq.u32 %p1, %r2, 1; @%p1 bra END;"])  # fmt: skip
@pytest.mark.parametrize("load", LOADS)
def test_loads_of_random_addresses(load: str, skip: str, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(len(load))
    data = rng.integers(0, 256, 4096, np.uint8)
    total = 16
    addresses = (data.ctypes.data + 16 + total * rng.integers(0, 250, THREADS)).astype(np.uint64)
    calls = _watch_loads(monkeypatch)
    threads = int(rng.choice([THREADS, 128, 100]))
    monkeypatch.setenv("CUTETUT_JIT", "0")
    reference = run_load(load, addresses, data, -16, skip, threads)
    assert not calls
    monkeypatch.setenv("CUTETUT_JIT", "1")
    np.testing.assert_array_equal(run_load(load, addresses, data, -16, skip, threads), reference)
    assert False in calls  # the first finds the allocation
    again = load_kernel(load, -16, skip).replace("END:", f"{load}, [%rd4-16];\nEND:")  # the second load is compiled
    out = np.zeros_like(reference)
    run(again, addresses, out, data, block=(threads, 1, 1))
    assert True in calls
    np.testing.assert_array_equal(out, reference)


def _watch_loads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    calls: list[bool] = []
    call = loads.CompiledLoad.checked

    def watched(self, sel, low, high):
        calls.append(call(self, sel, low, high))
        return calls[-1]

    monkeypatch.setattr(loads.CompiledLoad, "checked", watched)
    return calls


@pytest.mark.parametrize(
    ("wrong", "error"), [(2, Misaligned), (4096, OutOfBounds), (4096 - 8, OutOfBounds), (-16, OutOfBounds)]
)
def test_a_load_that_is_wrong_for_one_thread(
    wrong: int, error: type[EmulatorError], at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled load refuses, and numpy's names the thread."""
    buffer = np.zeros(4096 + 256, np.uint8)
    start = -buffer.ctypes.data % 256
    data = buffer[start : start + 4096]
    addresses = np.full(THREADS, data.ctypes.data, np.uint64)
    addresses[45] = np.uint64(int(addresses[45]) + wrong)
    calls = _watch_loads(monkeypatch)
    before = "ld.param.b64 %rd0, [p2]; ld.global.b32 %r3, [%rd0]; ld.global.b32 %r3, [%rd0+4];"
    with pytest.raises(error) as caught:
        run_load("ld.global.v4.b32 {%ro0, _, %ro1, %ro2}", addresses, data, 0, before, THREADS)
    assert calls[-2:] == [True, False]
    assert caught.value.threads is not None
    assert caught.value.threads[0] == 45


@pytest.mark.parametrize("space", ["shared", "generic"])
@pytest.mark.parametrize("load", ["ld$.b32 %ro0", "ld$.v4.b32 {%ro0, %ro1, _, %ro2}", "ld$.s16 %do0", "ld$.b64 %do0"])
def test_loads_of_other_spaces(load: str, space: str, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit checks the addresses, the values are fetched by machine code."""
    fetched: list[bool] = []
    fetch = loads.CompiledLoad.fetch

    def watched(self, host, sel):
        fetched.append(fetch(self, host, sel))
        return fetched[-1]

    monkeypatch.setattr(loads.CompiledLoad, "fetch", watched)
    rng = np.random.default_rng(0)
    data = rng.integers(0, 1 << 63, (2, 256), np.uint64)
    result = []
    for jit in ("0", "1"):
        monkeypatch.setenv("CUTETUT_JIT", jit)
        out = np.zeros((len(STORED), 256), np.uint64)
        run(other_space(load, space), data, out, block=(256, 1, 1))
        result.append(out)
    assert True in fetched
    np.testing.assert_array_equal(result[0], result[1])
    unit = {"b32": 4, "s16": 2, "b64": 8}[load.split()[0].split(".")[-1]]
    register = 3 if "%do0" in load else 0
    place = np.arange(256) * 7 % 256 * 16  # each thread's, in shared memory
    bytes_there = data.T.copy().view(np.uint8).ravel()
    values = np.array([int.from_bytes(bytes_there[p : p + unit].tobytes(), "little", signed=unit == 2) for p in place])
    np.testing.assert_array_equal(result[1][register], values.astype(np.int64).view(np.uint64))


def other_space(load: str, space: str) -> str:
    """Thread i puts 16 bytes at 16 i in shared memory; then thread i loads from 16 (7 i % 256)."""
    declared = ".reg .b32 %r<9>, %ro<4>; .reg .b64 %rd<9>, %do<4>; .reg .b16 %ho<4>; .shared .align 16 .b8 s[4096];"
    lines = [f"mov.b{BYTES[name[1]] * 8} {name}, 1;" for name in STORED]
    lines += ["mov.u32 %r1, %tid.x; ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; mov.u32 %r2, s;"]
    lines += ["mad.wide.u32 %rd3, %r1, 8, %rd1; ld.global.b64 %rd4, [%rd3]; ld.global.b64 %rd5, [%rd3+2048];"]
    lines += ["mad.lo.u32 %r3, %r1, 16, %r2; st.shared.v2.b64 [%r3], {%rd4, %rd5}; bar.sync 0;"]
    lines += ["mul.lo.u32 %r4, %r1, 7; and.b32 %r4, %r4, 255; mad.lo.u32 %r5, %r4, 16, %r2;"]
    lines += ["cvt.u64.u32 %rd6, %r5; cvta.shared.u64 %rd6, %rd6; mad.wide.u32 %rd7, %r1, 8, %rd2;"]
    address = "%r5" if space == "shared" else "%rd6"
    lines += [load.replace("$", ".shared" if space == "shared" else "") + f", [{address}];"]
    lines += [f"st.global.b{BYTES[x[1]] * 8} [%rd7+{i * 8 * 256}], {x};" for i, x in enumerate(STORED)]
    text = "\n".join([declared, *lines])
    return f"{HEADER}.visible .entry k(.param .b64 p0, .param .b64 p1) {{\n{text}\nret;\n}}\n"
