"""What to look at, for each way in which two accesses are not in order."""

from __future__ import annotations

BOTH_PASS = "a barrier that both warps pass between the two accesses: without one either may come first"
FLAG = (
    "a flag between the two: st.release (or a fence, then the store) after the first access, ld.acquire (or a load, "
    "then a fence) before the second, both with a scope that includes the other thread; or an atomic operation"
)
LANES = "cute.arch.sync_warp() between the two: lanes of one warp may run one after the other"
MATES = "cute.arch.sync_warp() before this use: of its warp only lane {} has waited, and learned for itself only"
COMMIT = (
    "commit_group between the operation and that wait: a wait_group waits for groups, and what is in none yet goes on"
)
COMMIT_BEHIND = (
    "commit_group between the operation behind this one and that wait: only groups count among those that a wait_group "
    "lets go on"
)
REUSED = (
    "the wait until everybody who reads what the store before this one brought has given the place back: the consumers "
    "arrive at an 'empty' mbarrier, and this thread waits for it"
)
READERS = "the reader's wait, then a barrier, or an arrival of the reader that this thread waits for"
READ_ONLY = "an ordinary load, without .nc: the read-only cache is for memory that no CTA writes while the kernel runs"
PREVIOUS = "cute.arch.griddepcontrol_wait() before memory of the kernel before is used"
NARROW = (
    "scope=MemScopeKind.CLUSTER of that mbarrier_arrive, or cute.arch.fence_acq_rel_cluster() before it: with the "
    "scope of the CTA, its default, it tells another CTA only that this one has finished reading"
)
BETWEEN_GPUS = (
    "a flag between the two GPUs: st.release.sys (or fence.acq_rel.sys, then a store) after the first access, "
    "ld.acquire.sys (or a load, then the fence) before the second, flag and fences at the scope of the system; or wait "
    "on the host for the one launch before the other"
)
NARROW_IN_GRID = (
    'scope="gpu", or "cluster" within one, on both sides: an access of scope .cta orders the threads of its own CTA '
    "only, .cluster those of its cluster, and with a thread outside of it the access counts as an ordinary one"
)
NARROW_FOR_GPUS = (
    "scope .sys on both sides: .gpu includes the threads of one GPU only, and between two it makes no access strong"
)
