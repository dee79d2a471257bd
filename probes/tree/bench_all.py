import sys, time
from cutetut.measure import turns
def bench(name, part=""): return ["-m", "cutetut", "bench", name, *(["--part", part] if part else [])]
start = time.time()
parts = ["long", "wide"], ["", "step", "short", "errors", "heads", "windows", "far"]
lists = [bench("21_fa_pingpong", p) for p in parts[0]] + [bench("16_rows")] + [bench("21_fa_pingpong", p) for p in parts[1]]
failed = turns.side_by_side(lists, 9)
print("FAILED", [" ".join(c[3:]) for c in failed], f"{time.time() - start:.0f} s", flush=True)
