"""Stamps: who did something to a granule of memory, when, and with which instruction, in one 64-bit number.

A stamp of an ordinary access is positive; the two kinds below are negative, so that one comparison finds all
granules that cannot simply be used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import LaunchError

# from the lowest bit: time, lane, agent (its column in the clocks), instruction
_TIME, _LANE, _AGENT, _INSTRUCTION = 25, 5, 16, 17
_LANE_AT, _AGENT_AT, _INSTRUCTION_AT = _TIME, _TIME + _LANE, _TIME + _LANE + _AGENT
assert _INSTRUCTION_AT + _INSTRUCTION == 63
TIMES, LANES, AGENTS = (1 << _TIME) - 1, (1 << _LANE) - 1, (1 << _AGENT) - 1
UNWRITTEN = -1  # nothing has written it
IN_FLIGHT = -2  # an asynchronous operation is about to
MBARRIER = -3  # it holds an mbarrier
NOTHING = 0  # no access is remembered


def check_limits(instructions: int, agents: int, time: int) -> None:
    """Raise LaunchError where a stamp could not tell instructions, agents or times apart."""
    for count, limit, what in (
        (instructions, 1 << _INSTRUCTION, "instructions"), (agents, AGENTS, "warps and barriers"),
        (time, TIMES, "synchronisations"),
    ):  # fmt: skip
        if count >= limit:
            raise LaunchError(f"{count} {what}: the emulator can follow fewer than {limit} of a kernel")


def of_threads(threads: np.ndarray, times: np.ndarray, inst: int) -> np.ndarray:
    """Stamps of threads' accesses; `times` are those of their warps."""
    return threads << _LANE_AT | times | inst << _INSTRUCTION_AT


def of_agent(agent: int, time: int, inst: int) -> int:
    """The stamp of an asynchronous operation."""
    return agent << _AGENT_AT | time | inst << _INSTRUCTION_AT


def of_agents(agents: np.ndarray, times: np.ndarray, inst: int | np.ndarray) -> np.ndarray:
    """The same for many."""
    return agents << _AGENT_AT | times | inst << _INSTRUCTION_AT


def time_of(stamps: np.ndarray) -> np.ndarray:
    return stamps & TIMES


def agent_of(stamps: np.ndarray) -> np.ndarray:
    return stamps >> _AGENT_AT & AGENTS


def instruction_of(stamps: np.ndarray) -> np.ndarray:
    return stamps >> _INSTRUCTION_AT


def lane_of(stamps: np.ndarray) -> np.ndarray:
    """The lanes of warps' stamps."""
    return stamps >> _LANE_AT & LANES


def without_lane(stamps: np.ndarray) -> np.ndarray:
    """The rest of them: warp, time and instruction."""
    return stamps & ~(LANES << _LANE_AT)


def thread_of(stamps: np.ndarray) -> np.ndarray:
    """The threads of warps' stamps."""
    return stamps >> _LANE_AT & (1 << _LANE + _AGENT) - 1


@dataclass(frozen=True)
class Stamp:
    """One stamp, taken apart."""

    agent: int
    lane: int
    time: int
    inst: int

    @classmethod
    def of(cls, bits: int) -> Stamp:
        return cls(bits >> _AGENT_AT & AGENTS, bits >> _LANE_AT & LANES, bits & TIMES, bits >> _INSTRUCTION_AT)

    @property
    def thread(self) -> int:
        """The thread of a warp's stamp."""
        return self.agent << _LANE | self.lane
