"""Rival plans for the shapes where chapter 15 loses, beside torch and cuBLASLt: python probe.py PROCESS OUT."""
import fcntl, json, os, statistics, sys, time, traceback
from dataclasses import asdict, replace
import torch
import cutetut
from cutetut.course import notebooks
from cutetut.measure import bench, cublaslt, graphs

TINY = os.environ.get("TINY")
START = time.time()
DEADLINE = START + (1e9 if TINY else 70)
ch = notebooks.load("15_past_cublas", bench.BENCH_TAGS)
BF16, FP16, FP8, FP32 = torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float32


def W(bM, bN, cluster=2, along="M", consumers=2, overlap=True, order="group 8", swap=False):
    return ch.Wide(bM, bN, consumers=consumers, cluster=cluster, along=along, overlap=overlap, order=order, swap=swap)


def ONE(bN, along="N", cluster=2):
    return W(64, bN, cluster, along, 1)


def X(bM, bN, cluster=2, along="N", overlap=False):
    return W(bM, bN, cluster, along, 2, overlap, swap=True)


def S(bW, bT, parts, per_sm=1):
    return ch.Split(bW, bT, parts, per_sm)



ch.AT_ONCE.update({3: 42, 5: 24, 6: 20, 7: 16})
STAGGER = [("tAgA[None, kt], tAsA", "tAgA[None, (kt + 8 * m) % k_tiles], tAsA"), ("tBgB[None, kt], tBsB", "tBgB[None, (kt + 8 * m) % k_tiles], tBsB")]
FIRST = [("tAgA[None, kt], tAsA[None, stage], tma_bar_ptr=full + stage)", "tAgA[None, kt], tAsA[None, stage], tma_bar_ptr=full + stage, cache_policy=cutlass.Int64(0x12F0000000000000))")]
MODS = {}


def stagger(*plan):
    return STAGGER, S(*plan), "stagger"


def first(*plan):
    return FIRST, S(*plan), "first"


def N(bM, bN, cluster=2, overlap=False, consumers=2):
    return W(bM, bN, cluster, "N", consumers, overlap)


def all_of(shapes, plans):
    return [(shape, plans) for shape in shapes]


ROWS16 = [(16, 28672, 4096), (1, 6144, 4096), (16, 4096, 14336), (16, 4096, 4096), (8, 12288, 5120), (4, 5120, 5120), (16, 10240, 8192)]
ROWS64 = [(64, 10240, 8192), (64, 4096, 4096), (64, 28672, 4096), (48, 7168, 7168), (64, 5120, 13824)]
ROWS128 = [(128, 8192, 28672), (128, 4096, 4096), (100, 12288, 4096), (128, 28672, 4096)]
SHORT = [(512, 4096, 4096), (2048, 2048, 768), (2048, 2048, 2048), (256, 4096, 4096), (640, 2560, 2560), (1536, 1536, 1536), (256, 14336, 4096), (512, 512, 16384)]
RAGGED = [(777, 5000, 1992), (1234, 4320, 2008), (3000, 3000, 3000), (4088, 4104, 4072), (5000, 5000, 5000)]
MIDDLE = [(2304, 4608, 1152), (4096, 1536, 2048), (1024, 6144, 4096), (2560, 8960, 2560), (4096, 4096, 1024), (3072, 3072, 8192)]
LARGE = [(8192, 8192, 8192), (4096, 14336, 4096), (16384, 4096, 4096), (5120, 5120, 5120), (6000, 4096, 4096)]
JOBS = [
    all_of(ROWS16, [S(64, 16, 1), S(64, 16, 1, 2), S(64, 16, 1, 3), S(64, 16, 1, 4), S(64, 16, 2), S(64, 16, 2, 2), S(64, 16, 3, 2)]),
    all_of(ROWS16, [S(64, 16, 4), S(64, 16, 4, 2), S(128, 16, 1), S(128, 16, 1, 2), S(128, 16, 2), S(128, 16, 2, 2), S(128, 16, 3, 1)]),
    all_of(ROWS16, [stagger(64, 16, 1, 2), first(64, 16, 1, 2), stagger(64, 16, 2), first(64, 16, 2)]),
    all_of(ROWS64, [S(64, 64, 1), S(64, 64, 1, 2), S(64, 64, 2), S(64, 64, 2, 2), S(64, 64, 3, 2), S(64, 64, 3, 1)]),
    all_of(ROWS64, [S(128, 64, 1), S(128, 64, 1, 2), S(128, 64, 2), S(128, 64, 3), S(128, 64, 3, 2), S(128, 64, 5), S(128, 64, 2, 2)]),
    all_of(ROWS64, [ONE(80), ONE(64), ONE(32), ONE(112), ONE(224)]),
    all_of(ROWS64, [stagger(64, 64, 2, 2), first(64, 64, 2, 2), stagger(128, 64, 1), first(128, 64, 1), stagger(64, 64, 1)]),
    all_of(ROWS128, [W(128, 64, 2, "N"), ONE(192, "M"), W(128, 96, 2, "N"), W(128, 224, 2, "N")]),
    all_of(ROWS128, [S(128, 128, 1), S(128, 128, 2), S(64, 128, 1), S(64, 128, 1, 2), S(64, 128, 2), S(128, 128, 1, 2), S(64, 128, 2, 2), S(128, 128, 3)]),
    all_of([(32, 14336, 4096, FP8), (16, 28672, 4096, FP8), (24, 8192, 8192, FP8)], [S(128, 32, 1), S(128, 32, 1, 2), S(64, 32, 1, 2), S(64, 32, 2), S(128, 32, 2), S(64, 32, 1, 3)]),
    all_of(SHORT, [S(128, 128, 1), S(128, 128, 1, 2), S(64, 256, 1, 2), S(128, 256, 1), S(64, 128, 1, 2), S(128, 128, 2)]),
    all_of(SHORT, [W(128, 128), W(128, 256), S(128, 192, 1), S(64, 192, 1, 2), S(64, 256, 1), S(128, 96, 1, 2), S(128, 128, 4)]),
    all_of(RAGGED, [X(256, 144), X(128, 208, 2, "M", True), X(256, 160), X(128, 224, 4, "M", True), X(256, 192), X(128, 176, 2, "M", True)]),
    all_of(RAGGED, [N(256, 160), N(256, 192), N(256, 192, 4), W(128, 224), W(128, 256), N(256, 128, 2, True)]),
    all_of(RAGGED, [W(256, 160, overlap=False), W(128, 160), W(256, 192, overlap=False), N(128, 256, 2, True), N(192, 192, 2, False, 3), N(128, 224, 2, True)]),
    all_of(MIDDLE, [N(256, 192), W(256, 192, overlap=False), W(128, 192), W(128, 256), N(256, 160)]),
    all_of(MIDDLE, [W(128, 224), N(256, 128, 2, True), W(128, 160), W(256, 160, overlap=False), ch.THREE, S(128, 192, 1)]),
    all_of(LARGE, [W(128, 256), N(256, 128, 2, True), N(256, 192), W(128, 224), N(256, 160), ch.THREE]),
]  # fmt: skip


def names_of(launch):
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        launch()
        torch.cuda.synchronize()
    return sorted({e.key for e in found.key_averages()})[:4]


def type_of(mod, plan):
    return mod.Wide if isinstance(plan, ch.Wide) else mod.Split


class Fake:
    def seconds(self, f, n):
        f()
        return 1e-4 * n

    def rest(self, s): ...


def one(shape, plans, lock):
    M, N, K, dtype, out = ch.typed(*shape)
    if TINY:
        M, N, K = max(1, M // 16), N // 64 * 8 + 8, K // 64 * 8
    A, Bs, C, D = ch.operands(M, N, K, dtype, out)
    ways = {}
    for plan in [*plans, ch.choose(*ch.typed(*shape))][: len(plans) + 1]:
        if time.time() > DEADLINE:
            break
        lines, plan, tag = plan if isinstance(plan, tuple) else ([], plan, "")
        if isinstance(plan, ch.Wide):
            plan = replace(plan, overlap=plan.overlap and out != FP32)
        label = ch.told(plan) + (" " + tag if tag else "") + ("" if isinstance(plan, ch.Split) else " " + plan.order)
        if label in ways:
            continue
        try:
            if tag and tag not in MODS:
                MODS[tag] = notebooks.changed("15_past_cublas", lines)
            mod = MODS[tag] if tag else ch
            launches = [mod.prepare(A, B, C, type_of(mod, plan)(**asdict(plan)) if lines else plan) for B in Bs]
            ways[label] = (launches, ch.cost(*ch.typed(*shape)[:3], plan, ch.BYTES[dtype])["seconds"] * 1e6)
        except Exception as e:
            print("cannot", shape, label, type(e).__name__, str(e)[:300], flush=True)
    if time.time() > START + 92 and not TINY:
        raise SystemExit("too late")
    fcntl.flock(lock, fcntl.LOCK_EX)
    began = time.time()
    timer = Fake() if TINY else bench.CudaTimer()
    theirs = [ch.torch_product(A, B, D) for B in Bs]
    theirs[0]()
    timer.seconds(theirs[0], 3)
    short = len(Bs) > 1 or timer.seconds(theirs[0], 10) / 10 < graphs.SHORT
    if TINY:
        short = False
    repeats = max(1, 20 // len(Bs)) if short else 1
    merge = (lambda ls: graphs.captured(ls * repeats)) if short else (lambda ls: ls[0])
    count = len(Bs) * repeats if short else 1
    sides = {"torch": merge(theirs)}
    found = {"shape": [M, N, K], "types": [str(dtype), str(out)], "rows": [], "names": {}}
    theirs[0]()
    for label, (launches, _) in ways.items():
        C.fill_(torch.nan)
        launches[0]()
        error = float((C.float() - D.float()).norm() / D.float().norm())
        if not error < (2e-2 if dtype == FP8 else 5e-3):
            print("WRONG", shape, label, error, flush=True)
            continue
        sides[label] = merge(launches)
    times, long = {s: [] for s in sides}, {s: [] for s in sides}
    burst = {s: 40 if not short else 8 for s in sides}
    window = {}
    for s, f in sides.items():
        once = timer.seconds(f, 2) / 2
        burst[s] = max(2, min(20, int(6e-3 / once)))
        window[s] = max(2, int(0.04 / once))
    for turn in range(4 if short else 3):
        for s, f in list(sides.items())[:: 1 if turn % 2 == 0 else -1]:
            timer.rest(0.001 if short else 0.01)
            times[s].append(timer.seconds(f, burst[s]) / burst[s] / count * 1e6)
    heavy = 2.0 * M * N * K > 1e11
    for turn in range(2 if heavy and not TINY else 0):
        for s, f in list(sides.items())[:: 1 if turn % 2 == 0 else -1]:
            long[s].append(timer.seconds(f, window[s]) / window[s] / count * 1e6)
    for s in sides:
        us = sorted(times[s])
        row = {"plan": s, "us": [round(x, 3) for x in (statistics.median(us), us[0], us[-1])], "model": round(ways[s][1], 1) if s in ways else None}
        if long[s]:
            row["sustained"] = [round(x, 2) for x in sorted(long[s])]
        found["rows"].append(row)
    if not TINY:
        torch.cuda.synchronize()
    fcntl.flock(lock, fcntl.LOCK_UN)
    found["held"] = time.time() - began
    return found


def main(i, out):
    lock = open(os.path.join(out, "gpu.lock"), "a")
    results = []
    if i == 0 and not TINY:
        try:
            print("at once", {n: ch.clusters_at_once(n) for n in (1, 2, 3, 4, 5, 6, 7, 8)}, flush=True)
        except Exception as e:
            print("at once", e, flush=True)
    for shape, plans in JOBS[i]:
        try:
            results.append(one(shape, plans, lock))
        except Exception:
            traceback.print_exc()
            fcntl.flock(lock, fcntl.LOCK_UN)
        with open(os.path.join(out, f"probe_{i}.json"), "w") as f:
            json.dump(results, f)
        for r in results[-1:]:
            best = min(x["us"][0] for x in r["rows"] if x["plan"] in ("torch", "cuBLASLt"))
            print(*r["shape"], "held %.1f" % r["held"], flush=True)
            for x in r["rows"]:
                print("   %-50s %9.2f [%9.2f %9.2f] %.3f  model %s  %s" % (x["plan"], *x["us"], best / x["us"][0], x["model"], x.get("sustained", "")), flush=True)
            print("   ", r["names"], flush=True)


main(int(sys.argv[1]), sys.argv[2])
