"""Which memory a kernel may write is found in its PTX before it runs, whatever instruction writes."""

from __future__ import annotations

import pytest

from cutetut.emulator import ptx
from cutetut.emulator.checks.written import ANYWHERE, writers
from cutetut.emulator.units import load_all
from tests.emulator.harness import kernel

pytestmark = pytest.mark.emulator
LOADED = "ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; cvta.to.global.u64 %rd3, %rd2; add.u64 %rd4, %rd3, 16;"
BULK = "cp.async.bulk.global.shared::cta.bulk_group"
P0, P1 = ("p0", 0), ("p1", 0)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("st.global.b32 [%rd4], %r1;", {P1}), ("st.b32 [%rd1+8], %r1;", {P0}), ("st.shared.b32 [%rd1], %r1;", set()),
        ("st.global.v2.b32 [%rd1], {%r1, %r2};", {P0}), ("ld.global.b32 %r1, [%rd4];", set()),
        ("atom.global.add.u32 %r1, [%rd4], 1;", {P1}), ("atom.shared.add.u32 %r1, [%r2], 1;", set()),
        ("atom.global.cas.b32 %r1, [%rd1], %r2, %r3;", {P0}), ("red.relaxed.gpu.global.add.f32 [%rd1], %f1;", {P0}),
        (f"{BULK} [%rd4], [%r1], 16;", {P1}),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd4], 16, [%r2];", set()),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;", {P0}),
        ("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd4, {%r1}], [%r2];", {P1}),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", set()),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r3];", set()),
        ("tensormap.replace.tile.global_address.global.b1024.b64 [%rd4], %rd1;", {P1}),
        ("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd4], %rd1;", set()),
        ("multimem.st.relaxed.sys.global.b32 [%rd1], %r1;", {P0}),
        ("selp.u64 %rd5, %rd1, %rd4, %p1; st.global.b32 [%rd5], %r1;", {P0, P1}),
        ("ld.global.b64 %rd5, [%rd1]; st.global.b32 [%rd5], %r1;", {ANYWHERE}),
        ("ld.global.b32 %r5, [%rd1]; cvt.u64.u32 %rd5, %r5; add.u64 %rd5, %rd5, %rd4; st.global.b32 [%rd5], 0;", {P1}),
        ("atom.global.exch.b64 %rd5, [%rd1], 0; st.global.b32 [%rd5], %r1;", {P0, ANYWHERE}),
    ],
)  # fmt: skip
def test_what_is_written_through_which_parameter(line: str, written: set[tuple[str, int]]) -> None:
    load_all()
    (function,) = ptx.parse(kernel(f"{LOADED} {line}", 2)).kernels.values()
    found = writers(function)
    assert set(found) == written
    last = max(inst.index for inst in function.body if inst.parts[0] != "ret")
    assert all(instructions for instructions in found.values()) and (not found or last in sum(found.values(), ()))


def test_through_a_parameter_at_an_offset() -> None:
    """A tensor map is a parameter of 128 bytes; an address in a structure lies at its own offset."""
    load_all()
    lines = "ld.param.b64 %rd1, [p0+24]; st.global.b32 [%rd1], %r1;"
    (function,) = ptx.parse(kernel(lines)).kernels.values()
    assert set(writers(function)) == {("p0", 24)}
