"""Clusters: addresses and data of other CTAs, cluster barriers, launch control, clocks."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.errors import IllegalInstruction, MissingBarrier, OutOfBounds, UnknownInstruction
from tests.emulator.harness import Dim, kernel, run, wait

HEADER = ".shared .align 16 .b8 smem[1024];"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
BEGIN = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank;
ld.param.b64 %rd0, [p0]; mad.lo.u32 %r4, %r0, 4, %r1; setp.ne.u32 %p1, %r0, 0;
add.u32 %r5, %r2, 1; rem.u32 %r5, %r5, %r3; mad.lo.u32 %r6, %r2, 1000, %r0;"""  # r5: next rank, r6: rank * 1000 + tid
RESULT = """mov.u32 %r90, %ctaid.x; mov.u32 %r91, %ntid.x; mad.lo.u32 %r92, %r90, %r91, %r0;
mad.wide.u32 %rd50, %r92, 4, %rd0; st.global.b32 [%rd50], %r99;"""


def per_thread(lines: str, ctas: int = 4, cluster: int = 4, threads: int = 32, header: str = HEADER) -> np.ndarray:
    """%r99 of every thread: (CTAs, threads)."""
    out = np.full((ctas, threads), 7, np.uint32)
    run(kernel(f"{BEGIN}\n{lines}\n{RESULT}", header=header), out, grid=(ctas, 1, 1), cluster=(cluster, 1, 1),
        block=(threads, 1, 1))  # fmt: skip
    return out


def table(ctas: int, cluster: int, threads: int = 32) -> np.ndarray:
    """rank * 1000 + tid of every thread."""
    return (np.arange(ctas)[:, None] % cluster * 1000 + np.arange(threads)).astype(np.uint32)


def next_of(values: np.ndarray, cluster: int) -> np.ndarray:
    """Row c holds what the next CTA of c's cluster holds."""
    return np.roll(values.reshape(-1, cluster, values.shape[1]), -1, axis=1).reshape(values.shape)


# -- addresses and data ---------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_loads_from_the_next_cta(cluster: int) -> None:
    lines = f"""st.shared.b32 [%r4], %r6; {MEET} mapa.shared::cluster.u32 %r7, %r4, %r5;
    ld.shared::cluster.b32 %r99, [%r7]; {MEET}"""
    np.testing.assert_array_equal(per_thread(lines, 8, cluster), next_of(table(8, cluster), cluster))


def test_generic_loads_from_the_next_cta() -> None:
    lines = f"""st.shared.b32 [%r4], %r6; {MEET} cvt.u64.u32 %rd1, %r4; cvta.shared.u64 %rd1, %rd1;
    mapa.u64 %rd1, %rd1, %r5; ld.b32 %r99, [%rd1]; {MEET}"""
    np.testing.assert_array_equal(per_thread(lines), next_of(table(4, 4), 4))


def test_stores_to_the_next_cta() -> None:
    lines = f"""mov.u32 %r8, 0; st.shared.b32 [%r4], %r8; {MEET} mapa.shared::cluster.u32 %r7, %r4, %r5;
    st.shared::cluster.b32 [%r7], %r6; {MEET} ld.shared.b32 %r99, [%r4];"""
    np.testing.assert_array_equal(per_thread(lines), np.roll(table(4, 4), 1, axis=0))


@pytest.mark.parametrize(("kind", "count"), [("v2.b32", 2), ("v4.b32", 4), ("b64", 2), ("v2.b64", 4)])
def test_vectors_from_the_next_cta(kind: str, count: int) -> None:
    wide = kind.endswith("b64")
    names = [f"%rd{i}" for i in range(10, 10 + count // 2)] if wide else [f"%r{i}" for i in range(10, 10 + count)]
    vector = names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"
    total = "".join(f"add.u64 %rd20, %rd20, {n};" if wide else f"add.u32 %r99, %r99, {n};" for n in names)
    if wide:
        total += "cvt.u32.u64 %r99, %rd20; shr.u64 %rd20, %rd20, 32; cvt.u32.u64 %r9, %rd20; add.u32 %r99, %r99, %r9;"
    lines = f"""mov.u32 %r99, 0; mov.u64 %rd20, 0; mad.lo.u32 %r8, %r0, {4 * count}, %r1;
    {"".join(f"add.u32 %r9, %r6, {i}; st.shared.b32 [%r8+{4 * i}], %r9;" for i in range(count))} {MEET}
    mapa.shared::cluster.u32 %r7, %r8, %r5; ld.shared::cluster.{kind} {vector}, [%r7]; {total}
    {MEET}"""
    wanted = next_of(table(4, 4), 4) * count + sum(range(count))
    np.testing.assert_array_equal(per_thread(lines), wanted)


def test_which_cta_an_address_belongs_to() -> None:
    lines = f"""mapa.shared::cluster.u32 %r7, %r1, %r5; getctarank.shared::cluster.u32 %r8, %r7;
    getctarank.shared::cluster.u32 %r9, %r1; cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd1, %rd1;
    mapa.u64 %rd1, %rd1, %r5; getctarank.u64 %r10, %rd1;
    mad.lo.u32 %r99, %r8, 100, %r9; mad.lo.u32 %r99, %r99, 100, %r10;
    mapa.shared::cluster.u32 %r11, %r7, %r2; sub.u32 %r11, %r11, %r1; add.u32 %r99, %r99, %r11; {MEET}"""
    rank = np.arange(4)[:, None] + np.zeros((4, 32), np.int64)
    np.testing.assert_array_equal(per_thread(lines), ((rank + 1) % 4 * 100 + rank) * 100 + (rank + 1) % 4)


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [("add.u32", sum(r * 1000 + t for r in range(4) for t in range(32))), ("max.u32", 3031), ("min.s32", 0),
     ("or.b32", int(np.bitwise_or.reduce(table(4, 4).ravel()))), ("inc.u32", 128 % 3001)],
)  # fmt: skip
@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_atomics_of_the_whole_cluster_on_one_word(opcode: str, operation: str, wanted: int) -> None:
    start = 5000 if operation.startswith("min") else 0
    value = "3000" if operation.startswith("inc") else "%r6"
    result = "%r20, " if opcode == "atom" else ""
    lines = f"""mov.u32 %r8, {start}; mov.u32 %r9, {value}; @!%p1 st.shared.b32 [%r1], %r8; {MEET} mov.u32 %r10, 0;
    mapa.shared::cluster.u32 %r7, %r1, %r10; {opcode}.relaxed.cluster.shared::cluster.{operation} {result}[%r7], %r9;
    {MEET} ld.shared.b32 %r99, [%r1]; """
    assert set(per_thread(lines)[0].tolist()) == {wanted}


def test_compare_and_swap_in_another_cta() -> None:
    """Every CTA tries to put its rank + 1 into the word of CTA 0; the first wins and all see the same one."""
    lines = f"""mov.u32 %r8, 0; @!%p1 st.shared.b32 [%r1], %r8; {MEET} mapa.shared::cluster.u32 %r7, %r1, %r8;
    add.u32 %r9, %r2, 1; @!%p1 atom.acq_rel.cluster.shared::cluster.cas.b32 %r20, [%r7], 0, %r9; {MEET}
    ld.shared::cluster.b32 %r99, [%r7]; {MEET}"""
    values = set(per_thread(lines).ravel().tolist())
    assert len(values) == 1 and values <= {1, 2, 3, 4}


# -- st.async and red.async -----------------------------------------------------------------------

WAIT = wait("%r11", scope=".acquire.cluster")


@pytest.mark.parametrize(("kind", "count"), [("b32", 1), ("v2.b32", 2), ("v4.b32", 4), ("b64", 2), ("v2.u64", 4)])
def test_asynchronous_stores(kind: str, count: int) -> None:
    wide = kind.endswith("64")
    if wide:
        values = "".join(f"cvt.u64.u32 %rd{10 + i}, %r6; mad.lo.u64 %rd{10 + i}, %rd{10 + i}, {(1 << 32) + 1 + i}, 0;"
                         for i in range(count // 2))  # fmt: skip
        names = [f"%rd{10 + i}" for i in range(count // 2)]
    else:
        values = "".join(f"mul.lo.u32 %r{40 + i}, %r6, {1 + i};" for i in range(count))
        names = [f"%r{40 + i}" for i in range(count)]
    vector = names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"
    lines = f"""add.u32 %r11, %r1, 1008; @!%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
    @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], {32 * 4 * count};
    fence.mbarrier_init.release.cluster; {MEET}
    mad.lo.u32 %r8, %r0, {4 * count}, %r1; mapa.shared::cluster.u32 %r7, %r8, %r5;
    mapa.shared::cluster.u32 %r12, %r11, %r5; {values}
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.{kind} [%r7], {vector}, [%r12];
    {WAIT} mov.u32 %r99, 0;
    {"".join(f"ld.shared.b32 %r9, [%r8+{4 * i}]; add.u32 %r99, %r99, %r9;" for i in range(count))} {MEET}"""
    mine = np.roll(table(4, 4), 1, axis=0)
    factor = sum(2 + i for i in range(count // 2)) if wide else sum(1 + i for i in range(count))
    np.testing.assert_array_equal(per_thread(lines), mine * factor)


def test_a_warp_reads_what_another_stored_asynchronously_to_their_own_cta() -> None:
    """Who waits for the mbarrier sees the bytes: nobody waits for them as for a cp.async."""
    lines = f"""add.u32 %r11, %r1, 1008; @!%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
    @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 128; fence.mbarrier_init.release.cluster; {MEET}
    mapa.shared::cluster.u32 %r7, %r4, %r2; mapa.shared::cluster.u32 %r12, %r11, %r2; setp.ge.u32 %p3, %r0, 32;
    @!%p3 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r7], %r6, [%r12];
    {WAIT} and.b32 %r8, %r0, 31; mad.lo.u32 %r8, %r8, 4, %r1; ld.shared.b32 %r99, [%r8]; {MEET}"""
    np.testing.assert_array_equal(per_thread(lines, 2, 2, 64), np.tile(table(2, 2), 2))


STAS = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r7], %r6, [%r12];"
ARRIVES = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];"


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("signal", "arrivals", "nbytes", "ordered"),
    [(ARRIVES, 2, 0, True), (STAS, 1, 4, False), (STAS + ARRIVES, 2, 4, True)],
)
def test_the_mbarrier_of_an_asynchronous_store_orders_its_own_bytes_only(
    signal: str, arrivals: int, nbytes: int, ordered: bool
) -> None:
    """CTA 0 loads a word of global memory and signals CTA 1, which waits and writes over it, as quack does in place.

    An arrival of release.cluster orders the two; ptxas makes a memory barrier of it, and none of st.async.
    """
    lines = f"""add.u32 %r11, %r1, 1008; @!%p1 mbarrier.init.shared::cta.b64 [%r11], {arrivals};
    @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], {nbytes}; fence.mbarrier_init.release.cluster; {MEET}
    setp.ne.u32 %p3, %r2, 0; mov.u32 %r99, 0; @%p1 bra END; @%p3 bra WAITS;
    ld.global.b32 %r99, [%rd0+252]; mapa.shared::cluster.u32 %r7, %r4, %r5; mapa.shared::cluster.u32 %r12, %r11, %r5;
    {signal} bra END; WAITS: {WAIT} st.global.b32 [%rd0+252], %r6; END: {MEET} bar.warp.sync -1;"""
    if ordered:
        assert per_thread(lines, 2, 2)[0, 0] == 7
        return
    with pytest.raises(MissingBarrier, match="has loaded from"):
        per_thread(lines, 2, 2)


@pytest.mark.parametrize("operation", ["add.u32", "min.s32", "max.u32", "xor.b32", "inc.u32"])
def test_asynchronous_reductions(operation: str) -> None:
    """Every thread of the cluster combines into one word of CTA 0, whose barrier counts 4 bytes of each."""
    values = table(4, 4).ravel().astype(np.int64)
    wanted = {"add": values.sum(), "min": -5, "max": values.max(), "xor": np.bitwise_xor.reduce(values), "inc": 128}
    start = -5 if operation.startswith("min") else 0
    value = "9999" if operation.startswith("inc") else "%r6"
    lines = f"""add.u32 %r11, %r1, 1008; mov.u32 %r8, {start}; mov.u32 %r9, {value}; mov.u32 %r10, 0;
    @!%p1 st.shared.b32 [%r1], %r8; setp.ne.u32 %p3, %r2, 0; or.pred %p4, %p3, %p1;
    @!%p4 mbarrier.init.shared::cta.b64 [%r11], 1;
    @!%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 512; fence.mbarrier_init.release.cluster; {MEET}
    mapa.shared::cluster.u32 %r7, %r1, %r10; mapa.shared::cluster.u32 %r12, %r11, %r10;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation} [%r7], %r9, [%r12];
    mov.u32 %r99, 0; @%p3 bra END; {WAIT} ld.shared.b32 %r99, [%r1]; END: {MEET}"""
    got = per_thread(lines)[0].astype(np.uint32).view(np.int32)
    assert set(got.tolist()) == {int(wanted[operation[:3]])}


# -- barriers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrive", "wait"),
    [(".aligned", ".aligned"), (".release.aligned", ".acquire.aligned"), (".relaxed.aligned", ".aligned"), ("", ""),
     (".release", ".acquire")],
)  # fmt: skip
def test_cluster_barrier_phases(arrive: str, wait: str) -> None:
    """Ten rounds of a ring sum; work may stand between arrive and wait."""
    fence = "fence.acq_rel.cluster;" if "relaxed" in arrive else ""
    meet = f"{fence} barrier.cluster.arrive{arrive}; add.u32 %r20, %r20, 1; barrier.cluster.wait{wait};"
    lines = f"""mov.u32 %r20, 0; mov.u32 %r99, %r6; mapa.shared::cluster.u32 %r7, %r4, %r5; mov.u32 %r21, 0;
    ROUND: st.shared.b32 [%r4], %r99; {meet} ld.shared::cluster.b32 %r8, [%r7]; add.u32 %r99, %r8, %r0; {meet}
    add.u32 %r21, %r21, 1; setp.lt.u32 %p3, %r21, 10; @%p3 bra ROUND; add.u32 %r99, %r99, %r20;"""
    values = table(8, 4, 64)
    for _ in range(10):
        values = next_of(values, 4) + np.arange(64, dtype=np.uint32)
    np.testing.assert_array_equal(per_thread(lines, 8, 4, 64), values + 20)


def test_threads_that_have_exited_do_not_hold_the_cluster_back() -> None:
    lines = f"""mov.u32 %r99, 1; setp.lt.u32 %p3, %r0, 32; @!%p3 bra LEAVE; {MEET} mov.u32 %r99, 2; LEAVE:"""
    wanted = np.ones((4, 96), np.uint32)
    wanted[:, :32] = 2
    np.testing.assert_array_equal(per_thread(lines, 4, 4, 96), wanted)


# -- special registers ----------------------------------------------------------------------------


@pytest.mark.parametrize(("grid", "cluster"), [((4, 4, 2), (2, 2, 1)), ((2, 6, 1), (1, 3, 1)), ((3, 1, 1), (1, 1, 1))])
def test_cluster_coordinates(grid: Dim, cluster: Dim) -> None:
    names = ["%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"]
    names += [f"%{n}.{a}" for n in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for a in "xyz"]
    ctas, n = int(np.prod(grid)), len(names)
    reads = "".join(
        f"mov.{'pred %p5' if 'explicit' in name else 'u32 %r9'}, {name}; "
        + ("selp.u32 %r9, 1, 0, %p5; " if "explicit" in name else "")
        + f"st.global.b32 [%rd1+{4 * i}], %r9; "
        for i, name in enumerate(names)
    )
    text = f"""ld.param.b64 %rd0, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z;
    mad.lo.u32 %r4, %r3, {grid[1]}, %r2; mad.lo.u32 %r4, %r4, {grid[0]}, %r1;
    mad.wide.u32 %rd1, %r4, {4 * n}, %rd0; {reads}"""
    out = np.zeros((ctas, n), np.uint32)
    run(kernel(text), out, grid=grid, cluster=cluster, block=(1, 1, 1))
    for cta in range(ctas):
        at = (cta % grid[0], cta // grid[0] % grid[1], cta // (grid[0] * grid[1]))
        inside = [a % c for a, c in zip(at, cluster, strict=True)]
        rank = inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2])
        size = int(np.prod(cluster))
        wanted = [rank, size, int(size > 1), *(a // c for a, c in zip(at, cluster, strict=True)),
                  *(g // c for g, c in zip(grid, cluster, strict=True)), *inside, *cluster]  # fmt: skip
        assert out[cta].tolist() == wanted, at


# -- launch control and clocks --------------------------------------------------------------------


def test_dependent_launch_control_and_sleep_change_no_value() -> None:
    lines = """griddepcontrol.wait; griddepcontrol.launch_dependents; nanosleep.u32 20; mov.u32 %r99, 5;
    mov.u32 %r8, 100; nanosleep.u32 %r8;"""
    assert set(per_thread(lines, 1, 1).ravel().tolist()) == {5}


def test_register_budgets() -> None:
    """Two warpgroups trade registers and go on."""
    lines = """setp.lt.u32 %p3, %r0, 128; @%p3 bra GIVE;
    setmaxnreg.inc.sync.aligned.u32 240; mov.u32 %r99, 240; bra END;
    GIVE: setmaxnreg.dec.sync.aligned.u32 40; mov.u32 %r99, 40; END:"""
    out = np.full((1, 256), 7, np.uint32)
    text = kernel(f"{BEGIN}\n{lines}\n{RESULT}", header=HEADER).replace(
        ") {\n", ")\n.reqntid 256, 1, 1\n.maxnreg 168 {\n", 1
    )
    run(text, out, block=(256, 1, 1))
    np.testing.assert_array_equal(out[0], np.repeat([40, 240], 128))


@pytest.mark.parametrize("directives", [".minnctapersm 1", ".maxnreg 255"])
def test_one_warpgroup_may_own_256_registers_per_thread(directives: str) -> None:
    """Warps are given whole units of 256 registers, so the 255 that a thread can name are 256 (seen on an H200)."""
    out = np.full((1, 128), 7, np.uint32)
    lines = "setmaxnreg.inc.sync.aligned.u32 256; mov.u32 %r99, 256;"
    text = kernel(f"{BEGIN}\n{lines}\n{RESULT}", header=HEADER).replace(
        ") {\n", f")\n.reqntid 128, 1, 1\n{directives} {{\n", 1
    )
    run(text, out, block=(128, 1, 1))
    np.testing.assert_array_equal(out[0], np.full(128, 256))


@pytest.mark.parametrize(("name", "wide"), [("%clock", False), ("%clock64", True), ("%globaltimer", True)])
def test_clocks_do_not_run_backwards(name: str, wide: bool) -> None:
    read = "mov.u64 %rd{}, {};" if wide else "mov.u32 %r{}, {};"
    work = "mul.lo.u32 %r50, %r50, %r50; add.u32 %r50, %r50, 1;" * 20
    compare = "sub.u64 %rd22, %rd21, %rd20; cvt.u32.u64 %r99, %rd22;" if wide else "sub.u32 %r99, %r21, %r20;"
    lines = f"mov.u32 %r50, 3; {read.format(20, name)} {work} {read.format(21, name)} {compare}"
    elapsed = per_thread(lines, 1, 1)
    assert (elapsed < 1 << 31).all()  # a difference below zero would have its highest bit set


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.emulator
def test_no_such_cta() -> None:
    """Naming it is no error, a compiler may do so in advance; using the address is."""
    name = "mov.u32 %r7, 4; mapa.shared::cluster.u32 %r8, %r1, %r7; mov.u32 %r99, 1;"
    assert set(per_thread(name).ravel().tolist()) == {1}
    with pytest.raises(OutOfBounds, match="names no CTA of the cluster"):
        per_thread(f"{name} {MEET} ld.shared::cluster.b32 %r99, [%r8];")


@pytest.mark.emulator
def test_waiting_without_arriving() -> None:
    with pytest.raises(IllegalInstruction, match="without an arrive"):
        per_thread("barrier.cluster.wait.aligned;")


@pytest.mark.emulator
def test_arriving_twice() -> None:
    with pytest.raises(IllegalInstruction, match="twice"):
        per_thread(f"barrier.cluster.arrive.aligned; {MEET}")


@pytest.mark.emulator
def test_an_asynchronous_store_signals_the_cta_it_goes_to() -> None:
    lines = f"""add.u32 %r11, %r1, 1008; @!%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
    fence.mbarrier_init.release.cluster; {MEET} mapa.shared::cluster.u32 %r7, %r4, %r5;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r7], %r6, [%r11]; {MEET}"""
    with pytest.raises(IllegalInstruction, match="another CTA's mbarrier"):
        per_thread(lines)


@pytest.mark.emulator
@pytest.mark.parametrize(
    "text",
    ["st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r1], {%rd1, %rd2, %rd3, %rd4}, [%r2];",
     "st.async.release.global.b32 [%rd1], %r1;",
     "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.f32 [%r1], %r3, [%r2];"],
)  # fmt: skip
def test_other_forms_raise_by_name(text: str) -> None:
    with pytest.raises(UnknownInstruction, match=text.split()[0].replace(".", r"\.")):
        run(kernel(text), np.zeros(1))
