"""Tensor maps that a kernel changes: each field of tensormap.replace against the packer, and a map made in a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.emulator.harness import kernel, run, spin
from tests.emulator.tensors import Map, aligned, loaded, pack, random_tensor
from tests.emulator.test_tma import BOX_AT, SMEM

BASE = Map("f16", (64, 8, 4, 3, 2), (128, 1024, 4096, 12288), (32, 4, 2, 1, 1))
CHANGES: dict[str, list[tuple[int, int, dict[str, Any]]]] = {
    "global_dim": [(d, 7 + d, {"sizes": d}) for d in range(5)],
    "box_dim": [(d, 3 + d, {"box": d}) for d in range(5)],
    "element_stride": [(d, 2 + d, {"element_strides": d}) for d in range(5)],
    "global_stride": [(d, (5 << 36) + 16 * (d + 1), {"strides": d}) for d in range(4)],
}
CODES = [("rank", "2", {"rank": 3}), ("swizzle_mode", "3", {"swizzle": 3}), ("swizzle_mode", "1", {"swizzle": 1}),
         ("interleave_layout", "2", {"interleave": 2}), ("fill_mode", "1", {"nan": 1}),
         *(("elemtype", str(code), {"type": name}) for name, code in
           {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f32.ftz": 8, "f64": 9,
            "bf16": 10, "tf32": 11, "tf32.ftz": 12}.items())]  # fmt: skip


def changed(change: dict[str, Any], value: int | None) -> bytes:
    """The image of BASE with one parameter changed."""
    case = BASE.case()
    for name, what in change.items():
        if name == "rank":
            image = bytearray(pack(case)[:64])
            image[8] = image[8] & 0x8F | what - 1 << 4
            return bytes(image)
        if value is None:
            case[name] = what
        else:
            values = list(case[name])
            values[what] = value
            case[name] = values
    return pack(case)[:64]


def replace_map(field: str, operands: str, space: str) -> bytes:
    """The map BASE after one tensormap.replace in global or shared memory."""
    kind = "b64" if "stride" in field and "element" not in field else "b32"
    image = aligned(np.frombuffer(pack(BASE.case()), np.uint8))
    if space == "global":
        body = f"ld.param.b64 %rd0, [p0]; tensormap.replace.tile.{field}.global.b1024.{kind} [%rd0], {operands};"
        run(kernel(body), image, block=(1, 1, 1))
        return bytes(image[:64])
    body = f"""ld.param.b64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; mad.lo.u32 %r2, %r0, 4, %r1;
    mad.wide.u32 %rd1, %r0, 4, %rd0; ld.global.b32 %r3, [%rd1]; st.shared.b32 [%r2], %r3; bar.warp.sync -1;
    setp.ne.u32 %p1, %r0, 0; @!%p1 tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%r1], {operands};
    bar.warp.sync -1; ld.shared.b32 %r3, [%r2]; st.global.b32 [%rd1], %r3;"""
    run(kernel(body, header=SMEM), image, dynamic_smem=128)
    return bytes(image[:64])


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("field", CHANGES)
def test_replacing_a_size_or_stride(field: str, space: str) -> None:
    for ordinal, value, change in CHANGES[field]:
        assert replace_map(field, f"{ordinal}, {value}", space) == changed(change, value), (field, ordinal)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("field", "value", "change"), CODES)
def test_replacing_a_code(field: str, value: str, change: dict[str, Any], space: str) -> None:
    assert replace_map(field, value, space) == changed(change, None)


def test_a_map_changed_in_shared_memory_and_copied_by_a_warp(rng: np.random.Generator) -> None:
    """The way of a grouped GEMM: map to shared memory, tensormap.replace, cp_fenceproxy, acquire, copy."""
    tensor = Map("f16", (64, 8), (128,), (32, 4))
    data = random_tensor(rng, tensor)
    image = aligned(np.frombuffer(pack(replace(tensor, sizes=(8, 8), strides=(256,)).case()), np.uint8))
    out, arrived, other = np.zeros(256, np.uint8), np.zeros(1, np.uint32), aligned(np.zeros(128, np.uint8))
    body = f"""ld.param.b64 %rd0, [p0]; ld.param.b64 %rd1, [p1]; ld.param.b64 %rd2, [p2];
    mov.u32 %r0, %tid.x; mov.u32 %r1, dyn; mad.lo.u32 %r2, %r0, 4, %r1; setp.ne.u32 %p1, %r0, 0;
    mad.wide.u32 %rd3, %r0, 4, %rd0; ld.global.b32 %r3, [%rd3]; st.shared.b32 [%r2+128], %r3; bar.warp.sync -1;
    @%p1 bra COPY; mov.u64 %rd5, 128; mov.u32 %r5, 64;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1+128], %rd1;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1+128], 0, %r5;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r1+128], 0, %rd5;
    mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
    COPY: bar.warp.sync -1; add.u32 %r6, %r1, 128;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%r6], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128; @%p1 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256; mov.u32 %r7, 16; mov.u32 %r8, 1;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r1+{BOX_AT}], [%rd2, {{%r7, %r8}}], [%r1];
    WAIT: bar.warp.sync -1; {spin("%r1")}
    ld.param.b64 %rd4, [p3]; mad.wide.u32 %rd4, %r0, 8, %rd4; mad.lo.u32 %r2, %r0, 8, %r1;
    ld.shared.b64 %rd6, [%r2+{BOX_AT}]; st.global.b64 [%rd4], %rd6;
    ld.param.b64 %rd4, [p4]; @!%p1 st.global.b32 [%rd4], %r90;"""
    run(kernel(body, 5, header=SMEM), image, data, other, out, arrived, dynamic_smem=BOX_AT + 256)
    assert arrived[0] == 1
    np.testing.assert_array_equal(out, loaded(tensor, data, (16, 1), 0))
