"""Symmetric memory of ranks, and multicast addresses: what kernels and torch may do with it, and what is told.

tests/scripts/two_ranks.py is right as it is, and each of its mistakes leaves out one thing. multimem is compared with
numpy.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cutetut import emulate
from cutetut.emulator.errors import IllegalInstruction, UnknownInstruction
from cutetut.emulator.machine import multicast
from tests.emulator.harness import Argument, kernel, run

pytestmark = pytest.mark.emulator
SCRIPT = Path(__file__).parent.parent / "scripts" / "two_ranks.py"


# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("schedule", ["order", "random:1", "random:2"])
def test_a_ring_of_ranks_is_right(capfd: pytest.CaptureFixture[str], number: int, schedule: str) -> None:
    assert emulate.run(str(SCRIPT), [], ranks=number, settings={"CUTETUT_SCHEDULE": schedule}) == 0
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == [f"rank {i} of {number} is right" for i in range(number)], err


@pytest.mark.parametrize(
    ("mistake", "kind", "words"),
    [
        ("narrow scope", "narrow-scope", ("give_kernel was launched by rank", "take_kernel was launched by rank")),
        ("no flag", "missing-gpu-order", ("give_kernel was launched by rank", "take_kernel was launched by rank")),
        ("no flag raised", "deadlock", ("launched by rank 0", "launched by rank 1", "rank 0 waits for its GPU")),
        ("no barrier after zero_", "missing-gpu-order", ("torch's zero_ by rank", "give_kernel of rank")),
        ("no rendezvous", "no-peer-access", ("has no peer access", "rendezvous")),
        ("host waits only", "missing-gpu-order", ("torch's fill_ by rank", "double_kernel of rank")),
        ("no barrier before reading", "missing-gpu-order", ("torch's fill_ by rank", "double_kernel of rank")),
        ("no barrier after reading", "missing-gpu-order", ("torch's fill_ by rank", "double_kernel of rank")),
        ("kernel before wait", "missing-stream-order", ("all_reduce of rank", "double_kernel of rank", "work.wait()")),
        ("collective beside kernel", "missing-stream-order", ("all_reduce of rank", "double_kernel of rank")),
    ],
)
def test_its_mistakes_are_told(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, mistake: str, kind: str, words: tuple[str, ...]
) -> None:
    report = tmp_path / "found.json"
    assert emulate.run(str(SCRIPT), [mistake], ranks=2, report=str(report)) == 1
    err = capfd.readouterr().err
    assert all(word in err for word in words), err
    assert "two_ranks.py:" in err and f'"kind": "{kind}"' in report.read_text()


def test_races_can_be_let_go(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(match="race: MissingBarrier: torch's fill_ by rank"):
        assert emulate.run(str(SCRIPT), ["no barrier after reading"], ranks=2, warn="race") in (0, 1)
    capfd.readouterr()


FLAG_THEN_COLLECTIVE = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import cuda.bindings.driver as cuda
from cutlass import Int32
from cutlass.cute.runtime import from_dlpack
from two_ranks import N, double, hand_on
stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
mine, flag = symm_mem.empty(N, device="cuda"), symm_mem.empty(1, dtype=torch.int32, device="cuda")
handles = [symm_mem.rendezvous(each, dist.group.WORLD) for each in (mine, flag)]
theirs, their_flag = (h.get_buffer(1 - rank, t.shape, t.dtype) for h, t in zip(handles, (mine, flag)))
y = torch.zeros(N, device="cuda")
tensors = [from_dlpack(each) for each in (mine, theirs, flag, their_flag, y)]
"""


@pytest.mark.parametrize("flag", [True, False])
def test_a_flag_orders_a_collective_behind_a_peers_kernel(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], flag: bool
) -> None:
    """The peer's kernel has written what is summed up; that its flag was waited for is all that orders the two."""
    call = "hand_on(*tensors, Int32(1000 * rank), stream)" if flag else "double(tensors[0], tensors[1], stream)"
    status = script(tmp_path, FLAG_THEN_COLLECTIVE + f"{call}\ndist.all_reduce(mine)\nprint(mine[1].item())\n")
    out, err = capfd.readouterr()
    if flag:
        assert (status, out) == (0, "1002.0\n" * 2), err
    else:
        assert status == 1 and ("all_reduce of rank" in err or "by GPU" in err) and "nothing orders the two" in err


@pytest.mark.parametrize("crossed", [True, False])
def test_a_kernel_and_a_collective_that_wait_for_each_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], crossed: bool
) -> None:
    """Rank 0's kernel waits for rank 1's, which rank 1 launches only after a collective that rank 0 comes to later."""
    status = script(tmp_path, FLAG_THEN_COLLECTIVE + f"""
z = torch.ones(4, device="cuda")
if rank == 0 or not {crossed}:
    hand_on(*tensors, Int32(1000 * rank), stream)
    torch.cuda.synchronize()
    dist.all_reduce(z)
else:
    dist.all_reduce(z)
    torch.cuda.synchronize()
    hand_on(*tensors, Int32(1000 * rank), stream)
print(z[0].item())
""")  # fmt: skip
    out, err = capfd.readouterr()
    if not crossed:
        assert (status, out) == (0, "2.0\n" * 2), err
        return
    assert status == 1 and "Deadlock" in err and "kernel take_kernel" in err
    assert "rank 0 waits for its GPU at script.py" in err and "rank 1 waits for its GPU at script.py" in err
    assert "all_reduce (rank 1 at script.py" in err and "waits for the same call of rank 0" in err


@pytest.mark.parametrize("waits", [True, False])
def test_a_batch_of_sends_and_a_kernel(tmp_path: Path, capfd: pytest.CaptureFixture[str], waits: bool) -> None:
    status = script(tmp_path, FLAG_THEN_COLLECTIVE + f"""
x = torch.arange(N, dtype=torch.float32, device="cuda") + rank
works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)])
for work in works if {waits} else ():
    work.wait()
double(from_dlpack(y), from_dlpack(mine), stream)
torch.cuda.synchronize()
for work in works:
    work.wait()
print(mine[1].item())
""")  # fmt: skip
    out, err = capfd.readouterr()
    if waits:
        assert status == 0 and sorted(out.split()) == ["2.0", "4.0"], err
    else:
        assert status == 1 and "send from rank" in err and "double_kernel of rank" in err


# -- the calls of symmetric memory -----------------------------------------------------------------

START = """
import os, torch, torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
"""


def script(tmp_path: Path, text: str, number: int = 2) -> int:
    file = tmp_path / "script.py"
    file.write_text(START + textwrap.dedent(text))
    return emulate.run(str(file), [], ranks=number)


def test_buffers_signal_pads_and_pointers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert script(tmp_path, """
        t = symm_mem.empty(2, 8, device="cuda", dtype=torch.float32)
        assert t.eq(0).all() and symm_mem.is_symm_mem_tensor(t)
        t.copy_(torch.arange(16.0).view(2, 8) + 100 * rank)
        h = symm_mem.rendezvous(t, dist.group.WORLD)
        assert symm_mem.rendezvous(t, dist.group.WORLD) is h
        h.barrier()
        assert (h.rank, h.world_size, h.buffer_size) == (rank, 2, 64)
        for peer in range(2):
            b = h.get_buffer(peer, (2, 8), torch.float32)
            assert b.device == torch.device("cuda", rank)
            assert torch.equal(b.cpu(), torch.arange(16.0).view(2, 8) + 100 * peer)
            assert h.get_buffer(peer, (3,), torch.float32, 5).tolist() == [5 + 100 * peer + i for i in range(3)]
            assert h.buffer_ptrs[peer] == b.data_ptr()
        assert h.buffer_ptrs[rank] == t.data_ptr()
        own = h.get_buffer(1 - rank, (2, 8), torch.float32) * 2 + t  # both count as this GPU's
        assert own.device.index == rank and own[0, 0].item() == 2 * 100 * (1 - rank) + 100 * rank
        h.barrier()
        pad = h.get_signal_pad(1 - rank, (4,), torch.int32)
        pad.fill_(5 + rank)
        h.barrier()
        assert h.get_signal_pad(rank, (4,), torch.int32).tolist() == [5 + 1 - rank] * 4
        try:
            h.get_buffer(0, (17,), torch.float32)
        except RuntimeError as error:
            print("refused", rank)
    """) == 0, capfd.readouterr().err  # fmt: skip
    assert sorted(capfd.readouterr().out.splitlines()) == ["refused 0", "refused 1"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_signal_orders_two_ranks(tmp_path: Path, capfd: pytest.CaptureFixture[str], waits: bool) -> None:
    status = script(tmp_path, f"""
        t = symm_mem.empty(4, device="cuda")
        h = symm_mem.rendezvous(t, dist.group.WORLD)
        if rank == 0:
            t.fill_(3.0)
            h.put_signal(1)
        else:
            {"h.wait_signal(0)" if waits else "pass"}
            theirs = h.get_buffer(0, (4,), torch.float32)
            assert theirs.tolist() == [3.0] * 4
    """)  # fmt: skip
    assert status == (0 if waits else 1), capfd.readouterr().err


def test_what_is_no_symmetric_memory_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert script(tmp_path, "symm_mem.rendezvous(torch.zeros(4, device='cuda'), dist.group.WORLD)") == 1
    assert "not of torch.distributed._symmetric_memory.empty" in capfd.readouterr().err


# -- multimem --------------------------------------------------------------------------------------

BUFFERS, THREADS = 3, 32
WINDOW = 1 << 44


@pytest.fixture
def window() -> Iterator[None]:
    yield
    multicast.forget()


def reach(body: str, buffers: list[np.ndarray], *arrays: np.ndarray) -> None:
    """Run PTX: %rd10 is the address of each thread's 16 bytes in a window over the buffers, %rd1 in the first array."""
    multicast.bind(WINDOW, buffers[0].nbytes, tuple(buffer.ctypes.data for buffer in buffers))
    others = "".join(f"ld.param.b64 %rd{20 + i}, [p{i + 1}];" for i in range(len(buffers)))
    text = f"""mov.u32 %r1, %tid.x; cvt.u64.u32 %rd2, %r1; shl.b64 %rd2, %rd2, 4; {others}
    ld.param.b64 %rd1, [p{1 + len(buffers)}]; add.s64 %rd1, %rd1, %rd2; ld.param.b64 %rd10, [p0];
    add.s64 %rd10, %rd10, %rd2; {body}"""
    arrays = arrays or (np.zeros(4, np.uint32),)
    given: list[Argument] = [WINDOW.to_bytes(8, "little"), *buffers, *arrays]
    run(kernel(text, len(given)), *given, block=(THREADS, 1, 1))


def random(dtype: str, seed: int = 3) -> list[np.ndarray]:
    """A buffer per GPU, 16 bytes for each thread."""
    rng = np.random.default_rng(seed)
    count = THREADS * 16 // np.dtype(dtype).itemsize
    if np.dtype(dtype).kind == "f":
        return [rng.normal(size=count).astype(dtype) for _ in range(BUFFERS)]
    limits = np.iinfo(dtype)
    return [rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True) for _ in range(BUFFERS)]


def test_a_sum_of_what_all_gpus_hold(window: None) -> None:
    buffers, out = random("f4"), np.zeros(THREADS * 4, np.float32)
    reach("""multimem.ld_reduce.weak.global.add.v4.f32 {%r10, %r11, %r12, %r13}, [%rd10];
          st.global.v4.b32 [%rd1], {%r10, %r11, %r12, %r13};""", buffers, out)  # fmt: skip
    np.testing.assert_allclose(out, np.sum(buffers, axis=0, dtype=np.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("operation", ["add", "min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64", "b32", "b64"])
def test_reductions_of_integers(window: None, operation: str, kind: str) -> None:
    logical = operation in ("and", "or", "xor")
    if logical != kind.startswith("b") or (operation, kind) == ("add", "s64"):
        return
    dtype = ("i" if kind[0] == "s" else "u") + str(int(kind[1:]) // 8)
    register, buffers = ("%r10", "%rd11")[kind.endswith("64")], random(dtype)
    out = np.zeros_like(buffers[0])
    reach(f"multimem.ld_reduce.relaxed.sys.global.{operation}.{kind} {register}, [%rd10];"
          f"st.global.b{kind[1:]} [%rd1], {register};", buffers, out)  # fmt: skip
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                "xor": np.bitwise_xor}[operation]  # fmt: skip
    each = 16 // np.dtype(dtype).itemsize
    np.testing.assert_array_equal(out[::each], function.reduce(buffers, dtype=dtype)[::each])


@pytest.mark.parametrize("wide", [True, False])
def test_halves_are_added_in_float32_where_asked(window: None, wide: bool) -> None:
    buffers, out = [np.full(THREADS * 8, x, np.float16) for x in (2048.0, 1.0, 1.0)], np.zeros(THREADS * 8, np.float16)
    reach(f"""multimem.ld_reduce.weak.global.add{".acc::f32" * wide}.v4.f16x2 {{%r10, %r11, %r12, %r13}}, [%rd10];
          st.global.v4.b32 [%rd1], {{%r10, %r11, %r12, %r13}};""", buffers, out)  # fmt: skip
    assert set(out.tolist()) == {2050.0 if wide else 2048.0}  # 2049 is no float16: it rounds to 2048, twice


def test_bfloat16(window: None) -> None:
    values = [1.0, 2.5, -0.5]
    buffers = [np.full(THREADS * 8, np.float32(x).view(np.uint32) >> 16, np.uint16) for x in values]
    out = np.zeros(THREADS * 8, np.uint16)
    reach("""multimem.ld_reduce.weak.global.add.acc::f32.v4.bf16x2 {%r10, %r11, %r12, %r13}, [%rd10];
          st.global.v4.b32 [%rd1], {%r10, %r11, %r12, %r13};""", buffers, out)  # fmt: skip
    assert set((out.astype(np.uint32) << 16).view(np.float32).tolist()) == {3.0}


def test_a_store_reaches_all(window: None) -> None:
    buffers = random("u4")
    reach("""mov.u32 %r10, %tid.x; add.u32 %r11, %r10, 1; add.u32 %r12, %r10, 2; add.u32 %r13, %r10, 3;
          multimem.st.relaxed.sys.global.v4.f32 [%rd10], {%r10, %r11, %r12, %r13};""", buffers)  # fmt: skip
    for buffer in buffers:
        np.testing.assert_array_equal(buffer.reshape(THREADS, 4), np.arange(THREADS)[:, None] + np.arange(4))


def test_a_reduction_reaches_all_and_threads_of_one_address_add_up(window: None) -> None:
    buffers = random("u4")
    before = [buffer.copy() for buffer in buffers]
    reach("ld.param.b64 %rd10, [p0]; multimem.red.release.sys.global.add.u32 [%rd10], 2;", buffers)
    for old, new in zip(before, buffers, strict=True):
        assert new[0] == np.uint32((int(old[0]) + 2 * THREADS) % 2**32)
        np.testing.assert_array_equal(new[1:], old[1:])


def test_an_ordinary_address_is_told(window: None) -> None:
    with pytest.raises(IllegalInstruction, match="no multicast address"):
        reach("multimem.st.weak.global.b32 [%rd20], 1;", random("u4"))


@pytest.mark.parametrize(
    "text",
    ["multimem.ld_reduce.weak.global.add.v4.e4m3x4 {%r10, %r11, %r12, %r13}, [%rd10];",
     "multimem.ld_reduce.weak.global.min.f32 %r10, [%rd10];",
     "multimem.ld_reduce.weak.global.add.acc::f32.f32 %r10, [%rd10];",
     "multimem.ld_reduce.weak.global.add.f16 %h10, [%rd10];",
     "multimem.st.weak.global.v2.u32 [%rd10], {%r10, %r11};"],
)  # fmt: skip
def test_other_forms_are_refused(window: None, text: str) -> None:
    with pytest.raises(UnknownInstruction):
        reach(text, random("u4"))


# -- multicast tensors of NVSHMEM ------------------------------------------------------------------

ALL_REDUCE = '''
import nvshmem.core
import cutlass, cutlass.cute as cute, cutlass.utils as utils
from cutlass.cute.runtime import from_dlpack
from cuda.core import Device

@cute.kernel
def reduce_kernel(gX: cute.Tensor, gFlag: cute.Tensor, gFlagAll: cute.Tensor, rank: cutlass.Constexpr):
    tid = cute.arch.thread_idx()[0]
    at = gX.iterator + (rank * 128 + tid) * 4
    {ACCESS}
    cute.arch.sync_threads()
    if tid == 0:
        utils.distributed.multimem_red_add1(gFlagAll.iterator, scope="sys", order="release")
        utils.distributed.spin_lock_atom_cas_acquire_wait(gFlag.iterator, expected_val=2, reset_val=0, scope="sys")

@cute.jit
def all_reduce(x: cute.Tensor, flag: cute.Tensor, flag_all: cute.Tensor, rank: cutlass.Constexpr):
    reduce_kernel(x, flag, flag_all, rank).launch(grid=(1, 1, 1), block=(128, 1, 1))

device = Device(rank)
device.set_current()
nvshmem.core.init(device=device, uid=nvshmem.core.get_unique_id(), rank=rank, nranks=size, initializer_method="uid")
x, flag = nvshmem.core.tensor((1024,), dtype=torch.float32), nvshmem.core.tensor((1,), dtype=torch.int32)
x.copy_(torch.arange(1024.0) * (rank + 1))
x_all, flag_all = (nvshmem.core.get_multicast_tensor(nvshmem.core.Teams.TEAM_NODE, t) for t in (x, flag))
dist.barrier()
all_reduce(*map(from_dlpack, (x_all, flag, flag_all)), rank)
dist.barrier()
assert torch.equal(x.cpu(), torch.arange(1024.0) * 3), x
assert torch.equal(nvshmem.core.get_peer_tensor(x, 1 - rank).cpu(), torch.arange(1024.0) * 3)
{AFTER}
print("right")
'''
MULTIMEM = "utils.distributed.multimem_st_4xb32(at, *utils.distributed.multimem_ld_reduce_4xf32(at))"


def test_an_all_reduce_by_multimem(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = ALL_REDUCE.replace("{ACCESS}", MULTIMEM).replace("{AFTER}", "nvshmem.core.finalize()")
    assert script(tmp_path, text) == 0, capfd.readouterr().err
    assert capfd.readouterr().out.count("right") == 2 and "nvshmem.core" not in sys.modules


@pytest.mark.parametrize(
    ("access", "after", "told"),
    [("gX[tid] = 0.0", "", "only multimem's instructions may use"), (MULTIMEM, "x_all.cpu()", "a multicast address")],
)
def test_nothing_else_may_use_a_multicast_address(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], access: str, after: str, told: str
) -> None:
    assert script(tmp_path, ALL_REDUCE.replace("{ACCESS}", access).replace("{AFTER}", after)) == 1
    assert told in capfd.readouterr().err
