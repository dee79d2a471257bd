"""probe.py I N OUT: process I of N times its kernels at all shapes, beside this chapter's kernel without pages.

Each process has its own kernels and tensors. All prepare side by side; then one has the GPU at a time. Right means as
the kernel without pages, which the chapter's benchmark compares with float64. TINY=1 in the environment: the emulator,
small shapes, no clock.
"""
import fcntl
import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

START, TINY = time.time(), bool(os.environ.get("TINY"))
import torch

import cutetut
from cutetut.course import notebooks

TAGS = "imports", "kernel", "bench"
HERE = Path(__file__).resolve().parent
NAME = "24_flash_decode"
me, processes, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
now = notebooks.load(NAME, TAGS)
SHAPES = {(1, 8): 131072, (16, 8): 8192, (64, 8): 4096, (8, 16): 32768}
if TINY:
    SHAPES, now.HEAD = {(1, 2): 512, (2, 4): 256}, 64
now.SHAPES, D = SHAPES, now.HEAD

UNROLLED = [
    ("range(parts, unroll=16):\n            top", "range(parts, unroll=8):\n            top"),
    ("range(parts, unroll=16):\n            weight", "range(parts, unroll=8):\n            weight"),
]
PREFETCHED = [("    # Tile: this warp's blocks of keys, and where they lie\n", """    if w == 0:
        for atom, _ in (k, v):
            cpasync.prefetch_descriptor(atom)
""")]
CHANGES = {"each turn": now.VARIANTS["each turn"], "merge by 8": UNROLLED, "descriptors prefetched": PREFETCHED}


def before():
    return notebooks.load(HERE / "24_before.ipynb", TAGS)


def changed(name):
    return lambda: notebooks.changed(NAME, CHANGES[name])


def chapter():
    return now


def pairs(heads, **more):
    return now.replace(now.choose(4, D, 16, heads), **more)


one_head = partial(now.choose, 4, D, 16)
wide = dict(keys=32, warps=2)  # blocks of 32 keys of two heads: 32 KiB, for two warps
GROUPS = [  # (name, keys of a page, pages in order of the keys, module, plan by the heads of keys)
    [("none, before", 0, 0, before, None), ("none, merge by 8", 0, 0, changed("merge by 8"), None),
     ("none, descriptors prefetched", 0, 0, changed("descriptors prefetched"), None)],
    [("16, before", 16, 0, before, None), ("16", 16, 0, chapter, None)],
    [("16, one head", 16, 0, chapter, lambda heads: one_head()),
     ("16, each turn", 16, 0, changed("each turn"), None),
     ("16, one head, each turn", 16, 0, changed("each turn"), lambda heads: one_head())],
    [("16, merge by 8", 16, 0, changed("merge by 8"), None), ("16, wide", 16, 0, chapter, partial(pairs, **wide)),
     ("16, descriptors prefetched", 16, 0, changed("descriptors prefetched"), None)],
    [("16, sorted", 16, 1, chapter, None), ("16, sorted, one head", 16, 1, chapter, lambda heads: one_head())],
    [("32, before", 32, 0, before, None), ("32", 32, 0, chapter, None),
     ("32, wide", 32, 0, chapter, partial(pairs, page=32, **wide))],
    [("64, before", 64, 0, before, None), ("64", 64, 0, chapter, None), ("64, sorted", 64, 1, chapter, None)],
    [("256, before", 256, 0, before, None), ("256", 256, 0, chapter, None), ("256, sorted", 256, 1, chapter, None)],
]


def say(*words):
    print(f"{time.time() - START:5.1f}", *words, flush=True)


def pages_of(K, V, page, in_order):
    """Pages of K and V (B, H, S, D), and the table."""
    B, H, S, D = K.shape
    count = B * S // page
    order = torch.arange(count) if in_order else torch.randperm(count, generator=torch.Generator().manual_seed(1))
    content = torch.argsort(order).to(K.device)  # of each page
    pages = [t.unflatten(2, (-1, page)).transpose(1, 2).flatten(0, 1)[content].contiguous() for t in (K, V)]
    return *pages, order.to(torch.int32).view(B, -1).to(K.device)


def seconds(launch, count):
    if TINY:
        launch()
        return 1.0
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


work = {}
for shape in SHAPES:
    given, said = now.tensors(*shape)
    launch, *found = now.prepared(*given)
    launch()
    expected, sides, paged = [t.double().clone() for t in found], {"none": launch}, {}
    for name, page, in_order, module, plan in GROUPS[me]:
        try:
            module, (K, V, table) = module(), (*given[1:3], None)
            if page:
                if (page, in_order) not in paged:
                    paged[page, in_order] = pages_of(K, V, page, in_order)
                K, V, table = paged[page, in_order]
            launch, *found = module.prepared(given[0], K, V, given[3], table, plan=plan and plan(shape[1]))
            launch()
            try:
                now.compare(found, expected, f"{shape} {name}")
            except Exception as error:
                off = [float((a.double() - b).abs().max()) for a, b in zip(found, expected, strict=True)]
                say(shape, name, "DIFFERS", str(error)[:300], off)
            for key, compiled in module._compiled.items():
                info = now.inspect(compiled)
                say(name, key[2], info.registers, "registers,", info.spills, "spilled,", info.shared_bytes, "B")
            sides[name] = launch
        except Exception as error:
            say(shape, name, "FAILED", type(error).__name__, str(error)[:400])
    if me == 0 and not TINY:
        sides |= {name: partial(now.library, backend, *given[:3]) for name, backend in now.BACKENDS.items()}
    work[shape] = sides, said
(Path(out) / f"prepared_{me}").touch()
say("prepared")
while time.time() - START < 32 and len(list(Path(out).glob("prepared_*"))) < processes:
    time.sleep(0.05)
rows = []
with open(f"{out}/gpu.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    for shape, (sides, said) in work.items():
        times, count = {name: [] for name in sides}, 15 if shape == (8, 16) else 40
        for launch in sides.values():
            seconds(launch, 10)
        for turn in range(4):
            for name, launch in list(sides.items())[:: 1 if turn % 2 else -1]:
                times[name].append(seconds(launch, count) / count)
        for name, each in times.items():
            speed = said["flops"] / statistics.median(each) / 1e12
            ratios = sorted(a / b for a, b in zip(times["none"], each, strict=True))
            rows.append([*shape, name, speed, ratios])
            print(f"ROW {shape!s:8} {name:30} {speed:.3f} TB/s, {statistics.median(ratios):.4f} of none "
                  f"({ratios[0]:.4f} to {ratios[-1]:.4f})", flush=True)
Path(out, f"rows_{me}.json").write_text(json.dumps(rows))
say("done")
