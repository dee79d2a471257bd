"""Which of the memory that a launch can reach it may write: found in the PTX, before anything runs.

What a kernel only reads needs no shadow.  Every register carries the kernel parameters that its value may have been
computed from; a store through an address is a store to what these parameters point to.  The order of instructions is
not looked at, so this may name too much, never too little: an address that was itself loaded from memory may point
anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..findings import role_of
from ..machine.opcodes import registered
from ..ptx.syntax import Address, Function, Group, Instruction, Negated, Operand, Pair, Register, Symbol, Vector

ANYWHERE = ("anywhere", 0)
WHOLE = -1  # the address of a parameter is taken, so any part of it may be meant
Origin = tuple[str, int]  # a parameter and the offset of eight bytes in it
Origins = frozenset[Origin]
_SPACES = ("global", "shared", "local", "param", "const")


def writers(kernel: Function) -> dict[Origin, tuple[int, ...]]:
    """The parameters through which a kernel may write global memory, each with the instructions that may.

    With ANYWHERE in it, any pointer may be meant.
    """
    params = {p.name for p in kernel.params}
    origins: dict[str, Origins] = {}
    flows = [(inst, _results(inst), _sources(inst, params)) for inst in kernel.body]
    changed = True
    while changed:
        changed = False
        for inst, results, (registers, found) in flows:
            total = found.union(*(origins.get(name, frozenset()) for name in registers))
            if _loads_pointer(inst, params):
                total = frozenset({ANYWHERE})
            for name in results:
                old = origins.get(name, frozenset())
                if not total <= old:
                    origins[name] = old | total
                    changed = True
    stores: dict[Origin, tuple[int, ...]] = {}
    for inst in kernel.body:
        for target in _targets(inst):
            for origin in _origins_of(target, origins, params):
                stores[origin] = (*stores.get(origin, ()), inst.index)
    return stores


def _origins_of(operand: Operand, origins: dict[str, Origins], params: set[str]) -> Origins:
    registers, found = _parts([operand], params)
    return found.union(*(origins.get(name, frozenset()) for name in registers))


def _targets(inst: Instruction) -> Iterable[Operand]:
    """The operand that says where an instruction writes global memory, if it does."""
    entry = registered(inst)
    spaces = (space for part in inst.parts[1:] if (space := part.split("::")[0]) in _SPACES)
    if entry is not None and entry.stores is not None and next(spaces, "global") == "global":
        yield from inst.operands[entry.stores : entry.stores + 1]


def _loads_pointer(inst: Instruction, params: set[str]) -> bool:
    """Whether an instruction takes 64 bits, which may be an address, from somewhere in memory."""
    if inst.parts[-1] not in ("b64", "u64", "s64", "b128") or role_of(inst.opcode, "") not in ("reads", "updates"):
        return False
    if len(inst.operands) < 2:  # its decoder will refuse it
        return False
    where = inst.operands[1]
    base = where.base if isinstance(where, Address) else None
    return not (isinstance(base, Symbol) and base.name in params)


def _results(inst: Instruction) -> list[str]:
    """The registers that an instruction may write: the first operand's."""
    entry = registered(inst)
    return _parts(inst.operands[:1], set())[0] if entry is None or entry.results else []


def _sources(inst: Instruction, params: set[str]) -> tuple[list[str], Origins]:
    if inst.parts[0] in ("ld", "ldu") and not _of_param(inst, params):
        return [], frozenset()  # a value from memory; _loads_pointer has those that may be addresses
    return _parts(inst.operands[1:], params)


def _of_param(inst: Instruction, params: set[str]) -> bool:
    where = inst.operands[1] if len(inst.operands) > 1 else None
    return isinstance(where, Address) and isinstance(where.base, Symbol) and where.base.name in params


def _parts(operands: Iterable[Operand], params: set[str]) -> tuple[list[str], Origins]:
    """The registers in operands, however nested, and the parameters that they name themselves."""
    registers: list[str] = []
    found: set[Origin] = set()
    for operand in operands:
        if isinstance(operand, Register):
            registers.append(operand.name)
        elif isinstance(operand, Negated):
            registers.append(operand.register.name)
        elif isinstance(operand, Symbol) and operand.name in params:
            found.add((operand.name, WHOLE))
        elif isinstance(operand, Address):
            more, others = _parts([operand.base], params)
            registers += more
            found |= {(name, operand.offset) for name, _ in others}  # [param + offset]
        elif isinstance(operand, Vector | Group):
            more, others = _parts(operand.items, params)
            registers, found = registers + more, found | others
        elif isinstance(operand, Pair):
            more, others = _parts((operand.first, operand.second), params)
            registers, found = registers + more, found | others
    return registers, frozenset(found)
