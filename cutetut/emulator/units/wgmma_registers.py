"""The registers that WGMMAs share with ordinary instructions: fences, waits, and where the newest values are.

A *fragment* is the registers of one operand: D, or A where it comes from registers.  While WGMMAs add to the same D
again and again, its values stay a matrix; they go to the registers when something else touches these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..checks.async_ordering import AsyncOrdering
from ..checks.ordering import Ordering
from ..errors import IllegalInstruction, InFlight, MissingFence
from ..machine.memory import threads_of
from ..machine.opcodes import Around, Selection, Step, UnitState, Watched, Wrapper, state, wrapper
from ..machine.pending import Operation, Pending
from ..machine.threads import WARPGROUP
from ..numbers.matrix_formats import add_rounded
from ..ptx.constants import constants
from ..ptx.syntax import Immediate, Operand, Register, Vector
from .wgmma_fragments import Fragment, Note, among, compact, joined_notes
from .wgmma_operands import Operands, from_registers, to_registers

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction

NEVER = -1  # no wgmma.fence yet
FENCE = "wgmma.fence (warpgroup.fence) before the first WGMMA and after every other use of its registers"
UNFENCED = "missing-wgmma-fence"
VALUES: dict[str, type] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def registers_of(operand: Operand) -> tuple[str, ...]:
    """The names of D's registers, or of A's where it is a vector and not a descriptor."""
    return tuple(r.name for r in operand.items if isinstance(r, Register)) if isinstance(operand, Vector) else ()


def shape_of(inst: Instruction) -> str:
    """The shape of a WGMMA, such as m64n128k16."""
    return next((part for part in inst.parts if part.startswith("m64")), "")


@dataclass(frozen=True)
class Use:
    """A WGMMA has used a fragment, as "A" or "D", and whether a wgmma.fence came since."""

    operation: Operation
    fenced: bool = False

    @property
    def waited(self) -> bool:
        """Whether the program has waited for it."""
        return self.operation.waited


Uses = dict[tuple[Fragment, str, str], Use]


@state
class Wgmma(UnitState):
    """Operations and groups of each warpgroup, and which registers belong to them."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.rows: dict[str, int] = {}  # register -> row of the table below
        self.fragments: dict[tuple[str, ...], Fragment] = {}
        self.constants: dict[str, int | float] | None = None
        self.operands = Operands(machine)
        for inst in machine.kernel.body:
            if inst.opcode.startswith("wgmma.mma_async"):
                for role, operand in zip("DA", inst.operands, strict=False):
                    names = registers_of(operand)
                    if names and all(name in machine.bank_rows for name in names):
                        self._fragment(names).uses.add((role, shape_of(inst)))
        self._find_overlaps()
        # since wgmma.fence: 0, or 1 + the instruction that wrote the register, or -1 before the first fence
        self.written_by = np.full((len(self.rows), machine.T), NEVER, np.int32)
        self.reset()

    def _fragment(self, names: tuple[str, ...]) -> Fragment:
        if names not in self.fragments:
            rows = [self.rows.setdefault(name, len(self.rows)) for name in names]
            bank = [self.machine.bank_rows[name] for name in names]
            self.fragments[names] = Fragment(names, compact(rows), compact(bank), np.zeros(self.machine.T, np.bool_))
        return self.fragments[names]

    def _find_overlaps(self) -> None:
        holders: dict[str, list[Fragment]] = {}
        for fragment in self.fragments.values():
            for name in fragment.names:
                holders.setdefault(name, []).append(fragment)
        for several in holders.values():
            for one in several:
                one.overlapping += [f for f in several if f is not one and f not in one.overlapping]
        self.holders = holders

    def reset(self) -> None:
        self.written_by[:] = NEVER
        self.open: dict[int, list[Operation]] = {}
        self.groups: dict[int, list[list[Operation]]] = {}
        self.last: dict[int, Operation] = {}
        self.in_flight: dict[Operation, tuple[int, tuple[Fragment, ...]]] = {}
        self.uses: dict[int, Uses] = {}  # of contested fragments: since the last wgmma.fence, or not yet waited for
        for fragment in self.fragments.values():
            fragment.reset()

    def split(self, sel: Selection) -> list[int]:
        """The warpgroups of a selection, each by its first thread."""
        threads = threads_of(sel)
        first = threads[::WARPGROUP]
        if len(threads) % WARPGROUP or (self.machine.in_cta[first] % WARPGROUP).any():
            raise IllegalInstruction(
                "a warpgroup instruction needs four whole warps, the first with a number that is a multiple of 4",
                threads=threads[:1],
            )
        return first.tolist()

    # -- ordinary instructions ----------------------------------------------------------------

    def watch(self, step: Step, inst: Instruction, written: tuple[str, ...], read: tuple[str, ...]) -> Step:
        """An ordinary instruction must not touch a WGMMA's registers in flight, and what it writes needs a fence.

        The ISA asks for the fence after reads too; instructions issue in order, so a WGMMA cannot overtake
        a read, and NVIDIA's dense_gemm_fp8_2xacc.py relies on that.
        """
        if not self.rows:
            return step
        mine = [name for name in (*written, *read) if name in self.rows]
        if not mine or inst.opcode.startswith("wgmma"):
            return step
        results = [name for name in written if name in self.rows]
        return Touching(self, step, inst, mine, results, self._note(inst, results) if results else None)

    def _note(self, inst: Instruction, results: list[str]) -> Note | None:
        """What to note when an instruction has written registers: they need a fence before the next WGMMA.

        Compilers put off the writing of constants, which `accumulators.fill(0)` asks for before the fence, until
        after it: constants, and copies of registers that need no fence, change nothing.
        """
        source = inst.operands[1] if inst.parts[0] == "mov" and len(inst.operands) > 1 else None
        if isinstance(source, Immediate):
            return None
        if isinstance(source, Register) and source.name not in self.rows and source.name in self._constants():
            return None
        copied = self.rows.get(source.name) if isinstance(source, Register) else None
        changed = dict.fromkeys(f for name in results for f in self.holders[name])
        return Note([self.rows[name] for name in results], 1 + inst.index, copied, tuple(changed))

    def _constants(self) -> dict[str, int | float]:
        if self.constants is None:
            self.constants = constants(self.machine.kernel)
        return self.constants

    def check_access(self, inst: Instruction, names: list[str], sel: Selection, results: list[str]) -> None:
        """An ordinary instruction touches registers: none of them may be in flight.

        To read an element of A, which the WGMMA does not change either, is an error that the user may tolerate.
        """
        threads = threads_of(sel)
        for name in names:
            groups = [g for fragment in self.holders[name] for g in fragment.flying]
            inside = [threads[(threads >= g) & (threads < g + WARPGROUP)][:1] for g in groups]
            for thread, group in sorted((int(t[0]), g) for t, g in zip(inside, groups, strict=True) if len(t)):
                operations = self._holding(name, group)
                is_result = any(name in registers_of(op.inst.operands[0]) for op in operations)
                verb = "written" if name in results else "read"
                error = self._still_busy(name, operations[0], group, thread, f"is {verb}")
                if verb == "written" or is_result or not self.machine.scheduler.tolerates("fragment", error, inst):
                    raise error

    def _holding(self, name: str, group: int) -> list[Operation]:
        """A warpgroup's WGMMAs under way that own a register, the oldest first."""
        flying = self.in_flight.items()
        return [op for op, (g, held) in flying if g == group and any(name in f.names for f in held)]

    def _still_busy(self, name: str, op: Operation, group: int, thread: int, verb: str) -> InFlight:
        open_groups = len(self.groups.get(group, []))
        is_result = name in registers_of(op.inst.operands[0])
        role, also = ("accumulators are", "") if is_result else ("A fragment is", ", as a part of its A fragment")
        if op in self.open.get(group, []):
            hint = "warpgroup.commit_group, then wait_group: this WGMMA is in no group yet, so no wait includes it"
        else:
            hint = (f"warpgroup.wait_group(0) before the {role} used; {open_groups} committed groups of this "
                    "warpgroup are still under way")  # fmt: skip
        error = InFlight(
            f"register {name} {verb} while {op.what} is still under way and owns it{also}", threads=np.array([thread]),
            hint=hint,
        )  # fmt: skip
        self.machine.scheduler.note(error, op.inst, op.thread, "the WGMMA was issued here")
        self.machine.unit(Ordering).reports.uncommitted(error, op)
        return error

    # -- a WGMMA starts ------------------------------------------------------------------------

    def check_fenced(self, fragment: Fragment, group: int) -> None:
        """A WGMMA starts: its registers have not been written since the last wgmma.fence."""
        if fragment.fenced.get(group) == fragment.writes:
            return
        written_by = self.written_by[fragment.rows, group : group + WARPGROUP]
        if not written_by.any():
            fragment.fenced[group] = fragment.writes
            return
        writer = int(written_by[written_by != 0][0])
        if writer == NEVER:
            raise MissingFence(
                "a WGMMA without any wgmma.fence before it: its registers may still be on their way",
                threads=np.array([group]), hint=FENCE, kind=UNFENCED,
            )  # fmt: skip
        thread = group + int(np.flatnonzero((written_by == writer).any(axis=0))[0])
        error = MissingFence(
            "registers of this WGMMA were written since the last wgmma.fence", threads=np.array([thread]), hint=FENCE,
            kind=UNFENCED,
        )  # fmt: skip
        self.machine.scheduler.note(error, self.machine.kernel.body[writer - 1], thread, "they were written here")
        raise error

    def check_uses(self, fragment: Fragment, role: str, shape: str, group: int) -> None:
        """A WGMMA starts: other WGMMAs that used some of its registers are in order with it (section 9.7.15.7.1).

        WGMMAs of one shape may add to the same registers one after the other; all else needs a fence in between,
        and what changes from D to A or back a wait too.
        """
        for (other, was, before), use in self.uses.get(group, {}).items():
            if other is not fragment and other not in fragment.overlapping:
                continue
            if role == was and (role == "A" or shape == before):
                continue
            name = next(n for n in fragment.names if n in other.names)
            if role != was and not use.waited:
                raise self._used_in_flight(name, role, use.operation, group)
            if not use.fenced:
                raise self._not_fenced(name, role, use.operation, group)

    def _used_in_flight(self, name: str, role: str, op: Operation, group: int) -> InFlight:
        use = "an element of A" if role == "A" else "an accumulator"
        error = InFlight(
            f"register {name} is used as {use} by this WGMMA while {op.what} is still under way and owns it",
            threads=np.array([group]),
            hint="warpgroup.wait_group(0) between the two WGMMAs: only WGMMAs of one shape may add to the same "
                 "accumulators without a wait",
        )  # fmt: skip
        self.machine.scheduler.note(error, op.inst, op.thread, "the WGMMA was issued here")
        return error

    def _not_fenced(self, name: str, role: str, op: Operation, group: int) -> MissingFence:
        use = "an element of A" if role == "A" else "an accumulator"
        error = MissingFence(
            f"register {name} is used as {use} by this WGMMA and was used by {op.what} before, with no wgmma.fence in "
            "between",
            threads=np.array([group]), kind=UNFENCED,
            hint="wgmma.fence (warpgroup.fence) between WGMMAs of different shapes that share registers: only those "
                 "of one shape are in order without it",
        )  # fmt: skip
        self.machine.scheduler.note(error, op.inst, op.thread, "the other WGMMA was issued here")
        return error

    def issue(self, operation: Operation, d: Fragment, a: Fragment | None) -> None:
        """Start a WGMMA of one warpgroup; it follows the warpgroup's previous one."""
        group = operation.thread
        previous = self.last.get(group)
        operation.after = previous if previous is not None and not previous.done else None
        self.last[group] = operation
        self.open.setdefault(group, []).append(operation)
        held = (d,) if a is None else (d, a)
        for role, fragment in zip("DA", held, strict=False):
            fragment.flying[group] = fragment.flying.get(group, 0) + 1
            fragment.busy[group : group + WARPGROUP] = True
            if fragment.contested:
                self.uses.setdefault(group, {})[fragment, role, shape_of(operation.inst)] = Use(operation)
        self.in_flight[operation] = group, held
        self.machine.pending.issue(operation)

    def finished(self, operation: Operation) -> None:
        """Registers are free again unless a later WGMMA of the chain holds them."""
        group, held = self.in_flight.pop(operation)
        for fragment in held:
            fragment.flying[group] -= 1
            if not fragment.flying[group]:
                del fragment.flying[group]
                fragment.busy[group : group + WARPGROUP] = False

    def fence(self, sel: Selection) -> None:
        """wgmma.fence: what has been written is in order before the WGMMAs that follow."""
        self.written_by[:, sel] = 0
        if self.uses:
            for group in self.split(sel):
                self.uses[group] = {
                    key: Use(use.operation, True) for key, use in self.uses.get(group, {}).items() if not use.waited
                }

    def wait(self, group: int, keep: int, inst: Instruction) -> None:
        """wgmma.wait_group: all but the last `keep` groups have completed."""
        groups = self.groups.get(group, [])
        ready, self.groups[group] = groups[: max(0, len(groups) - keep)], groups[max(0, len(groups) - keep) :]
        Pending.passed(inst, self.open.get(group, []), (op for g in self.groups[group] for op in g))
        operations = [op for g in ready for op in g]
        for operation in operations:
            self.machine.pending.complete(operation)
            operation.waited = True
        if operations:
            last = max(operation.time for operation in operations)
            self.machine.unit(AsyncOrdering).waited(slice(group, group + WARPGROUP), self.agent(group), last)

    def agent(self, group: int) -> int:
        """The column in the clocks of the WGMMAs of the warpgroup whose first thread this is."""
        return self.machine.unit(AsyncOrdering).agent("wgmma", group, group)

    # -- values of D ---------------------------------------------------------------------------

    def accumulate(
        self, fragment: Fragment, group: int, d: str, product: np.ndarray, keep: bool, saturate: bool
    ) -> None:
        """D = product + D, rounded once to D's type; the hardware leaves order and rounding open (section 9.7.15.5).

        Floating-point D is held as float64, which has all its values.
        """
        mine = slice(group, group + WARPGROUP)
        for other in fragment.overlapping:
            self.flush(other, mine)
        kind, old = fragment.matrix.get(group, ("", np.zeros(0)))
        if not keep:
            old = np.zeros(1)
        elif kind != d or old.shape != product.shape:
            self.flush(fragment, mine)
            old = self._from_registers(fragment, group, d, product.shape[1])
        if d == "s32":
            total = add_rounded(product, old, d, saturate).view(np.int32)
            fragment.matrix[group] = d, total
            return
        np.add(product, old, out=product)
        np.copyto(product, product.astype(VALUES[d]))
        fragment.matrix[group] = d, product

    def _from_registers(self, fragment: Fragment, group: int, d: str, n: int) -> np.ndarray:
        raw = self.machine.bank[fragment.bank, group : group + WARPGROUP]  # (registers, threads)
        halves: np.ndarray = np.ascontiguousarray(raw.T).view(np.uint16).T  # the even value in the low half
        mine: np.ndarray = np.ascontiguousarray(halves if d == "f16" else raw).view(VALUES[d])
        values = mine.ravel().take(from_registers(n), mode="clip")
        return values if d == "s32" else values.astype(np.float64)

    def flush(self, fragment: Fragment, sel: Selection) -> None:
        """Something other than a WGMMA touches a fragment: its newest values go to the registers."""
        for group in among(fragment.matrix, sel):
            d, matrix = fragment.matrix.pop(group)
            rounded: np.ndarray = matrix.astype(VALUES[d], copy=False)
            values = rounded.ravel().take(to_registers(matrix.shape[1]), mode="clip")
            bits = np.ascontiguousarray(values.T).view(np.uint32).T if d == "f16" else values.view(np.uint32)
            self.machine.bank[fragment.bank, group : group + WARPGROUP] = bits


class Touching(Watched):
    """An ordinary instruction that touches registers of WGMMAs."""

    def __init__(
        self, wgmma: Wgmma, step: Step, inst: Instruction, names: list[str], results: list[str], note: Note | None
    ) -> None:
        super().__init__(step, for_others=note is None)
        self.wgmma, self.inst, self.names, self.results, self.note = wgmma, inst, names, results, note
        self.fragments = list(dict.fromkeys(f for name in names for f in wgmma.holders[name]))

    def __call__(self, sel: Selection) -> None:
        for fragment in self.fragments:
            if fragment.flying and fragment.busy[sel].any():
                self.wgmma.check_access(self.inst, self.names, sel, self.results)
            if fragment.matrix:
                self.wgmma.flush(fragment, sel)
        self.step(sel)
        if self.note is not None:
            self.note.write(self.wgmma.written_by, sel)

    def together(self, several: Sequence[Watched]) -> Around:
        """Nothing in between issues or completes a WGMMA, so one look at all the registers does."""
        mine = [one for one in several if isinstance(one, Touching)]
        fragments = list(dict.fromkeys(f for one in mine for f in one.fragments))
        notes, wgmma = joined_notes([one.note for one in mine if one.note is not None]), self.wgmma

        def before(sel: Selection) -> bool:
            if any(fragment.flying and fragment.busy[sel].any() for fragment in fragments):
                return False
            for fragment in fragments:
                if fragment.matrix:
                    wgmma.flush(fragment, sel)
            return True

        def after(sel: Selection) -> None:
            for note in notes:
                note.write(wgmma.written_by, sel)

        return Around(before, after)


@wrapper
def watching(machine: Machine) -> Wrapper:
    """Every ordinary instruction that touches a WGMMA's registers is watched."""
    return machine.unit(Wgmma).watch
