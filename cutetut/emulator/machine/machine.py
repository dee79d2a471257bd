"""The machine: threads of all resident CTAs, their registers and memories, and the decoded program.

A register is one numpy row with an element for every thread of every resident CTA, so that one
numpy call executes an instruction for all warps that stand at it.  CTAs that do not fit run in a
later wave on the same rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO, TypeVar

import numpy as np

from ..errors import EmulatorError, LaunchError, UnknownInstruction
from ..numbers.rounding import UINT
from ..ptx.loops import waiting_loops
from ..ptx.syntax import (
    BYTES,
    Function,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
)
from .access import Checks
from .generic import GenericMemory
from .memory import LOCAL_WINDOW, SHARED_BASE, SHARED_LIMIT, SHARED_WINDOW, GlobalMemory, LocalMemory
from .pending import Pending
from .residents import SM_COUNT, emulated_at_once
from .running import Running
from .schedule import Schedule
from .shared import RANK_SHIFT, SharedMemory
from .states import STATES, State
from .threads import Selection

Dim = tuple[int, int, int]
_State = TypeVar("_State", bound=State)


@dataclass(frozen=True)
class Launch:
    """What a kernel is launched with; dynamic_smem in bytes, params one bytes object per parameter.

    A programmatic launch may begin before the previous one on its stream has ended (programmatic dependent launch);
    `previous` is what that one left as `Machine.written`.
    """

    grid: Dim
    block: Dim
    cluster: Dim = (1, 1, 1)
    dynamic_smem: int = 0
    params: tuple[bytes, ...] = ()
    cooperative: bool = False
    stream: int = 0
    programmatic: bool = False
    previous: object | None = None


@dataclass
class Counters:
    """How much work a launch did: vector steps, warp instructions and thread instructions."""

    steps: int = 0
    warp_instructions: int = 0
    thread_instructions: int = 0


def storage_dtype(kind: str) -> np.dtype:
    """The dtype of a register row declared with this PTX type."""
    return np.dtype(np.bool_) if kind == "pred" else np.dtype(UINT[BYTES[kind]])


@dataclass
class Layout:
    """Byte offsets of the variables of one space."""

    offsets: dict[str, int] = field(default_factory=dict)
    nbytes: int = 0

    def place(self, variable: Variable) -> None:
        start = -(-self.nbytes // variable.align) * variable.align
        self.offsets[variable.name] = start
        self.nbytes = start + variable.nbytes


class Machine:
    """Everything a step can reach.  One machine serves all waves of one launch.

    Rows: `lane`, `warp_of`, `cta_of` (number among the resident CTAs) and `live` (has a CTA and is
    inside the block), all of length `T`.
    """

    def __init__(
        self, module: Module, kernel: Function, launch: Launch, memory: GlobalMemory, out: TextIO | None = None
    ) -> None:
        self.module, self.kernel, self.launch, self.memory = module, kernel, launch, memory
        self.written: object | None = None  # what the next launch on this stream must know of this one
        self.out = out or sys.stdout
        self.started = time.perf_counter_ns()
        self.counters = Counters()
        self._check_launch()
        self.block_threads = int(np.prod(launch.block))
        self.warps_per_cta = -(-self.block_threads // 32)
        self.cluster_size = int(np.prod(launch.cluster))
        self.schedule = Schedule()
        self.order = _cta_order(launch)
        variables = [*module.variables.values(), *kernel.variables.values()]
        self.residents = emulated_at_once(
            kernel, len(self.order), self.cluster_size, self.warps_per_cta * 32,
            launch.dynamic_smem + sum(v.nbytes for v in variables if v.space == "shared" and not v.extern),
            launch.cooperative, self.schedule,
        )  # fmt: skip
        if not waiting_loops(kernel, elsewhere=True) or self.residents == len(self.order):
            self.order = self.schedule.order(self.order, self.cluster_size)
        self.T = self.residents * self.warps_per_cta * 32
        threads = np.arange(self.T)
        self.lane = (threads % 32).astype(np.uint32)
        self.warp_of = threads // 32
        self.cta_of = threads // (self.warps_per_cta * 32)
        self.in_cta = threads % (self.warps_per_cta * 32)
        self.live = np.zeros(self.T, np.bool_)
        self.cta_ids = np.zeros((self.residents, 3), np.int64)
        self._keep: list[np.ndarray] = []  # host buffers that PTX variables live in
        self.pending = Pending()
        self._place_variables()
        self._make_registers()
        self.specials = {name: np.zeros(self.T, np.uint32) for name in _SPECIAL_ROWS}
        self.constants: dict[tuple[object, np.dtype], np.ndarray] = {}
        self.units: dict[type[State], State] = {}
        for kind in STATES:
            self.units[kind] = kind(self)
        self.checks: Checks  # set by the launch
        self.scheduler: Running  # set by the scheduler: barriers and waits live there
        self.block_of_label: dict[str, int] = {}  # these three are set by decoding.decode
        self.block_starts: dict[int, int] = {}
        self.unwritten_marks: dict[str, np.ndarray] = {}

    # -- set-up -------------------------------------------------------------------------------

    def _check_launch(self) -> None:
        launch, kernel = self.launch, self.kernel
        threads = int(np.prod(launch.block))
        if min(launch.grid) < 1 or min(launch.block) < 1 or min(launch.cluster) < 1:
            raise LaunchError(
                f"grid {launch.grid}, block {launch.block}, cluster {launch.cluster}: all must be positive"
            )
        if threads > 1024:
            raise LaunchError(f"a block of {threads} threads; the limit is 1024")
        required = kernel.directives.get("reqntid")
        if required and tuple(required) + (1,) * (3 - len(required)) != launch.block:
            raise LaunchError(
                f"kernel {kernel.name} was compiled for a block of {required}, launched with {launch.block}"
            )
        if any(g % c for g, c in zip(launch.grid, launch.cluster, strict=True)):
            raise LaunchError(f"grid {launch.grid} is not a multiple of the cluster {launch.cluster}")
        if len(launch.params) != len(kernel.params):
            raise LaunchError(f"{len(launch.params)} parameters for the {len(kernel.params)} of {kernel.name}")

    def _place_variables(self) -> None:
        """Give every variable its address: shared and local offsets, host buffers for the rest."""
        shared, local = Layout(), Layout()
        own = list(self.kernel.variables.values())
        everything = [*self.module.variables.values(), *own]
        for variable in everything:
            if variable.space == "shared" and not variable.extern:
                shared.place(variable)
            elif variable.space in ("local", "param"):
                local.place(variable)
        for variable in everything:
            if variable.space == "shared" and variable.extern:  # the dynamic part, after the static one
                start = -(-shared.nbytes // variable.align) * variable.align
                shared.offsets[variable.name] = start
        dynamic = [shared.offsets[v.name] for v in everything if v.space == "shared" and v.extern]
        nbytes = max([shared.nbytes, *(start + self.launch.dynamic_smem for start in dynamic)])
        if not dynamic:
            nbytes = shared.nbytes + self.launch.dynamic_smem
        if nbytes > SHARED_LIMIT:
            raise LaunchError(f"{nbytes} bytes of shared memory; a CTA has at most {SHARED_LIMIT} on sm_90")
        self.shared_offsets, self.local_offsets = shared.offsets, local.offsets
        self.shared = SharedMemory(self, nbytes)
        self.local = LocalMemory(self.T, local.nbytes)
        self.generic = GenericMemory(self.memory, self.shared, self.local)
        self.symbols: dict[str, int] = {}
        for variable in everything:
            if variable.space in ("global", "const"):
                self.symbols[variable.name] = self._host_buffer(
                    variable.init or bytes(variable.nbytes), variable.name, variable.space == "global"
                )
        for variable in everything:
            self._resolve_pointers(variable)
        self._place_params()

    def _resolve_pointers(self, variable: Variable) -> None:
        for offset, name, plus in variable.pointers:
            target = np.array([self.symbols[name] + plus], np.uint64).view(np.uint8)
            buffer = next(b for b in self._keep if b.ctypes.data == self.symbols[variable.name])
            buffer[offset : offset + 8] = target

    def _place_params(self) -> None:
        """One buffer with the kernel's parameters at their ABI offsets; it is read-only."""
        data = bytearray()
        for param, value in zip(self.kernel.params, self.launch.params, strict=True):
            if len(value) != param.nbytes:
                raise LaunchError(f"parameter {param.name} has {param.nbytes} bytes, got {len(value)}")
            offset = self.kernel.param_offset(param.name)
            data += bytes(offset - len(data)) + value
        self.param_bytes = len(data)
        self.param_base = self._host_buffer(bytes(data) or bytes(8), "the kernel's parameters", False)
        for param in self.kernel.params:
            self.symbols[param.name] = self.param_base + self.kernel.param_offset(param.name)

    def _host_buffer(self, data: bytes, label: str, writable: bool) -> int:
        raw = np.zeros(len(data) + 256, np.uint8)
        skip = -raw.ctypes.data % 128
        buffer = raw[skip : skip + len(data)]
        buffer[:] = np.frombuffer(data, np.uint8)
        self._keep.append(buffer)
        self.memory.add(buffer.ctypes.data, len(data), label, writable)
        return buffer.ctypes.data

    def release(self) -> None:
        """Forget the machine's own buffers, which end with the launch."""
        for buffer in self._keep:
            self.memory.remove(buffer.ctypes.data)

    def load_wave(self, first: int) -> None:
        """Place the CTAs that start at position `first` of the launch order, with fresh state."""
        ids = self.order[first : first + self.residents]
        self.cta_ids[: len(ids)] = ids
        self.live[:] = (self.cta_of < len(ids)) & (self.in_cta < self.block_threads)
        for unit in self.units.values():
            unit.reset()
        _fill_specials(self, len(ids))

    def unit(self, kind: type[_State]) -> _State:
        """What a unit keeps on this machine."""
        return self.units[kind]  # type: ignore[return-value]

    def history(self, thread: int) -> list[str]:
        """Lines for an error of a thread: what it has done in some unit that may explain it."""
        return [line for unit in self.units.values() for line in unit.history(thread)]

    # -- operands -----------------------------------------------------------------------------

    def _make_registers(self) -> None:
        """32-bit registers are the rows of one array, so that matrix units reach many of them at once."""
        declared = list(self.kernel.registers.values())
        self.bank_rows = {r.name: i for i, r in enumerate(r for r in declared if BYTES[r.type] == 4)}
        self.bank = np.zeros((len(self.bank_rows), self.T), np.uint32)
        self.registers: dict[str, np.ndarray] = {}
        for register in declared:
            if register.name in self.bank_rows:
                row = self.bank[self.bank_rows[register.name]]
            elif register.type == "b128":
                row = np.zeros((self.T, 2), np.uint64)
            else:
                row = np.zeros(self.T, storage_dtype(register.type))
            self.registers[register.name] = row

    def bank_row(self, operand: Operand) -> int:
        """Which row of `bank` a 32-bit register is."""
        if not isinstance(operand, Register) or operand.name not in self.bank_rows:
            raise EmulatorError(f"{operand} is not a 32-bit register")
        return self.bank_rows[operand.name]

    def register_dtype(self, operand: Operand) -> np.dtype:
        """The dtype of the row that holds a register."""
        if isinstance(operand, Register):
            return self.registers[operand.name].dtype
        raise EmulatorError(f"{operand} is not a register")

    def source(self, operand: Operand, dtype: np.dtype | type) -> np.ndarray:
        """A row of the operand's values seen as dtype: a register's low bits, or a constant row."""
        dtype = np.dtype(dtype)
        if isinstance(operand, Register):
            return _view(self.registers[operand.name], dtype)
        if isinstance(operand, Special):
            return self._special_row(operand.name, dtype)
        if isinstance(operand, Immediate):
            return self.constant(operand.value, dtype, operand.bits)
        if isinstance(operand, Symbol):
            row = self.constant(self.symbol_address(operand.name), dtype)
            if self.cluster_size > 1 and operand.name in self.shared_offsets:
                return row + (self.cta_of % self.cluster_size << RANK_SHIFT).astype(dtype)
            return row
        raise EmulatorError(f"{operand} cannot be read as {dtype}")

    def target(self, operand: Operand, dtype: np.dtype | type) -> np.ndarray:
        """The row to assign a result to, seen as dtype; a sink gives a row nobody reads."""
        if isinstance(operand, Sink):
            return np.zeros(self.T, dtype)
        if isinstance(operand, Register):
            return _view(self.registers[operand.name], np.dtype(dtype))
        raise EmulatorError(f"{operand} cannot be written")

    def predicate(self, operand: Operand) -> Callable[[Selection], np.ndarray]:
        """A getter of %p, !%p or a constant."""
        if isinstance(operand, Negated):
            row = self.registers[operand.register.name]
            return lambda sel: ~row[sel]
        row = self.source(operand, np.bool_)
        return lambda sel: row[sel]

    def constant(self, value: int | float, dtype: np.dtype, bits: int | None = None) -> np.ndarray:
        """A row of one value: raw bits where given, otherwise the number, wrapped to the width."""
        key = (value if bits is None else ("bits", bits), dtype)
        row = self.constants.get(key)
        if row is None:
            row = np.broadcast_to(_scalar(value, dtype, bits), (self.T,))
            self.constants[key] = row
        return row

    def symbol_address(self, name: str) -> int:
        """The address of a variable in its own space (PTX ISA section 5.1, 6.6)."""
        if name in self.shared_offsets:
            return SHARED_BASE + self.shared_offsets[name]
        if name in self.local_offsets:
            return self.local_offsets[name]
        if name in self.symbols:
            return self.symbols[name]
        if name == "WARP_SZ":
            return 32
        raise EmulatorError(f"{name} is not a variable that has an address")

    def block_after(self, inst: Instruction) -> int:
        """The block that starts behind an instruction that ends its own."""
        return self.block_starts[inst.index + 1]

    def symbol_space(self, name: str) -> str:
        """Which space a variable lives in: shared, local or global (constants and parameters too)."""
        if name in self.shared_offsets:
            return "shared"
        return "local" if name in self.local_offsets else "global"

    def dynamic(self, name: str) -> Callable[[Selection], np.ndarray] | None:
        """A getter for special registers that change while the kernel runs (PTX ISA section 10)."""
        if name in ("%clock", "%clock64", "%clock_hi"):
            shift = 32 if name == "%clock_hi" else 0
            return lambda sel: np.full(_count(sel), self.counters.warp_instructions >> shift, np.uint64)
        if name in ("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
            shift = 32 if name.endswith("_hi") else 0
            return lambda sel: np.full(_count(sel), time.time_ns() >> shift, np.uint64)
        return None

    def _special_row(self, name: str, dtype: np.dtype) -> np.ndarray:
        if name == "%gridid":  # one number for all of a launch, and launches need not differ in it
            return np.zeros(self.T, dtype)
        if name not in self.specials:
            raise UnknownInstruction(f"special register {name} is not emulated")
        return _view(self.specials[name], dtype)


def _count(sel: Selection) -> int:
    return sel.stop - sel.start if isinstance(sel, slice) else len(sel)


def _view(row: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A row seen as another type of the same width, or its low bits as a narrower one."""
    if row.dtype == dtype:
        return row
    if row.dtype.itemsize == dtype.itemsize and row.ndim == 1:
        return row.view(dtype)
    if row.dtype.itemsize > dtype.itemsize and row.ndim == 1:
        return row.view(dtype)[:: row.dtype.itemsize // dtype.itemsize]
    raise EmulatorError(f"a register of {row.dtype} is read as the wider {dtype}")


def _scalar(value: int | float, dtype: np.dtype, bits: int | None) -> np.ndarray:
    width = dtype.itemsize
    if bits is not None:
        literal = 4 if bits < 1 << 32 else 8
        if dtype.kind == "f" and width != literal:
            return np.array(value, dtype)
        return np.frombuffer(bits.to_bytes(8, "little")[:width], dtype)[0]
    if dtype.kind == "f":
        return np.array(value, dtype)
    if dtype.kind == "b":
        return np.array(bool(value))
    return np.frombuffer((int(value) % (1 << 8 * width)).to_bytes(width, "little"), dtype)[0]


def _cta_order(launch: Launch) -> np.ndarray:
    """CTA coordinates in launch order: x fastest, the CTAs of a cluster next to each other."""
    grid, cluster = launch.grid, launch.cluster
    rows = []
    counts = [g // c for g, c in zip(grid, cluster, strict=True)]
    inner = [(x, y, z) for z in range(cluster[2]) for y in range(cluster[1]) for x in range(cluster[0])]
    for z in range(counts[2]):
        for y in range(counts[1]):
            for x in range(counts[0]):
                rows += [(x * cluster[0] + i, y * cluster[1] + j, z * cluster[2] + k) for i, j, k in inner]
    return np.array(rows, np.int64)


_AXES = "xyz"
_SPECIAL_ROWS = [
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid",
                                     "cluster_nctaid") for axis in _AXES),
    "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt",
    "%lanemask_ge", "%lanemask_gt", "%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster",
    "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size", "%reserved_smem_offset_begin",
    "%reserved_smem_offset_end",
]  # fmt: skip


def _fill_specials(m: Machine, ctas: int) -> None:
    """Special registers of the CTAs now resident (PTX ISA section 10)."""
    launch, s = m.launch, m.specials
    x, y, _ = launch.block
    tid = (m.in_cta % x, m.in_cta // x % y, m.in_cta // (x * y))
    cluster_size = int(np.prod(launch.cluster))
    for a, axis in enumerate(_AXES):
        ctaid = m.cta_ids[m.cta_of, a]
        s[f"%tid.{axis}"][:] = tid[a]
        s[f"%ntid.{axis}"][:] = launch.block[a]
        s[f"%ctaid.{axis}"][:] = ctaid
        s[f"%nctaid.{axis}"][:] = launch.grid[a]
        s[f"%clusterid.{axis}"][:] = ctaid // launch.cluster[a]
        s[f"%nclusterid.{axis}"][:] = launch.grid[a] // launch.cluster[a]
        s[f"%cluster_ctaid.{axis}"][:] = ctaid % launch.cluster[a]
        s[f"%cluster_nctaid.{axis}"][:] = launch.cluster[a]
    s["%laneid"][:] = m.lane
    s["%warpid"][:] = m.in_cta // 32
    s["%nwarpid"][:] = 64  # warps of an SM
    s["%smid"][:] = m.cta_of % SM_COUNT
    s["%nsmid"][:] = SM_COUNT
    below = (np.uint64(1) << m.lane.astype(np.uint64)) - np.uint64(1)
    own = np.uint64(1) << m.lane.astype(np.uint64)
    full = np.uint64(0xFFFFFFFF)
    for name, mask in (
        ("eq", own),
        ("lt", below),
        ("le", below | own),
        ("gt", full ^ (below | own)),
        ("ge", full ^ below),
    ):
        s[f"%lanemask_{name}"][:] = mask.astype(np.uint32)
    s["%cluster_ctarank"][:] = m.cta_of % cluster_size
    s["%cluster_nctarank"][:] = cluster_size
    s["%is_explicit_cluster"][:] = cluster_size > 1
    s["%dynamic_smem_size"][:] = launch.dynamic_smem
    s["%total_smem_size"][:] = m.shared.nbytes  # without the reserved part (seen on an H200)
    s["%aggr_smem_size"][:] = m.shared.nbytes + SHARED_BASE
    s["%reserved_smem_offset_begin"][:] = 0
    s["%reserved_smem_offset_end"][:] = SHARED_BASE


__all__ = ["LOCAL_WINDOW", "SHARED_WINDOW", "Counters", "Launch", "Machine"]
