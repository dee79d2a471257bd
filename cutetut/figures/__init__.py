"""Figures with one look. `from cutetut import figures` has what chapters draw; the files have the rest.

`base` has the look, `tiles` who owns a tile, `charts` measured numbers, `spans` bars along time, `attention` the online
softmax, `banks` shared memory, `requests` what a warp asks of global memory, `partitions` how a tile is dealt out,
`slots` a warp's registers, `copies` boxes of tensors and rings of stages, and `stills` what stands in for a widget
where no JavaScript runs.
"""

from cutetut.figures.attention import online_softmax
from cutetut.figures.banks import bank_groups, column_banks
from cutetut.figures.base import Picture
from cutetut.figures.charts import bars, curves, ladder, lines, rows
from cutetut.figures.copies import ring_turns, tensor_box
from cutetut.figures.partitions import derivation, stride_arrows, strips
from cutetut.figures.requests import warp_requests
from cutetut.figures.slots import slot_grids
from cutetut.figures.spans import kind_styles, timeline
from cutetut.figures.tiles import compare_owners, picker_state, thread_colors, thread_elements, tile_owners

__all__ = [
    "Picture",
    "bank_groups",
    "bars",
    "column_banks",
    "compare_owners",
    "curves",
    "derivation",
    "kind_styles",
    "ladder",
    "lines",
    "online_softmax",
    "picker_state",
    "ring_turns",
    "rows",
    "slot_grids",
    "stride_arrows",
    "strips",
    "tensor_box",
    "thread_colors",
    "thread_elements",
    "tile_owners",
    "timeline",
    "warp_requests",
]
