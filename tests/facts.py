"""Where a pretended measurement or recording was made: what `provenance.collect` gives on a Hopper GPU host."""

FACTS = {
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "cuda": "13.0",
    "torch": "2.11.0",
    "cutlass_dsl": "4.8.1",
    "date": "2026-01-02",
}
