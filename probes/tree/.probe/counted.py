"""For ncu, at the long text: pages of 16 as they were, as they are, with one head in a block, and no pages."""
from pathlib import Path

import torch

from cutetut.course import notebooks

now = notebooks.load("24_flash_decode", ("imports", "kernel", "bench"))
before = notebooks.load(Path(__file__).resolve().parent / "24_before.ipynb", ("imports", "kernel", "bench"))
(Q, K, V, lengths), _ = now.tensors(1, 8)
table = torch.randperm(K.shape[2] // 16, device=K.device)
pages = [t.unflatten(2, (-1, 16)).transpose(1, 2).flatten(0, 1).contiguous() for t in (K, V)]
table = table.to(torch.int32).view(1, -1)
for module, paged, plan in (
    (before, True, None), (now, True, None), (now, True, now.choose(4, K.shape[3], 16)), (now, False, None),
):
    given = (Q, *pages, lengths, table) if paged else (Q, K, V, lengths)
    launch, *_ = module.prepared(*given, plan=plan)
    launch()
torch.cuda.synchronize()
