"""Importing the units fills the opcode table."""

from . import (  # noqa: F401
    alu,
    atomics,
    barriers,
    bulk,
    cluster,
    control,
    cp_async,
    loadstore,
    matrix_moves,
    mbarrier,
    mma,
    remote,
    setmaxnreg,
    tensormap_edit,
    tma,
    warp,
    wgmma,
)
