"""What a compiled kernel is made of: PTX, SASS, registers, shared memory, opcodes.

`inspect` takes what `cute.compile` returned and needs no GPU: CuTe DSL has compiled for sm_90a all the way
to machine code, on any machine, and everything is read from that. So a chapter's "look inside" prints the
same on a laptop as on the GPU.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cutetut.inspect import cubin as _cubin
from cutetut.inspect.cubin import CubinError, DisassemblerMissing

__all__ = ["CompileInfoError", "CubinError", "DisassemblerMissing", "KernelInfo", "inspect", "timed_compile"]

# cudaLaunchConfig_t as the DSL's host code lays it out; its third field is the dynamic shared memory
_LAUNCH_CONFIG = "!llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>"
_DYNAMIC_SHARED = [0, 2]

_ENTRY = re.compile(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OPCODE = re.compile(r"(?:[\w$]+:\s*)*(?:@!?%?\w+\s+)?([a-z][\w.:]*)(?:\s|$)")
_LOCAL_ARRAY = re.compile(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+[\w$]+\[(\d+)\]")


class CompileInfoError(RuntimeError):
    """The object does not carry what `inspect` needs to read."""


@dataclass(frozen=True)
class KernelInfo:
    """One compiled kernel, taken apart.

    name: the mangled kernel name. ptx: the whole PTX module it came from, as emitted. opcodes: how often each
    PTX opcode stands in this kernel, modifiers included (`fma.rn.f32`). registers: 32-bit registers per
    thread. shared_bytes: shared memory per CTA, static and dynamic together, or None if the dynamic part is
    decided only at launch. local_bytes: stack frame per thread. threads: the block shape fixed at compile
    time, or None. cubin: the ELF file that all kernels of the function share.
    Counts are static: an instruction in a loop counts once.
    """

    name: str
    ptx: str
    opcodes: Counter[str]
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int | None
    local_bytes: int
    threads: tuple[int, int, int] | None
    cubin: bytes = field(repr=False)

    @property
    def shared_bytes(self) -> int | None:
        """Shared memory per CTA in bytes; None if a run-time value decides it."""
        if self.dynamic_shared_bytes is None:
            return None
        return self.static_shared_bytes + self.dynamic_shared_bytes

    @property
    def spills(self) -> int:
        """Bytes of stack per thread beyond the local arrays that the PTX itself declares: spilled registers.

        Exact where the PTX declares no array. Where it does, a lower bound: room to align it is allowed for,
        and the compiler may have kept the array in registers.
        """
        arrays = _LOCAL_ARRAY.findall(_kernel_text(self.ptx, self.name))
        declared = sum(int(align) + int(size) for align, size in arrays)
        return max(0, self.local_bytes - declared)

    @property
    def ctas_per_sm(self) -> int:
        """How many CTAs an SM of a Hopper GPU holds at once; 0 if it cannot hold one.

        It holds 64 warps, 32 CTAs, and 65536 registers, which a warp gets in units of 256, four warps alike; and
        228 KiB of shared memory, of which the system takes 1 KiB for each CTA, in units of 128 bytes. Raises
        CompileInfoError if the threads or the shared memory of a CTA are decided only at launch.
        """
        if self.threads is None or self.shared_bytes is None:
            what = "threads" if self.threads is None else "shared memory"
            raise CompileInfoError(f"{self.name} gets its {what} at launch, so CTAs per SM cannot be told before")
        warps = -(-math.prod(self.threads) // 32)
        by_registers = 65536 // (-(-self.registers * 32 // 256) * 256) // 4 * 4 // warps if self.registers else 32
        shared = -(-(self.shared_bytes + 1024) // 128) * 128
        return min(32, 64 // warps, by_registers, 228 * 1024 // shared)

    @cached_property
    def sass(self) -> str:
        """The kernel's machine code as text; raises DisassemblerMissing where there is no nvdisasm."""
        return _cubin.disassemble(self.cubin)[self.name]

    @cached_property
    def sass_opcodes(self) -> Counter[str]:
        """How often each SASS opcode stands in the kernel, modifiers included (`LDG.E.128`)."""
        return _cubin.count_sass(self.sass)

    def count(self, prefix: str) -> int:
        """Instructions whose opcode is `prefix` or continues it after a dot: PTX if lower case, else SASS."""
        table = self.opcodes if prefix == prefix.lower() else self.sass_opcodes
        return sum(n for opcode, n in table.items() if opcode == prefix or opcode.startswith(prefix + "."))

    def __str__(self) -> str:
        shared = "decided at launch" if self.shared_bytes is None else f"{self.shared_bytes} B"
        return (
            f"{self.registers} registers per thread, {shared} shared memory per CTA, "
            f"{self.local_bytes} B of stack per thread ({self.spills} B spilled), "
            f"{self.opcodes.total()} PTX instructions"
        )


def timed_compile(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
    """`cute.compile(function, *args, **options)`, and how many seconds it took."""
    import cutlass.cute as cute

    start = time.perf_counter()
    compiled = cute.compile(function, *args, **options)
    return compiled, time.perf_counter() - start


def inspect(compiled: Any, kernel: str | None = None) -> KernelInfo:
    """Take apart what `cute.compile` returned.

    kernel: a part of the kernel's name, needed only if the function launches several. Raises
    CompileInfoError if the object carries no PTX or machine code, or if `kernel` does not pick exactly one.
    """
    ptx = getattr(getattr(compiled, "artifacts", None), "PTX", None)
    module = getattr(compiled, "ir_module", None)
    if not ptx or module is None:
        raise CompileInfoError(
            f"{type(compiled).__name__} carries no PTX: pass what cute.compile returned, and "
            "`import cutetut` before compiling: it asks CuTe DSL to keep the PTX, as CUTE_DSL_KEEP=ptx does"
        )
    ptx = ptx.rstrip("\0")
    image = _cubin.from_fatbin(_embedded_binary(module))
    found = _cubin.resources(image)
    name = _pick(sorted(found), kernel)
    return KernelInfo(
        name=name,
        ptx=ptx,
        opcodes=_count_ptx(_kernel_text(ptx, name)),
        registers=found[name].registers,
        static_shared_bytes=found[name].shared_bytes,
        dynamic_shared_bytes=_dynamic_shared(module).get(name),
        local_bytes=found[name].local_bytes,
        threads=found[name].required_threads,
        cubin=image,
    )


def _pick(names: list[str], wanted: str | None) -> str:
    matching = [name for name in names if wanted is None or wanted in name]
    if len(matching) == 1:
        return matching[0]
    problem = "no kernel matches" if not matching else f"{len(matching)} kernels match"
    listed = "\n  ".join(names)
    raise CompileInfoError(f"{problem} kernel={wanted!r}; pass a part of one of these names:\n  {listed}")


def _kernel_text(ptx: str, name: str) -> str:
    """The text of one entry: its directives and its body, from its opening to its closing brace."""
    entries = list(_ENTRY.finditer(ptx))
    for entry, following in zip(entries, [*entries[1:], None], strict=True):
        if entry[1] == name:
            text = ptx[entry.start() : following.start() if following else len(ptx)]
            return text[: text.rindex("}") + 1]
    raise CompileInfoError(f"the PTX has no entry named {name}")


def _count_ptx(kernel: str) -> Counter[str]:
    """Opcodes of one entry. A statement ends at ; { or }; one that opens with a dot is a directive."""
    body = _COMMENT.sub(" ", kernel[kernel.index("{") + 1 :])
    body = re.sub(r"^\s*\.(?:loc|file|pragma)\b[^\n]*$", "", body, flags=re.MULTILINE)
    found: Counter[str] = Counter()
    body = re.sub(r"\{[^{};]*\}", "", body)  # register lists, as in `ld.v4.f32 {%f1, %f2}, [%rd1];`
    for statement in re.split(r"[;{}]", body):
        match = _OPCODE.match(statement.strip())
        if match:
            found[match[1]] += 1
    return found


def _operations(operation: Any) -> list[Any]:
    """Every MLIR operation inside one, in order."""
    blocks = [block for region in operation.regions for block in region.blocks]
    inner = [op.operation for block in blocks for op in block.operations]
    return [found for op in inner for found in (op, *_operations(op))]


def _embedded_binary(module: Any) -> bytes:
    """The fat binary that the DSL's host code hands to the driver: a global constant of the host module."""
    for op in module.body.operations:
        if op.operation.name == "llvm.mlir.global":
            attributes = op.operation.attributes
            if attributes["sym_name"].value.endswith("_binary"):
                return bytes(attributes["value"].value_bytes)
    raise CompileInfoError("the compiled function holds no machine code: does it launch a kernel?")


def _dynamic_shared(module: Any) -> dict[str, int | None]:
    """Dynamic shared memory in bytes of each kernel's launch; None where a run-time value decides it.

    The host code fills one launch configuration and then launches with it, so the last store to the
    configuration's field before a launch is what that launch asks for.
    """
    launches: dict[str, int | None] = {}
    pending: int | None = None
    for op in _operations(module.operation):
        if op.name == "llvm.store" and _is_shared_field(op.operands[1].owner):
            attributes = getattr(op.operands[0].owner, "attributes", {})
            pending = attributes["value"].value if "value" in attributes else None
        elif op.name == "llvm.call" and "callee" in op.attributes:
            if op.attributes["callee"].value == "_cudaLaunchKernelEx":
                symbol = op.operands[1].owner.operands[0].owner.attributes["global_name"].value
                # a kernel launched twice with different sizes has no single answer
                name = symbol.removeprefix("kernels_")
                launches[name] = pending if launches.get(name, pending) == pending else None
    return launches


def _is_shared_field(address: Any) -> bool:
    return (
        getattr(address, "name", "") == "llvm.getelementptr"
        and str(address.attributes["elem_type"]) == _LAUNCH_CONFIG
        and list(address.attributes["rawConstantIndices"]) == _DYNAMIC_SHARED
    )
