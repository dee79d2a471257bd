"""Threads: in which groups the hardware runs them, and what each is doing."""

WARP = 32
WARPGROUP = 128

READY = 0  # may run
WAITING = 1  # asleep in a unit, which will wake it; its program counter is behind the instruction
PARKED = 2  # in front of an instruction that its warp or warpgroup executes together
DONE = 3  # has exited
