"""The chapters: notebooks as the source of their kernels, executed, recorded, and found stale when they change."""
