"""Kernels that other people wrote, run as they are under `python -m cutetut emulate`, each with its own check.

    python -m tests.emulator.peers FOLDER [--policy late|early|random:N] [--jobs N] [--write FILE.json] [NAME...]

FOLDER holds what is not part of this project:

    cutlass/              a clone of NVIDIA/cutlass
    fasite/flash_attn/    an empty __init__.py, and Dao-AILab/flash-attention's folder flash_attn/cute as cute/
    fasite/COMMIT         the commit that folder is from
    site/                 pip install --no-deps --target site quack-kernels torch-c-dlpack-ext einops

Exit status 1 if a kernel did not pass that has no fault of its own, or one passed that has.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).parent / "peer_drivers"
LIMIT = 600  # seconds for one kernel, on a machine that may be busy


@dataclass(frozen=True)
class Peer:
    """A script with its arguments: {cutlass} and {drivers} stand for folders."""

    source: str
    covers: str
    command: str
    prints: str = ""  # what a run that passes prints, where the exit status alone does not say it
    fault: str = ""  # what is wrong in the peer itself, so that it must not pass


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    name: str
    source: str
    covers: str
    passed: bool
    said: str  # the first line of what was said of it, empty if it passed without a warning
    fault: str  # what is wrong in the peer itself
    seconds: float
    cpu_seconds: float


NVIDIA, QUACK, FLASH = "NVIDIA/cutlass", "quack", "flash-attention"
HOPPER, AMPERE = "{cutlass}/cute/hopper/kernel", "{cutlass}/cute/ampere/kernel"
GEMM, PERSISTENT = f"{HOPPER}/dense_gemm/dense_gemm.py", f"{HOPPER}/dense_gemm/dense_gemm_persistent.py"
ONE_SM, TWO_SMS = "{drivers}/few_sms.py 1", "{drivers}/few_sms.py 2"
TILE, ONCE = "--tile_shape_mn 128,128", "--warmup_iterations 0 --iterations 1"
TUTORIAL, PRIMITIVE = "{cutlass}/dsl_tutorials", "{cutlass}/experimental/primitives"
QROWS, QGEMM, ATTENTION = (
    f"{{drivers}}/without_triton.py {{drivers}}/{name}.py" for name in ("quack_rows", "quack_gemm", "flash_attention")
)
TORCHRUN = "torchrun --nproc-per-node 2 {cutlass}/cute/blackwell/kernel/distributed"
PASS, VERIFIED = "PASS", "Results verified successfully!"

PEERS: dict[str, Peer] = {
    # -- NVIDIA, Hopper --
    "gemm": Peer(NVIDIA, "TMA, WGMMA, float16", f"{GEMM} --mnkl 128,128,320,1 {TILE}", PASS),
    "gemm majors": Peer(
        NVIDIA, "A and B major in m and n", f"{GEMM} --mnkl 128,128,192,1 {TILE} --a_major m --b_major n", PASS
    ),
    "gemm int8": Peer(
        NVIDIA, "int8 operands, int32 sums",
        f"{GEMM} --mnkl 128,128,256,1 {TILE} --a_dtype Int8 --b_dtype Int8 --c_dtype Int32 --acc_dtype Int32", PASS,
    ),
    "gemm fp8": Peer(
        NVIDIA, "float8 operands",
        f"{GEMM} --mnkl 128,128,256,1 {TILE} --a_dtype Float8E4M3FN --b_dtype Float8E4M3FN", PASS,
    ),
    "gemm cluster": Peer(
        NVIDIA, "a cluster of 2, multicast", f"{GEMM} --mnkl 256,128,320,1 {TILE} --cluster_shape_mn 2,1", PASS
    ),
    "gemm two consumers": Peer(
        NVIDIA, "two warpgroups", f"{GEMM} --mnkl 128,256,192,1 --tile_shape_mn 128,256", PASS
    ),
    "gemm persistent": Peer(
        NVIDIA, "three tiles for one CTA, setmaxnreg", f"{ONE_SM} {PERSISTENT} --mnkl 384,128,192,1 {TILE}", PASS
    ),
    "gemm persistent cluster": Peer(
        NVIDIA, "two tiles for each CTA of a cluster",
        f"{ONE_SM} {PERSISTENT} --mnkl 512,128,192,1 {TILE} --cluster_shape_mn 2,1", PASS,
    ),
    "gemm fp8 2xacc": Peer(
        NVIDIA, "float8, sums promoted every 4 steps",
        f"{HOPPER}/dense_gemm/dense_gemm_fp8_2xacc.py --mnkl 128,128,640,1 {TILE}", PASS,
    ),
    "grouped gemm": Peer(
        NVIDIA, "tensor maps that the kernel edits",
        f"{ONE_SM} {HOPPER}/grouped_gemm/grouped_gemm.py --num_groups 2 "
        f"--problem_sizes_mnkl (128,128,128,1),(128,128,64,1) {TILE} --iterations 0", PASS,
    ),
    "cta norm": Peer(NVIDIA, "LayerNorm by one CTA a row", f"{HOPPER}/cta_norm/cta_norm.py --M 2 --N 3080", PASS),
    "fmha causal": Peer(
        NVIDIA, "attention, causal, bfloat16",
        f"{HOPPER}/attention/fmha.py --q_shape 1,128,1,64 --k_shape 1,256,1,64 --is_causal --in_dtype BFloat16 "
        "--out_dtype BFloat16", PASS,
    ),
    "fmha window": Peer(
        NVIDIA, "attention, window of 64 to the left",
        f"{HOPPER}/attention/fmha.py --q_shape 1,128,1,64 --k_shape 1,256,1,64 --window_size 64,0", PASS,
    ),
    "fmha persistent": Peer(
        NVIDIA, "attention, three heads for one CTA",
        f"{ONE_SM} {HOPPER}/attention/fmha.py --q_shape 1,128,3,64 --k_shape 1,256,3,64 --is_persistent", PASS,
    ),
    # -- NVIDIA, Ampere and tutorials --
    "sgemm": Peer(
        NVIDIA, "cp.async, ragged", f"{AMPERE}/dense_gemm/sgemm.py --mnk 100,128,60 --a_major k {ONCE}", PASS
    ),
    "tensorop gemm": Peer(
        NVIDIA, "mma.sync, ldmatrix",
        f"{AMPERE}/dense_gemm/tensorop_gemm.py --mnkl 128,128,96,1 --benchmark none {ONCE}", PASS,
    ),
    "flash attention v2": Peer(
        NVIDIA, "attention with cp.async, causal",
        f"{AMPERE}/attention/flash_attention_v2.py --batch_size 1 --seqlen_q 100 --seqlen_k 200 --num_head 1 "
        f"--head_dim 64 --is_causal {ONCE}", PASS,
    ),
    "elementwise": Peer(
        NVIDIA, "vectors with predicates", f"{AMPERE}/elementwise/elementwise_add.py --M 60 --N 264 {ONCE}", PASS
    ),
    "dependent launch": Peer(
        NVIDIA, "griddepcontrol", f"{TUTORIAL}/programmatic_dependent_launch.py --M 64 --N 64 --use_pdl {ONCE}"
    ),
    "cooperative launch": Peer(NVIDIA, "a barrier across the grid", f"{TUTORIAL}/cooperative_launch.py"),
    "inline ptx": Peer(NVIDIA, "inline PTX", f"{TUTORIAL}/inline_ptx.py"),
    "async pipeline": Peer(NVIDIA, "a pipeline of mbarriers", f"{PRIMITIVE}/async_pipeline.py"),
    "tma pipeline": Peer(
        NVIDIA, "TMA, warps with roles of their own", f"{PRIMITIVE}/tma/tma_pipeline_warpspec.py",
        fault="one lane gives the stage back, but other lanes of its warp read it too, and no bar.warp.sync is between",
    ),
    "tensormap replace": Peer(NVIDIA, "tensormap.replace", f"{PRIMITIVE}/tma/tma_tensormap_replace.py"),
    "cluster reduce": Peer(NVIDIA, "distributed shared memory", f"{PRIMITIVE}/reduction/cluster_smem_reduce.py"),
    # -- NVIDIA, two ranks --
    "all-reduce": Peer(
        NVIDIA, "two ranks, NVSHMEM's peer tensors", f"{TORCHRUN}/all_reduce_simple.py --M 64 --N 128", VERIFIED
    ),
    "all-reduce multimem": Peer(
        NVIDIA, "two ranks, multicast memory", f"{TORCHRUN}/all_reduce_two_shot_multimem.py --M 256 --N 128", VERIFIED
    ),
    "all-reduce lamport": Peer(
        NVIDIA, "two ranks, symmetric memory", f"{TORCHRUN}/all_reduce_one_shot_lamport.py --M 64 --N 128", VERIFIED,
        fault="a rank writes to another's buffer, and nothing makes it wait until that rank has filled it by neg_()",
    ),
    "all-reduce lamport, races let go": Peer(
        NVIDIA, "the same with --warn=race",
        f"--warn=race {TORCHRUN}/all_reduce_one_shot_lamport.py --M 64 --N 128", VERIFIED,
    ),
    "all-reduce tma": Peer(
        NVIDIA, "two ranks, TMA from a peer", f"{TORCHRUN}/all_reduce_tma.py --shape 64,64", VERIFIED,
        fault="TMA stores to a multicast address, which only multimem may use (PTX ISA section 9.7.9.16)",
    ),
    # -- quack --
    "softmax": Peer(QUACK, "rows of 4096", f"{QROWS} softmax 4 4096", PASS),
    "softmax cluster": Peer(QUACK, "a cluster for each row, st.async", f"{QROWS} softmax 4 4096 2", PASS),
    "rmsnorm cluster": Peer(QUACK, "a cluster for each row", f"{QROWS} rmsnorm 4 4096 2", PASS),
    "layernorm": Peer(QUACK, "two reductions", f"{QROWS} layernorm 4 4096", PASS),
    "cross entropy": Peer(QUACK, "online softmax", f"{QROWS} cross_entropy 4 4096", PASS),
    "cross entropy in place": Peer(
        QUACK, "the gradient over the logits", f"{QROWS} cross_entropy_in_place 4 4096", PASS
    ),
    "cross entropy in place, cluster": Peer(
        QUACK, "the same by a cluster for each row", f"{QROWS} cross_entropy_in_place 4 4096 2", PASS,
        fault="one CTA loads the target's logit, another stores the gradient there; between them is only st.async, "
        "which orders its own bytes and no earlier load",
    ),
    "quack gemm": Peer(QUACK, "epilogue with an addend", f"{ONE_SM} {QGEMM} 256 128 128 128 128 1 1 addend", PASS),
    "quack gemm cluster": Peer(QUACK, "a cluster of 2", f"{QGEMM} 256 128 192 128 128 2 1", PASS),
    "split-K": Peer(QUACK, "CTAs add one after the other: flags", f"{QGEMM} 128 128 256 128 128 1 1 split=4", PASS),
    "pingpong": Peer(QUACK, "two warpgroups in turns", f"{ONE_SM} {QGEMM} 256 256 192 128 128 1 1 pingpong", PASS),
    "dynamic": Peer(QUACK, "tiles from a counter", f"{TWO_SMS} {QGEMM} 512 128 128 128 128 1 1 dynamic", PASS),
    # -- flash-attention --
    "forward 64": Peer(FLASH, "head dimension 64, causal", f"{ATTENTION} 128 256 1 64 causal", PASS),
    "forward 128": Peer(FLASH, "head dimension 128", f"{ATTENTION} 128 256 1 128", PASS),
    "backward 64": Peer(FLASH, "gradients of q, k and v", f"{ATTENTION} 128 128 1 64 causal backward", PASS),
}  # fmt: skip


def words(peer: Peer, folder: Path) -> list[str]:
    """A command with its folders filled in."""
    places = {"{cutlass}": str(folder / "cutlass/examples/python/CuTeDSL"), "{drivers}": str(DRIVERS)}
    filled = []
    for word in peer.command.split():
        for name, place in places.items():
            word = word.replace(name, place)
        filled.append(word)
    return filled


def environment(folder: Path, policy: str, schedule: str) -> dict[str, str]:
    """The peers' sources on the path, and the emulator's options."""
    roots = [ROOT, folder / "fasite", folder / "site", folder / "cutlass/examples/python/CuTeDSL"]
    return dict(
        os.environ, PYTHONPATH=os.pathsep.join(map(str, roots)), CUTETUT_ASYNC=policy, QUACK_CACHE_ENABLED="0",
        CUTETUT_SCHEDULE=schedule, PYTHONDONTWRITEBYTECODE="1",
    )  # fmt: skip


def verdict(peer: Peer, status: int, text: str) -> tuple[bool, str]:
    """Whether a run passed, and the first line of what was said: an error, a warning, or the last line."""
    text = re.sub(r"^\[rank\d+\]: ", "", text, flags=re.M)  # as torch.distributed begins the lines of a traceback
    error = re.search(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)|[A-Z]\w+): (.+)", _last_traceback(text), re.M)
    if status or peer.prints not in text:
        lines = [line for line in text.splitlines() if line.strip()]
        return False, f"{error[1]}: {error[2]}" if error else f"exit status {status}: {(lines or [''])[-1].strip()}"
    warned = re.search(r"EmulatorWarning: (.+)", text)
    return True, f"warning: {warned[1]}" if warned else ""


def _last_traceback(text: str) -> str:
    """What follows the last traceback's stack, which is where its error is named."""
    return re.split(r"^Traceback \(most recent call last\):$", text, flags=re.M)[-1] if "Traceback" in text else ""


def run(name: str, folder: Path, env: dict[str, str]) -> Outcome:
    """One peer in a process of its own."""
    peer = PEERS[name]
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "cutetut", "emulate", *words(peer, folder)]
    started = time.monotonic()
    process = subprocess.Popen(
        ["timeout", str(LIMIT), *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
    )
    assert process.stdout is not None
    text = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    passed, said = verdict(peer, process.returncode, text)
    if process.returncode == 124:
        said = f"not done after {LIMIT} seconds"
    seconds, cpu = round(time.monotonic() - started, 1), round(_cpu(usage), 1)
    return Outcome(name, peer.source, peer.covers, passed, said, peer.fault, seconds, cpu)


def _cpu(usage: resource.struct_rusage) -> float:
    """User and system time."""
    return usage.ru_utime + usage.ru_stime


def commit(folder: Path) -> str:
    """The commit of a clone, shortened; empty for another folder."""
    done = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def provenance(folder: Path, policy: str, schedule: str) -> dict[str, str]:
    """Which versions ran, and when."""
    found = {d.metadata["Name"]: d.version for d in distributions(path=[str(folder / "site")])}
    facts = {
        "date": datetime.date.today().isoformat(),
        "policy": policy,
        "schedule": schedule,
        "cutlass_dsl": version("nvidia-cutlass-dsl"),
        NVIDIA: commit(folder / "cutlass"),
        QUACK: found.get("quack-kernels", ""),
    }
    note = folder / "fasite/COMMIT"
    facts[FLASH] = note.read_text().strip() if note.exists() else ""
    return facts


def show(outcome: Outcome) -> None:
    """A line of the table."""
    end = "passed" if outcome.passed else "faulty" if outcome.fault else "FAILED"
    said = f"  {outcome.said[:110]}" if outcome.said else ""
    print(
        f"{outcome.name:24} {outcome.source:16} {outcome.covers:38} {end} {outcome.seconds:6.1f} s "
        f"{outcome.cpu_seconds:6.1f} s CPU{said}", flush=True,
    )  # fmt: skip


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run other people's kernels in the emulator.")
    parser.add_argument("folder", type=Path, help="where the peers' sources are: see the head of this file")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(PEERS)}")
    parser.add_argument("--policy", default="late", help="when operations complete: late, early or random:N")
    parser.add_argument("--schedule", default="order", help="in which order warps run: order or random:N")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at once")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the results as JSON")
    found = parser.parse_args(arguments)
    unknown = [name for name in found.names if name not in PEERS]
    if unknown:
        parser.error(f"no peer is called {', '.join(unknown)}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the peers and print the table."""
    asked = options(arguments)
    folder = asked.folder.resolve()
    env = environment(folder, asked.policy, asked.schedule)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for outcome in pool.map(lambda name: run(name, folder, env), asked.names or PEERS):
            show(outcome)
            outcomes.append(outcome)
    passed = sum(outcome.passed for outcome in outcomes)
    print(f"{passed} of {len(outcomes)} passed, {sum(outcome.cpu_seconds for outcome in outcomes):.0f} s of CPU time")
    unexpected = [outcome.name for outcome in outcomes if outcome.passed == bool(outcome.fault)]
    if asked.write:
        record: dict[str, Any] = {
            "provenance": provenance(folder, asked.policy, asked.schedule),
            "peers": [asdict(outcome) for outcome in outcomes],
        }
        asked.write.write_text(json.dumps(record, indent=1) + "\n")
    for name in unexpected:
        print(f"unexpected: {name}")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main())
