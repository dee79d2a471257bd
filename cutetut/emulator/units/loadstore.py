"""Loads, stores and address conversions (PTX ISA section 9.7.9).

The emulator executes memory operations one after the other, a stronger order than any PTX consistency level:
ordering modifiers change no value here.  What a kernel may rely on is another matter, and the checks' (ordering.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..checks.clocks import ASYNC_GLOBAL, ASYNC_SHARED, INITS, TENSORMAP
from ..checks.looks import weakest
from ..checks.ordering import Ordering
from ..checks.tensormaps import TensorMaps
from ..compiled.engine import enabled
from ..compiled.loads import CompiledLoad
from ..machine.access import SCOPES, SYS, Access, Kind
from ..machine.memory import HOST, LOCAL_WINDOW, SHARED_WINDOW, index, threads_of
from ..machine.opcodes import Selection, Step, opcode, refuse, unsupported
from ..machine.operands import addresses, elements_of
from ..numbers.rounding import UINT
from ..ptx.effects import Effect
from ..ptx.syntax import BYTES, Address, Immediate, Operand, Register, Sink, Symbol

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..ptx.syntax import Instruction


class Space(Protocol):
    """Anything that can say where an address lies in host memory."""

    def locate(self, address: np.ndarray, sel: Selection, access: Access) -> np.ndarray: ...


SPACES = {
    "global",
    "shared",
    "local",
    "param",
    "const",
    "shared::cta",
    "shared::cluster",
    "param::entry",
    "param::func",
}
ORDER = {"weak", "relaxed", "acquire", "release", "volatile", "mmio", "cta", "cluster", "gpu", "sys"}
CACHE = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"}
HINTS = {  # for the caches: they change no value
    *(f"{level}::{word}" for level in ("L1", "L2") for word in ("evict_normal", "evict_first", "evict_last")),
    "L1::evict_unchanged", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B",
}  # fmt: skip
VECTOR = {"v2": 2, "v4": 4, "v8": 8}
INT = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class Operands:
    """What ld and st share: modifiers, address and the registers loaded to or stored from."""

    def __init__(self, inst: Instruction, machine: Machine) -> None:
        first, second = inst.operands[:2]
        where, registers = (first, second) if inst.parts[0] == "st" else (second, first)
        self.space, self.count, self.cache_hint = "generic", 1, False
        self.type = inst.parts[-1]
        if self.type not in BYTES or self.type == "pred":
            raise unsupported(inst, f"type {self.type}")
        for part in inst.parts[1:-1]:
            if part in SPACES:
                self.space = part.split("::")[0]
            elif part in VECTOR:
                self.count = VECTOR[part]
            elif part == "L2::cache_hint":
                self.cache_hint = True
            elif part not in ORDER and part not in CACHE and part not in HINTS:
                raise unsupported(inst, f"modifier .{part}")
        self.nbytes = BYTES[self.type]
        self.total = self.nbytes * self.count
        self.items = elements_of(registers)
        if len(self.items) != self.count:
            raise unsupported(inst, f"{len(self.items)} registers for {self.count} values")
        self.address = addresses(inst, machine, where)
        kind = Kind.STORE if inst.parts[0] == "st" else Kind.LOAD
        access = Access.of(inst.parts, inst.index, self.total, kind)
        self.access = machine.checks.uses(weakest(machine.kernel, access))
        assert isinstance(where, Address)
        self.where = where
        self.memory = self._memory(machine)


    def _memory(self, machine: Machine) -> Space:
        space = self.space
        if isinstance(self.where.base, Symbol):
            space = machine.symbol_space(self.where.base.name)
        if space == "shared":
            return machine.shared
        if space == "local":
            return machine.local
        return machine.generic if space == "generic" else machine.memory


@opcode("ld", "ldu", unit="memory", role="reads", effect=Effect.LOADS, section="9.7.9.8, 9.7.9.9, 9.7.9.10",
        forms="{.weak .relaxed .acquire .volatile}{.scope}{.global .shared .local .param .const}{.nc}{cache and "
              "eviction hints}{.v2 .v4 .v8}.b8-.b128 .u .s .f")  # fmt: skip
def decode_ld(inst: Instruction, machine: Machine) -> Step:
    """Load one to eight values per thread; narrow ones are zero- or sign-extended to the register."""
    access = Operands(inst, machine)
    if access.space == "param" and _is_kernel_param(machine, access.where):
        return _load_kernel_param(inst, machine, access)
    if access.type == "b128":
        return _load_128(inst, machine, access)
    writers = [_writer(machine, item, access) for item in access.items]
    locate, address, how, unit = access.memory.locate, access.address, access.access, access.nbytes
    host, memory, compiled = HOST[unit], machine.memory, _compiled(machine, access)

    def step(sel: Selection) -> None:
        recent = memory.recent
        if compiled is not None and recent is not None and memory.plain(recent, how):
            if compiled.checked(sel, recent.start, recent.end):
                return
        where = locate(address(sel), sel, how)
        if compiled is not None and compiled.fetch(where, sel):
            return
        at = index(where, unit)
        for i, write in enumerate(writers):
            write(sel, host[at + i] if i else host[at])

    return step


def _compiled(machine: Machine, access: Operands) -> CompiledLoad | None:
    """The load in machine code; None for registers that it does not reach."""
    if not enabled() or not all(isinstance(x, Register | Sink) for x in access.items):
        return None
    rows = [machine.registers[x.name] if isinstance(x, Register) else None for x in access.items]
    if any(row is not None and (row.itemsize < access.nbytes or row.ndim > 1) for row in rows):
        return None
    load, base = CompiledLoad(access.nbytes, rows, access.type.startswith("s")), access.where.base
    if access.memory is machine.memory and isinstance(base, Register) and machine.register_dtype(base).itemsize == 8:
        load.read_from(machine.source(base, np.int64), access.where.offset)
    return load


def _writer(machine: Machine, item: Operand, access: Operands) -> Callable[[Selection, np.ndarray], None]:
    """Assign raw loaded values to a register that may be wider than they are."""
    if isinstance(item, Sink):
        return lambda sel, values: None
    width = machine.register_dtype(item).itemsize
    if access.type.startswith("s") and width > access.nbytes:
        signed = machine.target(item, INT[width])
        narrow = INT[access.nbytes]

        def write_signed(sel: Selection, values: np.ndarray) -> None:
            signed[sel] = values.view(narrow)

        return write_signed
    row = machine.target(item, UINT[width])

    def write(sel: Selection, values: np.ndarray) -> None:
        row[sel] = values

    return write


def _is_kernel_param(machine: Machine, where: Address) -> bool:
    return isinstance(where.base, Symbol) and where.base.name in {p.name for p in machine.kernel.params}


def _load_kernel_param(inst: Instruction, machine: Machine, access: Operands) -> Step:
    """A kernel parameter is the same for all threads, so its value is known when decoding."""
    assert isinstance(access.where.base, Symbol)
    start = machine.symbols[access.where.base.name] + access.where.offset
    if not machine.param_base <= start or start + access.total > machine.param_base + machine.param_bytes:
        raise unsupported(inst, "the load reaches past the kernel's parameters")
    writers = [_writer(machine, item, access) for item in access.items]
    values = [
        HOST[access.nbytes][index(np.array([start + i * access.nbytes]), access.nbytes)] for i in range(access.count)
    ]

    def step(sel: Selection) -> None:
        for write, value in zip(writers, values, strict=True):
            write(sel, value)

    return step


def _load_128(inst: Instruction, machine: Machine, access: Operands) -> Step:
    rows = [machine.registers[item.name] if isinstance(item, Register) else None for item in access.items]
    locate, address, how = access.memory.locate, access.address, access.access

    def step(sel: Selection) -> None:
        at = index(locate(address(sel), sel, how), 8)
        for i, row in enumerate(rows):
            if row is not None:
                row[sel, 0], row[sel, 1] = HOST[8][at + 2 * i], HOST[8][at + 2 * i + 1]

    return step


@opcode("st", unit="memory", role="writes", effect=Effect.STORES, stores=0, section="9.7.9.11", results=0,
        forms="{.weak .relaxed .release .volatile}{.scope}{.global .shared .local .param}{cache and eviction hints}"
              "{.v2 .v4 .v8}.b8-.b128 .u .s .f")  # fmt: skip
def decode_st(inst: Instruction, machine: Machine) -> Step:
    """Store one to eight values per thread."""
    access = Operands(inst, machine)
    if access.type == "b128":
        return _store_128(inst, machine, access)
    rows = [_value_row(machine, item, access) for item in access.items]
    locate, address, unit = access.memory.locate, access.address, access.nbytes
    bits = UINT[unit]
    how = replace(access.access, values=lambda sel: [row[sel].astype(bits, copy=False) for row in rows])
    host = HOST[unit]

    def step(sel: Selection) -> None:
        at = index(locate(address(sel), sel, how), unit)
        for i, row in enumerate(rows):
            host[at + i if i else at] = row[sel]

    return step


def _value_row(machine: Machine, item: Operand, access: Operands) -> np.ndarray:
    if isinstance(item, Immediate) and access.type.startswith("f") and item.bits is None:
        dtype = {2: np.float16, 4: np.float32, 8: np.float64}[access.nbytes]
        return np.broadcast_to(np.array(machine.source(item, dtype)[0]).view(UINT[access.nbytes]), (machine.T,))
    return machine.source(item, UINT[access.nbytes])


def _store_128(inst: Instruction, machine: Machine, access: Operands) -> Step:
    rows = [machine.registers[item.name] for item in access.items if isinstance(item, Register)]
    locate, address, how = access.memory.locate, access.address, access.access

    def step(sel: Selection) -> None:
        at = index(locate(address(sel), sel, how), 8)
        for i, row in enumerate(rows):
            HOST[8][at + 2 * i], HOST[8][at + 2 * i + 1] = row[sel, 0], row[sel, 1]

    return step


def _fence_tensormap(inst: Instruction, machine: Machine) -> Step:
    """Between ordinary writes of a tensor map and the copies that use it (section 9.7.13.4.3)."""
    if "acquire" not in inst.parts:
        return lambda sel: machine.unit(Ordering).fence_proxy(sel, (TENSORMAP,))
    address = addresses(inst, machine, inst.operands[0])

    def step(sel: Selection) -> None:
        for thread, where in zip(threads_of(sel).tolist(), address(sel).tolist(), strict=True):
            machine.unit(TensorMaps).acquire(machine.generic.host_of(where, thread, 1), thread)

    return step


_WINDOW = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}


@opcode("cvta", unit="memory", effect=Effect.QUIET, section="9.7.9.20",
        forms="{.to}.global .shared .local .const .param .u32 .u64")  # fmt: skip
def decode_cvta(inst: Instruction, machine: Machine) -> Step:
    """Convert between a space's own addresses and generic ones."""
    to_space = inst.parts[1] == "to"
    space = inst.parts[2 if to_space else 1].split("::")[0]
    if space not in ("global", "shared", "local", "const", "param") or inst.parts[-1] not in ("u64", "u32"):
        raise unsupported(inst)
    d, a = machine.target(inst.operands[0], np.uint64), inst.operands[1]
    if isinstance(a, Address) and isinstance(a.base, Symbol):
        value = machine.symbol_address(a.base.name) + a.offset
        source = machine.constant(value, np.dtype(np.uint64))
    else:
        source = machine.source(a, np.uint64)
    window = np.uint64(_WINDOW.get(space, 0))

    def step(sel: Selection) -> None:
        d[sel] = source[sel] - window if to_space else source[sel] + window

    return step


@opcode("isspacep", unit="memory", section="9.7.9.19", forms=".global .shared .local .const .param")
def decode_isspacep(inst: Instruction, machine: Machine) -> Step:
    """Whether a generic address lies in a space."""
    space = inst.parts[1].split("::")[0]
    d, a = machine.target(inst.operands[0], np.bool_), machine.source(inst.operands[1], np.uint64)
    windows = np.uint64(SHARED_WINDOW | LOCAL_WINDOW)
    if space in _WINDOW:
        window = np.uint64(_WINDOW[space])
        return lambda sel: d.__setitem__(sel, (a[sel] & windows) == window)
    if space != "global":
        raise unsupported(inst)
    return lambda sel: d.__setitem__(sel, (a[sel] & windows) == 0)


_HINTS = {  # what each instruction can look like, and how many operands it has
    "prefetch": (r"((global|local)\.)?L[12]|global\.L2::evict_(last|normal)|((const|param)(::entry)?\.)?tensormap", 1),
    "prefetchu": ("L1", 1),
    "applypriority": (r"(global\.)?L2::evict_normal", 2),
}
_EVICT = r"\.L2::evict_(last|normal|first|unchanged)"
_POLICY = rf"(fractional{_EVICT}({_EVICT})?|range(\.global)?{_EVICT}({_EVICT})?|cvt\.L2)\.b64"


@opcode("prefetch", "prefetchu", "applypriority", unit="memory", section="9.7.9.15, 9.7.9.16", results=0,
        forms="{.global .local}.L1 .L2, .global.L2::evict_last .evict_normal, {.const .param}.tensormap")  # fmt: skip
def decode_prefetch(inst: Instruction, machine: Machine) -> Step:
    """Cache hints change no value."""
    forms, operands = _HINTS[inst.parts[0]]
    if re.fullmatch(forms, ".".join(inst.parts[1:])) is None or len(inst.operands) != operands:
        raise unsupported(inst, "no hint is written like this")
    return lambda sel: None


refuse("discard", "what it leaves in memory is undefined, which the emulator does not follow; as a hint it can go")


@opcode("createpolicy", unit="memory", section="9.7.9.18", forms=".fractional .range .cvt")
def decode_createpolicy(inst: Instruction, machine: Machine) -> Step:
    """A cache policy is opaque and changes no value."""
    if re.fullmatch(_POLICY, ".".join(inst.parts[1:])) is None:
        raise unsupported(inst, "no cache policy is written like this")
    d = machine.target(inst.operands[0], np.uint64)
    return lambda sel: d.__setitem__(sel, 0)


@opcode("membar", "fence", unit="memory", role="fences", section="9.7.13.4", results=0,
        forms="{.sc .acq_rel .acquire .release}.cta .cluster .gpu .sys")  # fmt: skip
def decode_fence(inst: Instruction, machine: Machine) -> Step:
    """Memory operations happen one after the other here; what a fence orders is in checks/locations.py."""
    allowed = {"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys", "gl", "level",
               "sync_restrict::shared::cta.cluster", "sync_restrict::shared::cluster.cluster"}  # fmt: skip
    for part in inst.parts[1:]:
        if part not in allowed:
            raise unsupported(inst, f"modifier .{part}")
    scope = next((SCOPES[p] for p in inst.parts[1:] if p in SCOPES), SYS)
    return lambda sel: machine.unit(Ordering).fence(sel, scope)


_ASYNC = {  # forms of fence.proxy, and what they bring into view of the async proxy
    "async": (ASYNC_SHARED, ASYNC_GLOBAL, INITS),
    r"async\.global": (ASYNC_GLOBAL,),
    r"async\.shared::(cta|cluster)": (ASYNC_SHARED, INITS),
    r"async::generic\.(acquire|release)\.sync_restrict::shared::(cta|cluster)\.cluster": (ASYNC_SHARED, INITS),
}


@opcode("fence.proxy", unit="memory", role="fences", section="9.7.13.4", results=0,
        forms=".async{.global .shared::cta .shared::cluster}, .alias, .tensormap::generic")  # fmt: skip
def decode_fence_proxy(inst: Instruction, machine: Machine) -> Step:
    """Make ordinary stores visible to the async proxy (TMA, WGMMA)."""
    if inst.parts[2].startswith("tensormap"):
        return _fence_tensormap(inst, machine)
    kind = ".".join(inst.parts[2:])
    if kind == "alias":
        return lambda sel: None
    views = next((views for form, views in _ASYNC.items() if re.fullmatch(form, kind)), None)
    if views is None:
        raise unsupported(inst)
    return lambda sel: machine.unit(Ordering).fence_proxy(sel, views)
