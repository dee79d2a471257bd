"""Who runs next: the machine code against numpy, turn by turn, and what the choice promises."""

from __future__ import annotations

import numpy as np
import pytest

from cutetut.emulator.compiled import picking
from cutetut.emulator.compiled.picking import CompiledPicker
from cutetut.emulator.machine.picking import PATIENCE, Picker
from cutetut.emulator.machine.schedule import Schedule
from cutetut.emulator.machine.threads import DONE, PARKED, READY, WAITING, Selection, threads_of
from tests.seeds import seeds

pytestmark = pytest.mark.emulator
WARPS = 12


def chosen_by(picker: Picker, turn: int) -> tuple[int, Selection]:
    found = picker.pick(turn)
    assert found is not None
    return found


def change(rng: np.random.Generator, picker: Picker, chosen: np.ndarray, number: int) -> None:
    """What may become of the threads that have run, and of others: some diverge, sleep, wake or exit."""
    picker.pc[chosen] = (number, number + 1, int(rng.integers(6)))[int(rng.integers(3))]
    some = chosen[rng.random(len(chosen)) < rng.choice([0.0, 0.3])]
    picker.pc[some] = rng.integers(6)
    picker.status[some] = (READY, WAITING, PARKED, DONE)[rng.choice(4, p=[0.7, 0.15, 0.1, 0.05])]
    asleep = np.flatnonzero((picker.status == WAITING) | (picker.status == PARKED))
    picker.status[asleep[rng.random(len(asleep)) < 0.1]] = READY


@pytest.mark.parametrize("seed", seeds(8))
def test_both_choose_the_same(seed: int, at_once: None) -> None:
    both = [kind(32 * WARPS, Schedule("order"), 4) for kind in (Picker, CompiledPicker)]
    asked = 0
    for turn in range(1, 400):
        rngs = [np.random.default_rng((seed, turn)) for _ in both]
        found = [picker.pick(turn) for picker in both]
        reference, compiled = found
        assert (reference is None) == (compiled is None)
        for row in ("pc", "status", "last_run", "warp_turns", "lane_turn"):
            assert (getattr(both[0], row) == getattr(both[1], row)).all()
        if reference is None or compiled is None:
            for picker in both:
                picker.status[picker.status != DONE] = READY
            continue
        asked += 1
        assert reference[0] == compiled[0] and isinstance(reference[1], slice) == isinstance(compiled[1], slice)
        assert threads_of(reference[1]).tolist() == threads_of(compiled[1]).tolist()
        for picker, rng, (number, sel) in zip(both, rngs, (reference, compiled), strict=True):
            change(rng, picker, threads_of(sel), number)
    assert asked > 100 and picking._functions is not None


@pytest.mark.parametrize("kind", [Picker, CompiledPicker])
def test_the_longest_waiting_warp_and_those_beside_it_go_on(kind: type[Picker], at_once: None) -> None:
    picker = kind(32 * 4, Schedule("order"), 4)
    picker.pc[:] = np.repeat([5, 3, 5, 4], 32)
    picker.pc[40] = 9  # a lane that waits for the lowest block of its warp
    picked = [chosen_by(picker, turn) for turn in (1, 2, 3)]
    assert [number for number, _ in picked if number] == [5, 3, 4]
    assert threads_of(picked[0][1]).tolist() == [*range(32), *range(64, 96)]
    assert threads_of(picked[1][1]).tolist() == [t for t in range(32, 64) if t != 40]
    assert picked[2][1] == slice(96, 128)


@pytest.mark.parametrize("kind", [Picker, CompiledPicker])
def test_a_lane_behind_one_that_spins_has_its_turn(kind: type[Picker], at_once: None) -> None:
    picker = kind(32, Schedule("order"), 1)
    picker.pc[:], picker.pc[7] = 1, 2
    numbers = [chosen_by(picker, turn)[0] for turn in range(1, 2 * PATIENCE)]  # the 31 stay where they are
    assert numbers.count(2) == 1 and numbers.index(2) == PATIENCE


@pytest.mark.parametrize("kind", [Picker, CompiledPicker])
def test_nobody_is_ready(kind: type[Picker], at_once: None) -> None:
    picker = kind(64, Schedule("order"), 2)
    picker.status[:32], picker.status[32:] = WAITING, DONE
    assert picker.pick(1) is None and not picker.last_run.any()


def test_what_is_drawn_is_drawn_in_numpy(at_once: None) -> None:
    """A seed means the same choices with and without machine code."""
    both = [kind(32 * WARPS, Schedule("random:3"), 4) for kind in (Picker, CompiledPicker)]
    for turn in range(1, 60):
        reference, compiled = (chosen_by(picker, turn) for picker in both)
        assert reference[0] == compiled[0]
        assert threads_of(reference[1]).tolist() == threads_of(compiled[1]).tolist()
        for picker, (number, sel) in zip(both, (reference, compiled), strict=True):
            picker.pc[threads_of(sel)] = number + 1
