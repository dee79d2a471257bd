"""What the emulated GPU answers when it is asked about itself: an H200, as far as programs ask.

Numbers are those of compute capability 9.0 (CUDA programming guide, "Technical Specifications per
Compute Capability") and of the H200 SXM board.
"""

from __future__ import annotations

from ..machine.residents import (
    BLOCKS_PER_SM,
    SHARED_OPTIN,
    SHARED_PER_SM,
    SHARED_RESERVED,
    SM_COUNT,
    THREADS_PER_BLOCK,
    THREADS_PER_SM,
    WARP,
    blocks_per_sm,
)

NAME = "NVIDIA H200 (emulated by cutetut)"
CAPABILITY = (9, 0)
SHARED_DEFAULT = 48 * 1024
L2_BYTES = 60 << 20
MEMORY_BYTES = 141 * 10**9
CLOCK_KHZ = 1_980_000
MEMORY_CLOCK_KHZ, MEMORY_BUS_BITS = 3_201_000, 6144
SMS_PER_GPC = (18, 18, 18, 18, 18, 16, 16, 10)  # as one H200 answers for clusters of 1, 2, 4 and 8

# by CUdevice_attribute, which cudaDeviceAttr numbers alike
ATTRIBUTES: dict[int, int] = {
    1: THREADS_PER_BLOCK,
    2: 1024,  # MAX_BLOCK_DIM_X
    3: 1024,  # MAX_BLOCK_DIM_Y
    4: 64,  # MAX_BLOCK_DIM_Z
    5: 2**31 - 1,  # MAX_GRID_DIM_X
    6: 65535,  # MAX_GRID_DIM_Y
    7: 65535,  # MAX_GRID_DIM_Z
    8: SHARED_DEFAULT,
    9: 65536,  # TOTAL_CONSTANT_MEMORY
    10: WARP,
    12: 65536,  # MAX_REGISTERS_PER_BLOCK
    13: CLOCK_KHZ,
    16: SM_COUNT,
    17: 0,  # KERNEL_EXEC_TIMEOUT
    18: 0,  # INTEGRATED
    31: 1,  # CONCURRENT_KERNELS
    36: MEMORY_CLOCK_KHZ,
    37: MEMORY_BUS_BITS,
    38: L2_BYTES,
    39: THREADS_PER_SM,
    41: 1,  # UNIFIED_ADDRESSING
    75: CAPABILITY[0],
    76: CAPABILITY[1],
    81: SHARED_PER_SM,
    82: 65536,  # MAX_REGISTERS_PER_MULTIPROCESSOR
    83: 1,  # MANAGED_MEMORY
    95: 1,  # COOPERATIVE_LAUNCH
    97: SHARED_OPTIN,
    106: BLOCKS_PER_SM,
    111: SHARED_RESERVED,
    115: 1,  # MEMORY_POOLS_SUPPORTED
    120: 1,  # CLUSTER_LAUNCH
}


def shared_for(blocks: int) -> int:
    """The bytes of dynamic shared memory that each CTA can have where this many share an SM."""
    return min(SHARED_OPTIN, SHARED_PER_SM // max(blocks, 1) - SHARED_RESERVED)


def active_clusters(size: int, threads: int, shared: int) -> int:
    """Clusters of `size` CTAs that run at once, given what each CTA needs."""
    per_sm = blocks_per_sm(threads, shared)
    return sum(sms * per_sm // size for sms in SMS_PER_GPC) if size > 0 else 0
