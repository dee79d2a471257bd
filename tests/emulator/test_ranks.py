"""Several ranks in one process: what torchrun gives them, NCCL's calls, and what is told when they go wrong.

Each script runs as two or three ranks. What it computes is compared with numpy; every mistake has a twin that is right.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutetut import emulate, torchrun
from cutetut.cli import main

pytestmark = pytest.mark.emulator
Run = Callable[..., tuple[int, dict[int, Any], str]]

START = """
import json, os, sys
import torch, torch.distributed as dist
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def told(value):
    print(json.dumps([rank, value]))
"""
NCCL = START + """
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
"""


@pytest.fixture
def ranks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a script as ranks: the exit status, what each has told last, and what is on stderr."""

    def run(text: str, number: int = 2, **options: Any) -> tuple[int, dict[int, Any], str]:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(text))
        status = emulate.run(str(script), [], ranks=number, **options)
        out, err = capfd.readouterr()
        return status, dict(json.loads(line) for line in out.splitlines() if line.startswith("[")), err

    return run


def right(done: tuple[int, dict[int, Any], str], number: int = 2) -> list[Any]:
    """What each rank has told, of a run that went well."""
    status, found, err = done
    assert status == 0, err
    assert sorted(found) == list(range(number))
    return [found[rank] for rank in range(number)]


# -- what a process has for itself -----------------------------------------------------------------


def test_each_rank_has_its_own_environment_arguments_and_modules(ranks: Run, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text("count = 0\n")
    found = right(ranks(START + """
import counted, random, numpy
torch.cuda.set_device(rank)
torch.manual_seed(5 + rank)
counted.count += 1 + rank
sys.argv.append(f"--of={rank}")
os.environ["MINE"] = str(rank)
dist.init_process_group("nccl")
drawn = torch.rand(1).item()
dist.barrier()  # the others run meanwhile
told([counted.count, sys.argv[1:], os.environ["MINE"], os.environ["LOCAL_RANK"], torch.cuda.current_device(),
      drawn, torch.rand(1).item(), dist.get_rank(), dist.get_world_size(), dist.get_backend()])
"""))  # fmt: skip
    for rank, (count, argv, mine, local, device, first, second, own, size, backend) in enumerate(found):
        assert (count, argv, mine, local, device) == (1 + rank, [f"--of={rank}"], str(rank), str(rank), rank)
        assert (own, size, backend) == (rank, 2, "nccl")
        import torch

        generator = torch.Generator().manual_seed(5 + rank)
        assert [first, second] == [torch.rand(1, generator=generator).item() for _ in range(2)]


def test_a_module_may_wait_for_the_other_ranks_when_it_is_imported(ranks: Run, tmp_path: Path) -> None:
    (tmp_path / "meeting.py").write_text("import torch.distributed as dist\ndist.barrier()\n")
    assert right(ranks(NCCL + "import meeting\ntold(meeting.__name__)")) == ["meeting"] * 2


def test_afterwards_the_process_is_as_before(ranks: Run) -> None:
    import os
    import sys

    import torch.distributed as dist

    before = dict(os.environ), list(sys.argv), dist.is_nccl_available(), dist.Backend.backend_list[:]
    right(ranks(NCCL + "told(dist.is_initialized())"))
    assert (dict(os.environ), list(sys.argv), dist.is_nccl_available(), dist.Backend.backend_list[:]) == before
    assert not dist.is_initialized() and "nvshmem" not in sys.modules


def test_one_rank_is_a_group_of_one(ranks: Run) -> None:
    assert right(ranks(NCCL + """
x = torch.arange(3.0, device="cuda")
dist.all_reduce(x)
told(x.tolist())
""", 1), 1) == [[0.0, 1.0, 2.0]]  # fmt: skip


# -- collectives -----------------------------------------------------------------------------------

COLLECTIVES = """
def made(*shape):
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-9, 9, shape, generator=generator).to(torch.float32).to(DEVICE)
found = {}
for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT"):
    x = made(5)
    dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
    found[name] = x.tolist()
x = made(5); dist.broadcast(x, 1); found["broadcast"] = x.tolist()
x = made(5); dist.reduce(x, 1); found["reduce"] = x.tolist()
ys = [torch.zeros(5, device=DEVICE) for _ in range(size)]
dist.all_gather(ys, made(5)); found["all_gather"] = [y.tolist() for y in ys]
y = torch.zeros(5 * size, device=DEVICE)
dist.all_gather_into_tensor(y, made(5)); found["all_gather_into_tensor"] = y.tolist()
ys = [torch.zeros(5, device=DEVICE) for _ in range(size)] if rank == 0 else None
dist.gather(made(5), ys); found["gather"] = [y.tolist() for y in ys or ()]
y = torch.zeros(2, device=DEVICE)
dist.scatter(y, list(made(size, 2).unbind()) if rank == 0 else None); found["scatter"] = y.tolist()
y = torch.zeros(2, device=DEVICE)
dist.reduce_scatter_tensor(y, made(2 * size)); found["reduce_scatter_tensor"] = y.tolist()
y = torch.zeros(2, device=DEVICE)
dist.reduce_scatter(y, list(made(size, 2).unbind())); found["reduce_scatter"] = y.tolist()
y = torch.zeros(size, device=DEVICE)
dist.all_to_all_single(y, made(size)); found["all_to_all_single"] = y.tolist()
told(found)
"""


def made(rank: int, *shape: int) -> np.ndarray:
    """What the script makes on a rank, by the same generator."""
    import torch

    generator = torch.Generator().manual_seed(rank)
    return np.asarray(torch.randint(-9, 9, shape, generator=generator).numpy(), np.float64)


@pytest.mark.parametrize(("backend", "device"), [("nccl", "cuda"), ("gloo", "cpu")])
def test_collectives_against_numpy(ranks: Run, backend: str, device: str) -> None:
    size = 3
    begin = NCCL.replace('"nccl"', f'"{backend}"') + f'DEVICE = "{device}"\n'
    found = right(ranks(begin + COLLECTIVES, size), size)
    x, wide = np.array([made(r, 5) for r in range(size)]), np.array([made(r, 2 * size) for r in range(size)])
    pairs, square = np.array([made(r, size, 2) for r in range(size)]), np.array([made(r, size) for r in range(size)])
    for rank, got in enumerate(found):
        expected = {
            "SUM": x.sum(0), "AVG": x.mean(0), "MAX": x.max(0), "MIN": x.min(0), "PRODUCT": x.prod(0),
            "broadcast": x[1], "reduce": x.sum(0) if rank == 1 else x[rank], "all_gather": x,
            "all_gather_into_tensor": x.ravel(), "gather": x if rank == 0 else np.zeros((0,)),
            "scatter": pairs[0, rank], "reduce_scatter_tensor": wide.sum(0).reshape(size, 2)[rank],
            "reduce_scatter": pairs.sum(0)[rank], "all_to_all_single": square[:, rank],
        }  # fmt: skip
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6, err_msg=f"{name} on rank {rank}")


def test_point_to_point_batches_objects_and_groups(ranks: Run) -> None:
    found = right(ranks(NCCL + """
following, before = (rank + 1) % size, (rank - 1) % size
x, y = torch.full((4,), float(rank), device="cuda"), torch.zeros(4, device="cuda")
works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, following), dist.P2POp(dist.irecv, y, before)])
for work in works:
    work.wait()
z = torch.zeros(4, device="cuda")
if rank == 0:
    dist.send(x + 10, 1)
elif rank == 1:
    work = dist.irecv(z, 0)
    work.wait()
objects = [None] * size
dist.all_gather_object(objects, {"of": rank})
outer = dist.new_group([0, 2])
w = torch.ones(1, device="cuda") * rank
if rank != 1:
    dist.all_reduce(w, group=outer)
told([y.tolist(), z.tolist(), objects, w.item(), dist.get_rank(outer)])
""", 3), 3)  # fmt: skip
    for rank, (y, z, objects, w, within) in enumerate(found):
        assert y == [(rank - 1) % 3] * 4 and z == ([10.0] * 4 if rank == 1 else [0.0] * 4)
        assert objects == [{"of": 0}, {"of": 1}, {"of": 2}]
        assert w == (1 if rank == 1 else 2) and within == (0, -1, 1)[rank]


KERNEL = NCCL + """
import cuda.bindings.driver as cuda
import cutlass, cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack
from torch.nn.parallel import DistributedDataParallel

@cute.kernel
def double_kernel(x: cute.Tensor, y: cute.Tensor):
    i, _, _ = cute.arch.thread_idx()
    y[i] = x[i] * 2.0

@cute.jit
def double(x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    double_kernel(x, y).launch(grid=(1, 1, 1), block=(8, 1, 1), stream=stream)

def twice(x):
    y = torch.empty_like(x)
    flat = [from_dlpack(each.detach().reshape(-1)) for each in (x, y)]
    double(*flat, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
    return y
"""
TWICE = KERNEL + """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return twice(x)
    @staticmethod
    def backward(ctx, gradient):
        return twice(gradient.contiguous())
"""
TRAINING = TWICE + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4, bias=False)
    def forward(self, x):
        return Twice.apply(self.linear(x))

torch.manual_seed(rank)
net = Net().cuda()
before = net.linear.weight.tolist()
parallel = DistributedDataParallel(net, device_ids=[rank])
x = torch.arange(6.0, device="cuda").reshape(2, 3) + 10 * rank
parallel(x).sum().backward()
weight = net.linear.weight
told([before, weight.tolist(), weight.grad.tolist(), str(weight.grad.device)])
"""


def test_data_parallel_training_around_a_kernel_against_numpy(ranks: Run) -> None:
    (first, *zero), (second, *one) = right(ranks(TRAINING))
    assert first != second and zero[0] == one[0] == first, "all begin with rank 0's weights"
    x = np.arange(6.0).reshape(2, 3)
    mean = np.mean([2 * (x + 10 * rank).sum(axis=0) for rank in range(2)], axis=0)  # of d(sum of 2 W x) / dW
    np.testing.assert_array_equal(zero[1], np.tile(mean, (4, 1)))
    assert zero[1] == one[1] and (zero[2], one[2]) == ("cuda:0", "cuda:1")


def test_sharded_training_around_a_kernel_against_numpy(ranks: Run) -> None:
    told = right(ranks(TWICE + """
from torch.distributed.fsdp import fully_shard
torch.manual_seed(0)
net = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(2))).cuda()
first = net[0].weight.detach().cpu().tolist()
fully_shard(net)
x = torch.arange(8.0, device="cuda").reshape(2, 4) + rank
Twice.apply(net(x)).sum().backward()
told([first, net[1].weight.grad.full_tensor().tolist(), net[1].weight.to_local().numel()])
"""))  # fmt: skip
    x = [np.arange(8.0).reshape(2, 4) + rank for rank in range(2)]
    for first, gradient, own in told:
        mean = np.mean([2 * (each @ np.array(first).T).sum(axis=0) for each in x], axis=0)
        np.testing.assert_allclose(gradient, np.tile(mean, (4, 1)), rtol=1e-5, atol=1e-5)
        assert own == 8, "each rank has half of the weights"


def test_a_graph_on_each_ranks_gpu_and_collectives_between_replays(ranks: Run) -> None:
    text = KERNEL + """
x, graph, stream = torch.ones(8, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
twice(x)  # loads the kernel
with torch.cuda.graph(graph, stream=stream):
    {inside}
    y = twice(x) + rank
    z = twice(y)
for step in range(2):
    graph.replay()
    dist.all_reduce(z)
    x.copy_(z)
told(x.tolist())
"""
    x = np.ones(8)
    for _ in range(2):
        x = (2 * x + 0) * 2 + (2 * x + 1) * 2
    assert right(ranks(text.format(inside=""))) == [x.tolist()] * 2
    status, _, err = ranks(text.format(inside="dist.all_reduce(x)"))
    assert status == 1 and "all_reduce in a CUDA graph is not emulated" in err and "between two replays" in err


def test_functional_collectives_of_what_a_kernel_wrote_against_numpy(ranks: Run) -> None:
    told = right(ranks(KERNEL + """
import torch.distributed._functional_collectives as functional
group = dist.group.WORLD
found = []
for collective in (lambda x: functional.all_reduce(x, "sum", group), lambda x: functional.broadcast(x, 1, group),
                   lambda x: functional.all_gather_single(x, 0, group),
                   lambda x: functional.reduce_scatter_single(x, "sum", 0, group)):
    found.append(collective(twice(torch.arange(8.0, device="cuda") + rank)))
told([[each.tolist() for each in found], [str(each.device) for each in found]])
"""))  # fmt: skip
    x = [2 * (np.arange(8.0) + rank) for rank in range(2)]
    for rank, (values, devices) in enumerate(told):
        wanted = [x[0] + x[1], x[1], np.concatenate(x), (x[0] + x[1])[4 * rank : 4 * rank + 4]]
        for value, expected in zip(values, wanted, strict=True):
            np.testing.assert_array_equal(value, expected)
        assert devices == [f"cuda:{rank}"] * 4


def test_collectives_under_way_beside_other_work(ranks: Run) -> None:
    found = right(ranks(NCCL + """
xs = [torch.full((3,), float(i * (rank + 1)), device="cuda") for i in range(4)]
works = [dist.all_reduce(x, async_op=True) for x in xs]
other = torch.arange(5.0, device="cuda").sum().item()
for work in works:
    work.wait()
told([other, [x.tolist() for x in xs]])
"""))  # fmt: skip
    assert found == [[10.0, [[3.0 * i] * 3 for i in range(4)]]] * 2


# -- mistakes of the host --------------------------------------------------------------------------


def test_a_rank_that_never_comes_is_told_with_both_lines(ranks: Run) -> None:
    text = NCCL + """
x = torch.ones(2, device="cuda")
if rank == 0 or {always}:
    dist.all_reduce(x)  # line 13
told(x.tolist())
"""
    assert right(ranks(text.format(always=True))) == [[2.0, 2.0]] * 2
    status, _, err = ranks(text.format(always=False))
    assert status == 1 and "Deadlock: no rank can go on" in err
    assert "all_reduce (rank 0 at script.py:13): it waits for the same call of rank 1" in err
    assert "rank 1 has ended" in err


def test_a_rank_that_raises_ends_all_with_its_traceback(ranks: Run) -> None:
    status, found, err = ranks(NCCL + """
if rank == 1:
    raise ValueError("mine alone")
dist.barrier()
told("not reached")
""")
    assert status == 1 and not found
    assert 'in <module>' in err and err.count("Traceback") == 1
    assert err.splitlines()[-1].endswith("ValueError: mine alone")


def test_an_exit_status_ends_all(ranks: Run) -> None:
    status, found, _ = ranks(NCCL + """
if rank == 1:
    sys.exit(7)
dist.barrier()
told("not reached")
""")
    assert status == 7 and not found


@pytest.mark.parametrize("batch", [True, False])
def test_two_ranks_that_both_send_first(ranks: Run, batch: bool) -> None:
    exchange = "for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - rank),\n" \
               "        dist.P2POp(dist.irecv, y, 1 - rank)]):\n    work.wait()"  # fmt: skip
    if not batch:
        exchange = "dist.send(x, 1 - rank)\ndist.recv(y, 1 - rank)"
    done = ranks(f"{NCCL}\nx, y = torch.ones(2, device='cuda') * rank, torch.zeros(2, device='cuda')\n{exchange}\n"
                 "told(y.tolist())\n")  # fmt: skip
    if batch:
        assert right(done) == [[1.0, 1.0], [0.0, 0.0]]
        return
    assert done[0] == 1 and "send from rank 0 to rank 1" in done[2] and "batch_isend_irecv" in done[2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("dist.all_reduce(x) if rank == 0 else dist.broadcast(x, 0)", ("all_reduce", "broadcast")),
        ("dist.all_reduce(x[:3] if rank == 0 else x)", ("3 numbers", "4 numbers")),
        ("dist.all_reduce(x if rank == 0 else x.double())", ("float32", "float64")),
        ("dist.all_reduce(x, op=dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM)", ("MAX", "SUM")),
        ("dist.send(x, 1) if rank == 0 else dist.recv(x[:2], 0)", ("4 numbers", "2 numbers")),
    ],
)
def test_calls_that_do_not_belong_together(ranks: Run, call: str, words: tuple[str, str]) -> None:
    status, _, err = ranks(f"{NCCL}\nx = torch.ones(4, device='cuda')\n{call}\ntorch.cuda.synchronize()")
    assert status == 1 and "MismatchedCalls: rank 0 calls" in err and "where rank 1 calls" in err
    assert all(word in err for word in words)


def test_two_ranks_on_one_gpu(ranks: Run) -> None:
    text = NCCL.replace('int(os.environ["LOCAL_RANK"])', "{gpu}") + """
dist.all_reduce(torch.ones(2, device="cuda"))
torch.cuda.synchronize()
told(0)
"""
    right(ranks(text.format(gpu="rank")))
    status, _, err = ranks(text.format(gpu="0"))
    assert status == 1 and "several ranks call all_reduce with tensors of cuda:0" in err and "LOCAL_RANK" in err


def test_a_result_that_nothing_waits_for(ranks: Run) -> None:
    text = NCCL + """
x = torch.ones(4, device="cuda")
work = dist.all_reduce(x, async_op=True)
{wait}
told((x + 1).tolist())
"""
    for wait in ("work.wait()", "torch.cuda.synchronize()", "work.is_completed()"):
        assert right(ranks(text.format(wait=wait))) == [[3.0] * 4] * 2
    status, _, err = ranks(text.format(wait=""))
    assert status == 1 and "all_reduce of rank" in err and "nothing waits for that" in err and "work.wait()" in err


def test_tensors_of_the_host_are_not_nccls(ranks: Run) -> None:
    status, _, err = ranks(NCCL + "dist.all_reduce(torch.ones(2))")
    assert status == 1 and "No backend type associated with device type cpu" in err


# -- torchrun --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["torchrun"], ["-m", "torch.distributed.run"], ["/usr/bin/torchrun"]])
def test_torchrun_is_understood(command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(START + "told([sys.argv[1:], torch.cuda.device_count()])")
    assert main(["emulate", *command, "--nproc-per-node", "3", str(script), "--count", "5"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("[")]
    assert sorted(lines) == [[rank, [["--count", "5"], 3]] for rank in range(3)]


@pytest.mark.parametrize(
    ("args", "gpus", "expected"),
    [
        (["--nproc-per-node=4", "a.py", "--x"], None, (4, "a.py", ["--x"], False)),
        (["--standalone", "--nproc_per_node", "gpu", "a.py"], 2, (2, "a.py", [], False)),
        (["-m", "package.module"], None, (1, "package.module", [], True)),
    ],
)
def test_its_options(args: list[str], gpus: int | None, expected: tuple[Any, ...]) -> None:
    asked = torchrun.read(args, gpus)
    assert (asked.ranks, asked.script, asked.args, asked.module) == expected


def test_several_hosts_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", "torchrun", "--nnodes", "2", "a.py"]) == 1
    assert "one host is emulated" in capfd.readouterr().err
