"""Loops in which a thread only waits, found in the text of a kernel."""

from __future__ import annotations

from .effects import Effect, effect_of
from .syntax import Function, Immediate, Instruction, Negated, Operand, Pair, Register, Special, Symbol

SHORT_LOOP = 64  # instructions; a loop that only waits has fewer


def waiting_loops(kernel: Function, elsewhere: bool = False) -> list[range]:
    """The instructions of short loops around an atomic or a load of what others may change.

    elsewhere: of global memory, which threads of other CTAs change too; otherwise only loops that do not count
    how often they look, nor ask for the time: those end by themselves.
    """
    if (known := kernel.waits.get(elsewhere)) is not None:
        return known
    found = kernel.waits[elsewhere] = []
    for end, branch in enumerate(kernel.body):
        target = branch.operands[0] if branch.parts[0] == "bra" else None
        if isinstance(target, Symbol):
            start = kernel.labels[target.name]
            body = kernel.body[start:end]
            if end - SHORT_LOOP < start and any(looks_again(inst, elsewhere) for inst in body):
                if elsewhere or not any(map(_ends_it, body)):
                    found.append(range(start, end + 1))
    return found


def looks_again(inst: Instruction, elsewhere: bool) -> bool:
    """Whether an instruction, in a loop, looks at what others may change; elsewhere: in global memory."""
    effect = effect_of(inst)
    if effect is Effect.ASKS:
        return not elsewhere
    strong = {"acquire", "relaxed", "volatile", "mmio"} & set(inst.parts[1:])
    shared = any(part.startswith("shared") for part in inst.parts)
    looks = effect is Effect.UPDATES or (effect is Effect.LOADS and bool(strong))
    return looks and not (elsewhere and shared)


def _ends_it(inst: Instruction) -> bool:
    """Whether an instruction changes a register by its own value, as a counter is, or reads a clock."""
    first, *others = inst.operands or (None,)
    return isinstance(first, Register) and (first in others or any(isinstance(o, Special) for o in others))


# -- waits that are repeated until they succeed ---------------------------------------------------

_Known = dict[Register, int]  # registers whose value follows from the answer "false"


def is_repeated(kernel: Function, wait: Instruction) -> bool:
    """Whether a false answer leads back to this test_wait or try_wait, with nothing done in between.

    A thread in such a loop only waits.  Any other goes on with the answer: a peek.
    """
    answer = wait.operands[0]
    return _comes_back(kernel, wait.index, {answer: 0} if isinstance(answer, Register) else {})


def _comes_back(kernel: Function, wait: int, known: _Known) -> bool:
    """Whether a path leads from behind an instruction to it again over nothing but arithmetic and branches."""
    work = [(wait + 1, known)]
    seen: set[tuple[int, frozenset[tuple[Register, int]]]] = set()
    while work:
        at, known = work.pop()
        if at == wait:
            return True
        if at >= len(kernel.body) or len(seen) > SHORT_LOOP or (state := (at, frozenset(known.items()))) in seen:
            continue
        seen.add(state)
        inst = kernel.body[at]
        executed = None if inst.guard is None else known.get(inst.guard)
        if executed is not None:
            executed = executed ^ inst.guard_negated
        if inst.parts[0] == "bra":
            if executed != 0 or inst.guard is None:
                work.append((kernel.labels[inst.operands[0].name], known))  # type: ignore[union-attr]
            if inst.guard is not None and executed != 1:
                work.append((at + 1, known))
        elif executed == 0:
            work.append((at + 1, known))
        elif effect_of(inst) in (Effect.COMPUTES, Effect.QUIET):
            work.append((at + 1, _after(inst, known, inst.guard is None or executed == 1)))
    return False


def _after(inst: Instruction, known: _Known, certain: bool) -> _Known:
    """What is known behind an instruction that writes registers."""
    target, *sources = inst.operands or (None,)
    written = {target.first, target.second} if isinstance(target, Pair) else {target}
    after = {register: value for register, value in known.items() if register not in written}
    value = _value(inst, [_known(operand, known) for operand in sources]) if certain else None
    if value is not None and isinstance(target, Register):
        after[target] = value
    return after


def _known(operand: Operand, known: _Known) -> int | None:
    if isinstance(operand, Immediate):
        return int(operand.value)
    if isinstance(operand, Negated):
        value = known.get(operand.register)
        return None if value is None else 1 - value
    return known.get(operand) if isinstance(operand, Register) else None


def _value(inst: Instruction, operands: list[int | None]) -> int | None:
    """The result of the instructions that compilers put between an answer and the branch on it."""
    base = inst.parts[0]
    if base == "selp" and operands[2] is not None:
        return operands[0] if operands[2] else operands[1]
    if any(operand is None for operand in operands):
        return None
    values = [operand for operand in operands if operand is not None]
    if base in ("mov", "cvt"):
        return values[0]
    if inst.opcode == "not.pred":
        return 1 - values[0]
    if base == "setp" and len(values) == 2 and inst.parts[1] in ("eq", "ne"):
        return int((values[0] == values[1]) == (inst.parts[1] == "eq"))
    if base in ("and", "or", "xor"):
        a, b = values
        return a & b if base == "and" else a | b if base == "or" else a ^ b
    return None
