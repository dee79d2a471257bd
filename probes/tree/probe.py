"""What other tiles and steps would bring: printed, in no table. Compiles first, then waits for $GO and its turn."""
import fcntl, os, statistics, sys, time
from dataclasses import replace
import torch
from cutetut.course import notebooks
TAGS = ("imports", "kernel", "bench", "helpers")
m = notebooks.load("21_fa_pingpong", TAGS)
fa = m.fa
GPU = torch.cuda.is_available()
PROBES = {  # name: B, S, D, causal, seconds, {label: (step, changes)}
    "d256": (1, 16384, 256, False, 0.4, {"K6b": ("step_turns", {}), "K6a": ("step_overlap", {}), "K6c": ("step_straight", {})}),
    "d64": (1, 16384, 64, False, 0.4, {"K6c": ("step_straight", {}), "96": ("step_straight", {"bN": 96}), "4 stages": ("step_straight", {"stages": 4})}),
    "d96": (4, 4096, 96, False, 0.2, {"112": ("step_straight", {}), "96": ("step_straight", {"bN": 96}), "2x160": ("step_straight", {"bN": 160, "consumers": 2})}),
    "d192": (4, 4096, 192, False, 0.2, {"96": ("step_straight", {}), "96 K6a": ("step_overlap", {}), "80": ("step_straight", {"bN": 80})}),
    "ends": (4, 4096, 128, False, 0.2, {"K6c": ("step_straight", {}), "lengths": ("step_straight", {"lengths": True})}),
    "d256c": (4, 4096, 256, True, 0.2, {"K6b": ("step_turns", {}), "K6c": ("step_straight", {}), "K6a": ("step_overlap", {})}),
}


def seconds(call, launches):
    if not GPU:
        call()
        return 1.0
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    a.record()
    for _ in range(launches):
        call()
    b.record()
    b.synchronize()
    return a.elapsed_time(b) / 1e3 / launches


def main(name):
    B, S, D, causal, window, makers = PROBES[name]
    if not GPU:
        B, S = 1, 300
    Q, K, V, out, LSE = m.operands(B, S, D, None if GPU else 1)
    flops = 4.0 * B * Q.shape[1] * D * S * S * (0.5 if causal else 1)
    sides = {}
    for label, (step, more) in makers.items():
        try:
            ends = {"lengths": torch.full((B,), S, dtype=torch.int32, device=Q.device)} if "lengths" in more else {}
            cfg = replace(m.CONFIGS[D], step=getattr(m, step), **{k: n for k, n in more.items() if k != "lengths"})
            sides[label] = m.prepare(Q, K, V, out, LSE, causal=causal, cfg=cfg, **ends)
        except Exception as error:
            print(name, label, "FAILED", type(error).__name__, str(error)[:200], flush=True)
    libraries = m.vendors(Q, K, V, causal)
    theirs = libraries.get("flash-attn", libraries["cuDNN"])
    while GPU and not os.path.exists(os.environ["GO"]):
        time.sleep(0.05)
    with open(os.environ["GO"] + ".turn", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        begun = time.time()
        wanted = theirs().float()
        for label, launch in sides.items():
            out.fill_(torch.nan)
            launch()
            print(name, label, f"error {((out.float() - wanted).norm() / wanted.norm()).item():.1e}", flush=True)
        sides["library"] = theirs
        once = {label: max(1e-6, seconds(call, 5)) for label, call in sides.items()}
        found, short = ({label: [] for label in sides} for _ in range(2))
        for turn in range(3):
            for label in list(sides)[:: 1 if turn % 2 == 0 else -1]:
                found[label].append(seconds(sides[label], max(1, round(window / once[label]))))
        for turn in range(3):
            for label in list(sides)[:: 1 if turn % 2 == 0 else -1]:
                torch.cuda.synchronize() if GPU else None
                time.sleep(0.06 if GPU else 0)
                short[label].append(seconds(sides[label], 20))
        for label in sides:
            long, cool = (flops / statistics.median(each[label]) / 1e12 for each in (found, short))
            ratios = sorted(b / a for a, b in zip(found[label], found["library"], strict=True))
            print(f"{name:6} {label:10} sustained {long:6.1f} [{ratios[0]:.3f} {ratios[1]:.3f} {ratios[2]:.3f}] of the library, burst {cool:6.1f}", flush=True)
        print(name, f"{time.time() - begun:.1f} s", flush=True)


main(sys.argv[1])
