"""What inspect says about a kernel, held against nvdisasm, the PTX text and what the kernel does."""

from __future__ import annotations

import dataclasses
import re
import struct
import subprocess

import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack

from cutetut.inspect import cubin
from cutetut.inspect.compiled import CompileInfoError, CubinError, DisassemblerMissing, inspect, timed_compile

THREADS = 128


@cute.kernel
def reverse_kernel(m: cute.Tensor):
    """Reverse 128 floats through 128 floats of shared memory."""
    tid, _, _ = cute.arch.thread_idx()
    allocator = cutlass.memory.SmemAllocator()
    s = allocator.allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), byte_alignment=16)
    s[tid] = m[tid]
    cute.arch.sync_threads()
    m[tid] = s[THREADS - 1 - tid]


@cute.kernel
def scale_kernel(m: cute.Tensor):
    """m = m * 3 + 1, one fused multiply-add per thread."""
    tid, _, _ = cute.arch.thread_idx()
    m[tid] = m[tid] * 3.0 + 1.0


@cute.jit
def both(m: cute.Tensor):
    reverse_kernel(m).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))
    scale_kernel(m).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.jit
def scale(m: cute.Tensor):
    scale_kernel(m).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.jit
def run_time_shared(m: cute.Tensor, extra: cutlass.Int32):
    scale_kernel(m).launch(grid=(1, 1, 1), block=(THREADS, 1, 1), smem=extra)


@cute.kernel
def static_shared_kernel(m: cute.Tensor):
    """The reversal through statically declared shared memory."""
    tid, _, _ = cute.arch.thread_idx()
    s = cute.make_tensor(cute.arch.alloc_smem(cutlass.Float32, THREADS, 16), cute.make_layout(THREADS))
    s[tid] = m[tid]
    cute.arch.sync_threads()
    m[tid] = s[THREADS - 1 - tid]


@cute.jit
def static_shared(m: cute.Tensor):
    static_shared_kernel(m).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def local_array_kernel(m: cute.Tensor, index: cutlass.Int32):
    """A register array of 32 floats indexed by a run-time value has to live in local memory."""
    tid, _, _ = cute.arch.thread_idx()
    r = cute.make_rmem_tensor(cute.make_layout(32), cutlass.Float32)
    for i in cutlass.range_constexpr(32):
        r[i] = m[tid * 32 + i]
    for i in cutlass.range(32):
        m[tid] = m[tid] + r[(tid * index + i * 7) % 32]


@cute.jit
def local_array(m: cute.Tensor, index: cutlass.Int32):
    local_array_kernel(m, index).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def spilling_kernel(m: cute.Tensor):
    """200 live floats in each of 1024 threads, which leaves 64 registers per thread."""
    tid, _, _ = cute.arch.thread_idx()
    r = cute.make_rmem_tensor(cute.make_layout(200), cutlass.Float32)
    for i in cutlass.range_constexpr(200):
        r[i] = m[(tid + i) % THREADS]
    cute.arch.sync_threads()
    for i in cutlass.range_constexpr(200):
        m[(tid * i) % THREADS] = r[i] * r[(i * 7 + 13) % 200]


@cute.jit
def spilling(m: cute.Tensor):
    spilling_kernel(m).launch(grid=(1, 1, 1), block=(1024, 1, 1))


@pytest.fixture(scope="module")
def tensor(device):
    return from_dlpack(torch.zeros(THREADS, device=device))


@pytest.fixture(scope="module")
def compiled_both(tensor):
    return cute.compile(both, tensor)


@pytest.fixture(scope="module")
def scale_info(tensor):
    return inspect(cute.compile(scale, tensor))


def test_timed_compile_returns_the_compiled_function_and_prints_nothing(tensor, capfd):
    compiled, seconds = timed_compile(scale, tensor)
    assert 0 < seconds < 120
    assert inspect(compiled).name.startswith("kernel_cutlass_scale_kernel")
    assert capfd.readouterr() == ("", "")


def test_opcodes_are_those_the_kernel_was_written_with(scale_info):
    assert scale_info.opcodes["fma.rn.f32"] == 1
    assert scale_info.count("ld.global") == 1
    assert scale_info.count("st.global") == 1
    assert scale_info.count("ld") == scale_info.count("ld.global") + scale_info.count("ld.param")
    assert scale_info.count("fm") == 0  # a prefix ends at a dot
    assert scale_info.opcodes["ret"] == 1


def test_every_ptx_instruction_line_is_counted(compiled_both):
    """The DSL writes one instruction per line, which makes counting lines an independent oracle."""
    info = inspect(compiled_both, "reverse_kernel")
    text = info.ptx[info.ptx.index(f".entry {info.name}") :]
    body = text[text.index("{") : text.index("\n}")]
    lines = [line.strip() for line in body.splitlines() if line.strip().endswith(";")]
    instructions = [line for line in lines if not line.startswith(".")]
    assert info.opcodes.total() == len(instructions) > 8
    assert info.opcodes["bar.sync"] == 1


def test_statements_of_every_form_are_counted():
    from cutetut.inspect.compiled import _count_ptx

    text = """.visible .entry k(.param .b64 p) .reqntid 1 {
      .reg .b32 %r<9>;  // ld.global.b32 in a comment
      .loc 1 5 0, function_name info, inlined_at 1 2 3
      /* st.global.b32
         over lines */
      $L__BB0_1:
      @!%p1 bra $L__BB0_1;
      { .reg .pred q; setp.ne.b32 q, %r1, 0;
        @q ld.global.v2.b32 {%r1, %r2}, [%rd1]; }
      st.global.v2.b32 [%rd1], {%r1, %r2};
      wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,
         %f2}, %rd1, %rd2, p, 1, 1;
      cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
         [%r1], [%rd1, {%r1, %r2}], [%r2];
      call.uni (retval0), vprintf, (param0, param1);
      ret;
    }"""
    assert _count_ptx(text) == {
        "bra": 1,
        "setp.ne.b32": 1,
        "ld.global.v2.b32": 1,
        "st.global.v2.b32": 1,
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16": 1,
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes": 1,
        "call.uni": 1,
        "ret": 1,
    }


def test_block_shape_and_shared_memory_are_those_of_the_launch(compiled_both, scale_info):
    assert scale_info.threads == (THREADS, 1, 1)
    assert scale_info.shared_bytes == 0
    reverse = inspect(compiled_both, "reverse_kernel")
    assert (reverse.static_shared_bytes, reverse.dynamic_shared_bytes) == (0, THREADS * 4)
    assert inspect(compiled_both, "scale_kernel").shared_bytes == 0


def test_statically_declared_shared_memory_is_counted_without_the_reserved_kilobyte(tensor):
    info = inspect(cute.compile(static_shared, tensor))
    assert (info.static_shared_bytes, info.dynamic_shared_bytes) == (THREADS * 4, 0)


def test_shared_memory_that_a_run_time_value_decides_is_not_guessed(tensor):
    info = inspect(cute.compile(run_time_shared, tensor, cutlass.Int32(64)))
    assert info.shared_bytes is None
    assert "decided at launch" in str(info)


def test_a_local_array_shows_as_local_memory_and_not_as_spills(tensor, scale_info):
    info = inspect(cute.compile(local_array, tensor, cutlass.Int32(3)))
    assert info.local_bytes >= 32 * 4
    assert info.spills == 0
    assert info.count("LDL") > 0
    assert scale_info.local_bytes == 0 and scale_info.count("LDL") == 0


def test_spilled_registers_are_reported(tensor):
    info = inspect(cute.compile(spilling, tensor))
    assert info.registers == 64  # 65536 registers per SM over 1024 threads
    assert info.spills == info.local_bytes > 0
    assert info.count("STL") > 0 and info.count("LDL") > 0


def test_registers_cover_every_register_that_the_sass_names(compiled_both):
    """R0..Rn-1 are all that a kernel with n registers may name."""
    for part in ("reverse_kernel", "scale_kernel"):
        info = inspect(compiled_both, part)
        highest = max(int(number) for number in re.findall(r"\bR(\d+)\b", info.sass))
        assert highest < info.registers <= highest + 9  # the count is rounded up a little


def test_registers_and_frames_agree_with_nvdisasm(compiled_both, tmp_path):
    """nvdisasm prints the raw .nv.info words under their names: an independent reading of the same file."""
    info = inspect(compiled_both, "reverse_kernel")
    file = tmp_path / "kernel.cubin"
    file.write_bytes(info.cubin)
    tool = cubin.find_disassembler()
    assert tool is not None, "install the pinned nvidia-cuda-nvdisasm"
    text = subprocess.run([tool, file], capture_output=True, text=True, check=True).stdout
    pattern = r"EIATTR_{}\n.*?index@\((\S+)\)\n\s+/\*\w+\*/\s+\.word\s+(0x\w+)"
    for attribute, ours in (("REGCOUNT", "registers"), ("FRAME_SIZE", "local_bytes")):
        theirs = {k: int(v, 16) for k, v in re.findall(pattern.format(attribute), text, re.DOTALL)}
        assert theirs == {k: getattr(v, ours) for k, v in cubin.resources(info.cubin).items()}
        assert len(theirs) == 2


def test_sass_shows_the_machine_instructions(scale_info):
    assert scale_info.count("FFMA") == 1
    assert scale_info.count("LDG") == 1
    assert scale_info.count("STG") == 1
    assert scale_info.count("EXIT") >= 1


def test_sass_of_one_kernel_holds_nothing_of_the_other(compiled_both):
    assert inspect(compiled_both, "reverse_kernel").count("FFMA") == 0
    assert inspect(compiled_both, "reverse_kernel").count("BAR") == 1
    assert inspect(compiled_both, "scale_kernel").count("BAR") == 0


def test_without_a_disassembler_the_error_says_what_to_install(scale_info, monkeypatch):
    monkeypatch.setattr(cubin, "find_disassembler", lambda: None)
    cubin.disassemble.cache_clear()
    with pytest.raises(DisassemblerMissing, match="pip install nvidia-cuda-nvdisasm"):
        cubin.disassemble(scale_info.cubin)


def test_a_text_is_kept_for_as_long_as_the_disassembler_is_the_same(tmp_path, monkeypatch):
    """Another process does not start it again; one that was replaced, or another cubin, is asked."""
    tool, calls = tmp_path / "nvdisasm", tmp_path / "calls"
    monkeypatch.setenv("CUTETUT_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cubin, "find_disassembler", lambda: tool)

    def says(word):
        tool.write_text(f"#!/bin/sh\necho >> {calls}\nprintf '//--- x\\n.text.scale:\\n{word}\\n//---- y'\n")
        tool.chmod(0o755)

    def asked(data):
        cubin.disassemble.cache_clear()  # as in a process that has just begun
        return cubin.disassemble(data), calls.read_text().count("\n")

    says("EXIT ;")
    assert asked(b"one") == asked(b"one") == ({"scale": "EXIT ;"}, 1)
    assert asked(b"other") == ({"scale": "EXIT ;"}, 2)
    says("EXIT.NO_ATEXIT ;")
    assert asked(b"one") == asked(b"one") == ({"scale": "EXIT.NO_ATEXIT ;"}, 3)


def test_a_disassembler_that_hangs_is_given_up(monkeypatch):
    def hang(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(cubin.CubinError, match="gave no answer in 300 s"):
        cubin.disassemble(b"never seen before")


def test_several_kernels_have_to_be_told_apart(compiled_both):
    with pytest.raises(CompileInfoError, match=r"(?s)2 kernels match.*reverse_kernel.*scale_kernel"):
        inspect(compiled_both)
    with pytest.raises(CompileInfoError, match="no kernel matches kernel='nope'"):
        inspect(compiled_both, "nope")


def test_other_objects_are_refused():
    with pytest.raises(CompileInfoError, match="pass what cute.compile returned"):
        inspect(scale)


def test_damaged_binaries_are_refused(scale_info):
    image = scale_info.cubin
    with pytest.raises(CubinError, match="not a 64-bit ELF"):
        cubin.resources(b"\x7fELF\x01" + image[5:])
    section_table = struct.unpack_from("<Q", image, 0x28)[0]
    for cut in (10, 100, len(image) // 2, section_table + 100):
        with pytest.raises(CubinError):
            cubin.resources(image[:cut])
    with pytest.raises(CubinError, match="magic number"):
        cubin.from_fatbin(b"PK" + bytes(100))
    with pytest.raises(CubinError, match="refused the cubin"):
        cubin.disassemble(image[: len(image) // 2])


def _fatbin(kind: int, payload: bytes) -> bytes:
    entry = struct.pack("<HHIQ", kind, 0x101, 64, len(payload)) + bytes(48) + payload
    return struct.pack("<IHHQ", cubin.FATBIN_MAGIC, 1, 16, len(entry)) + entry


def test_the_fat_binary_is_walked_entry_by_entry():
    ptx, elf = _fatbin(1, b"ptx text")[16:], _fatbin(2, b"\x7fELF rest")[16:]
    both_entries = struct.pack("<IHHQ", cubin.FATBIN_MAGIC, 1, 16, len(ptx) + len(elf)) + ptx + elf
    assert cubin.from_fatbin(both_entries) == b"\x7fELF rest"
    with pytest.raises(CubinError, match="holds no cubin"):
        cubin.from_fatbin(_fatbin(1, b"ptx text"))
    with pytest.raises(CubinError, match="compressed"):
        cubin.from_fatbin(_fatbin(2, b"\x28\xb5\x2f\xfd"))


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "ctas"),
    [
        (32, 16, 0, 32),  # an SM holds 32 CTAs
        (1024, 32, 0, 2),  # and 64 warps
        (256, 128, 0, 2),  # and 65536 registers,
        (256, 129, 0, 1),  # which are given out by eights
        (128, 168, 0, 3),
        (96, 168, 0, 4),  # to four warps alike: 12 warps of 5376 registers
        (128, 32, 113 * 1024, 2),  # and 228 KiB, 1 KiB of which goes with each CTA
        (128, 32, 113 * 1024 + 1, 1),
        (1024, 72, 0, 0),
    ],
)
def test_ctas_per_sm(compiled_both, threads, registers, shared, ctas):
    resources = {"threads": (threads, 1, 1), "registers": registers, "dynamic_shared_bytes": shared}
    info = dataclasses.replace(inspect(compiled_both, "scale_kernel"), static_shared_bytes=0, **resources)
    assert info.ctas_per_sm == ctas


def test_ctas_per_sm_of_what_only_a_launch_decides_are_refused(compiled_both):
    info = inspect(compiled_both, "scale_kernel")
    for unknown, what in (
        (dataclasses.replace(info, threads=None), "threads"),
        (dataclasses.replace(info, dynamic_shared_bytes=None), "shared memory"),
    ):
        with pytest.raises(CompileInfoError, match=f"gets its {what} at launch"):
            _ = unknown.ctas_per_sm


@pytest.mark.gpu
@pytest.mark.parametrize("threads", [32, 96, 128, 224, 256, 384, 1024])
def test_ctas_per_sm_agree_with_the_driver(compiled_both, threads):
    from cuda.bindings import driver

    torch.zeros(1, device="cuda")  # a context to load into
    for name in ("reverse_kernel", "scale_kernel"):
        info = dataclasses.replace(inspect(compiled_both, name), threads=(threads, 1, 1))
        _, module = driver.cuModuleLoadData(info.cubin)
        _, function = driver.cuModuleGetFunction(module, info.name.encode())
        dynamic = info.dynamic_shared_bytes or 0
        _, ctas = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, dynamic)
        assert info.ctas_per_sm == ctas


@pytest.mark.gpu
def test_registers_and_local_memory_agree_with_the_driver(compiled_both):
    """cuFuncGetAttribute on the loaded kernel is the driver's own count."""
    from cuda.bindings import driver

    torch.zeros(1, device="cuda")  # a context to load into
    info = inspect(compiled_both, "reverse_kernel")
    _, module = driver.cuModuleLoadData(info.cubin)
    _, function = driver.cuModuleGetFunction(module, info.name.encode())
    attribute = driver.CUfunction_attribute
    measured = {
        name: driver.cuFuncGetAttribute(getattr(attribute, f"CU_FUNC_ATTRIBUTE_{name}"), function)[1]
        for name in ("NUM_REGS", "LOCAL_SIZE_BYTES", "SHARED_SIZE_BYTES")
    }
    assert measured["NUM_REGS"] == info.registers
    assert measured["LOCAL_SIZE_BYTES"] == info.local_bytes
    assert measured["SHARED_SIZE_BYTES"] >= info.static_shared_bytes
