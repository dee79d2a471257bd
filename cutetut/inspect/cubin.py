"""Read what the compiler wrote into a cubin: registers, stack, shared memory, and the SASS itself.

A cubin is an ordinary 64-bit ELF file for the GPU. CuTe DSL carries it inside a *fat binary*, a small
container for several architectures. Nothing but `struct` is needed for the resource numbers. SASS has no
public encoding, so for that NVIDIA's `nvdisasm` is run (package `nvidia-cuda-nvdisasm`, needs no GPU).

Sources: the ELF-64 object file format; the `.nv.info` attributes under the names (EIATTR_...) that `nvdisasm`
prints for them, which is also what the tests hold this reader against.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cutetut.emulator.host import compile_cache

FATBIN_MAGIC = 0xBA55ED50
FATBIN_KIND_ELF = 2
ELF_MAGIC = b"\x7fELF"
ELFCLASS64 = 2
SHT_NOBITS = 8  # a section that takes memory but no space in the file

# On compute capability 9.0 CUDA reserves 1 KB of shared memory per thread block (CUDA C++ Programming Guide,
# section on that capability); a kernel's .nv.shared section begins with it, its own declarations follow
RESERVED_SHARED_BYTES = 1024

# .nv.info attributes; the first byte of an entry says how its value is stored
EIFMT_SVAL = 4  # a 16-bit size, then that many bytes; every other format is a 16-bit value in place
EIATTR_REQNTID = 0x10  # three words: the block shape the kernel must be launched with
EIATTR_FRAME_SIZE = 0x11  # symbol, bytes: stack frame per thread
EIATTR_REGCOUNT = 0x2F  # symbol, count: 32-bit registers per thread

_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
_FUNCTION = re.compile(r"^\.text\.([^\s:]+):", re.MULTILINE)


class CubinError(ValueError):
    """The bytes are not a cubin that this reader understands."""


class DisassemblerMissing(RuntimeError):
    """SASS was asked for on a machine without NVIDIA's disassembler."""


@dataclass(frozen=True)
class Resources:
    """What one kernel needs to run, as the compiler recorded it.

    registers: 32-bit registers per thread. shared_bytes: statically declared shared memory per CTA, without
    the 1 KB that the system reserves.
    local_bytes: stack frame per thread, which holds spilled registers and addressable local arrays.
    required_threads: the block shape it must be launched with, or None if any is allowed.
    """

    registers: int
    shared_bytes: int
    local_bytes: int
    required_threads: tuple[int, int, int] | None


@dataclass(frozen=True)
class _Section:
    name: str
    size: int
    data: bytes


def from_fatbin(blob: bytes) -> bytes:
    """The first cubin inside a fat binary (a cubin itself is returned as it is).

    Raises CubinError if there is none, or if it is stored compressed.
    """
    if blob.startswith(ELF_MAGIC):
        return blob
    if len(blob) < 16 or struct.unpack_from("<I", blob)[0] != FATBIN_MAGIC:
        raise CubinError("not a fat binary: it does not start with CUDA's magic number 0xBA55ED50")
    _, _, header_size, content_size = struct.unpack_from("<IHHQ", blob)
    at, end = header_size, min(header_size + content_size, len(blob))
    while at + 16 <= end:
        kind, _, entry_header, payload = struct.unpack_from("<HHIQ", blob, at)
        if entry_header == 0:
            break
        start = at + entry_header
        if kind == FATBIN_KIND_ELF:
            if blob[start : start + 4] == ELF_MAGIC:
                return blob[start : start + payload]
            raise CubinError("the fat binary stores its cubin compressed, which this reader does not undo")
        at = start + payload
    raise CubinError("the fat binary holds no cubin")


def resources(cubin: bytes) -> dict[str, Resources]:
    """Registers, shared and local memory of every kernel in a cubin, by kernel name.

    Raises CubinError when the bytes are not a complete 64-bit ELF file.
    """
    try:
        sections = _sections(cubin)
        symbols = _symbol_names(sections)
        registers, frames = _per_symbol(sections, symbols)
        kernels = [name.removeprefix(".text.") for name in sections if name.startswith(".text.")]
        return {
            kernel: Resources(
                registers=registers[kernel],
                shared_bytes=_declared_shared(sections.get(f".nv.shared.{kernel}")),
                local_bytes=frames.get(kernel, 0),
                required_threads=_block_shape(sections.get(f".nv.info.{kernel}")),
            )
            for kernel in kernels
            if f".nv.info.{kernel}" in sections
        }
    except (struct.error, UnicodeDecodeError, IndexError, KeyError) as error:
        raise CubinError(f"the cubin is damaged or of an unknown kind: {error!r}") from error


def _sections(elf: bytes) -> dict[str, _Section]:
    """Every section by name. ELF-64 header: e_shoff at 0x28, e_shentsize, e_shnum and e_shstrndx at 0x3A."""
    if elf[:4] != ELF_MAGIC or elf[4] != ELFCLASS64:
        raise CubinError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    # Elf64_Shdr: sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, and four fields of no use here
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry_size) for i in range(count)]
    names_offset = headers[names_index][4]
    sections = {}
    for name_at, kind, _, _, offset, size, *_ in headers:
        name = _string(elf, names_offset + name_at)
        data = b"" if kind == SHT_NOBITS else elf[offset : offset + size]
        if kind != SHT_NOBITS and len(data) != size:
            raise CubinError(f"the cubin is cut short: section {name} ends beyond the file")
        sections[name] = _Section(name, size, data)
    return sections


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(0, at)].decode() if 0 in data[at:] else data[at:].decode()


def _symbol_names(sections: dict[str, _Section]) -> list[str]:
    """Names in symbol table order, which is how .nv.info refers to kernels. An Elf64_Sym is 24 bytes."""
    symtab, strtab = sections[".symtab"].data, sections[".strtab"].data
    return [_string(strtab, struct.unpack_from("<I", symtab, at)[0]) for at in range(0, len(symtab), 24)]


def _attributes(data: bytes) -> list[tuple[int, bytes]]:
    """The (attribute, value) pairs of an .nv.info section."""
    pairs, at = [], 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == EIFMT_SVAL:
            pairs.append((attribute, data[at : at + value]))
            at += value
        else:
            pairs.append((attribute, struct.pack("<H", value)))
    return pairs


def _per_symbol(sections: dict[str, _Section], symbols: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Register counts and stack frame sizes by kernel name."""
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for attribute, value in _attributes(sections[".nv.info"].data):
        table = {EIATTR_REGCOUNT: registers, EIATTR_FRAME_SIZE: frames}.get(attribute)
        if table is not None:
            symbol, number = struct.unpack("<II", value)
            table[symbols[symbol]] = number
    return registers, frames


def _declared_shared(section: _Section | None) -> int:
    return max(0, section.size - RESERVED_SHARED_BYTES) if section else 0


def _block_shape(info: _Section | None) -> tuple[int, int, int] | None:
    for attribute, value in _attributes(info.data if info else b""):
        if attribute == EIATTR_REQNTID:
            x, y, z = struct.unpack("<III", value)
            return (x, y, z)
    return None


def find_disassembler() -> Path | None:
    """NVIDIA's nvdisasm: the PyPI package's first, so that every machine reads SASS with the same one.

    Then PATH, CUDA_HOME or CUDA_PATH, /usr/local/cuda, and the copy inside the triton package.
    """
    packages = [Path(entry) for entry in sys.path if entry]
    roots = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    on_path = shutil.which("nvdisasm")
    candidates = [
        *(tool for folder in packages for tool in sorted(folder.glob("nvidia/*/bin/nvdisasm"))),
        *([Path(on_path)] if on_path else []),
        *(Path(root) / "bin" / "nvdisasm" for root in [*roots, "/usr/local/cuda"]),
        *(folder / "triton/backends/nvidia/bin/nvdisasm" for folder in packages),
    ]
    return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)


@functools.lru_cache(maxsize=64)
def disassemble(cubin: bytes) -> dict[str, str]:
    """SASS text of every kernel in a cubin, by kernel name.

    A text that the disassembler printed once is kept on disk. Raises DisassemblerMissing where there is no nvdisasm,
    CubinError where it refuses the bytes.
    """
    tool = find_disassembler()
    if tool is None:
        raise DisassemblerMissing(
            "reading SASS needs NVIDIA's nvdisasm, and this machine has none: "
            "type `pip install nvidia-cuda-nvdisasm` (needs no GPU), or put a CUDA toolkit's bin on PATH"
        )
    name = compile_cache.key(b"nvdisasm", _identity(tool), cubin)
    if (kept := compile_cache.load(name)) is not None:
        text = kept["sass"].decode()
    else:
        text = _disassembled(tool, cubin)
        compile_cache.store(name, {"sass": text.encode()})
    parts = _FUNCTION.split(text)  # text before the first kernel, then name, body, name, body, ...
    return {name: _until_next_section(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def _identity(tool: Path) -> bytes:
    """What tells a program apart from another one at the same path."""
    status = tool.stat()
    return f"{tool.resolve()} {status.st_size} {status.st_mtime_ns}".encode()


def _disassembled(tool: Path, cubin: bytes) -> str:
    """What nvdisasm prints of a cubin; up to two seconds of work."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        try:
            command = [str(tool), "-c", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except subprocess.TimeoutExpired as error:
            raise CubinError(f"{tool.name} gave no answer in 300 s") from error
    if done.returncode != 0:
        raise CubinError(f"{tool.name} refused the cubin: {done.stderr.strip() or 'no reason given'}")
    return done.stdout


def _until_next_section(body: str) -> str:
    return body.split("\n//----", 1)[0].strip("\n")


def count_sass(text: str) -> Counter[str]:
    """How often each SASS opcode stands in the text, modifiers included (`LDG.E.128`), guards left out."""
    return Counter(match[1] for match in map(_INSTRUCTION.search, text.splitlines()) if match)
