"""Which GPUs this machine has, and the clock of one, from the driver and its own tool, without torch."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

QUERY_LIMIT = 30  # seconds for nvidia-smi
_MODULE_VERSION = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as the driver reports it; capability is "9.0" for Hopper."""

    name: str
    capability: str
    driver: str


def first_gpu() -> tuple[str, tuple[int, int]] | None:
    """Name and compute capability of the first GPU that CUDA shows this process; None without one.

    CUDA's own library is asked, so that CUDA_VISIBLE_DEVICES counts; nvidia-smi would list all GPUs.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    if cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, len(name), device):
        return None
    numbers = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
        value = ctypes.c_int()
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
        numbers.append(value.value)
    return name.value.decode(), (numbers[0], numbers[1])


def gpus() -> list[Gpu]:
    """The NVIDIA GPUs of this machine, visible to CUDA or not; none where nvidia-smi is missing or fails."""
    rows = _query("name", "compute_cap", "driver_version")
    return [Gpu(*row) for row in rows if re.fullmatch(r"\d+\.\d+", row[1])]


def driver_version() -> str:
    """The version of NVIDIA's driver, such as "580.159.04", or "unknown"."""
    found = gpus()
    if found:
        return found[0].driver
    text = _MODULE_VERSION.read_text() if _MODULE_VERSION.exists() else ""  # a container may have no nvidia-smi
    match = re.search(r"Kernel Module\S*\s+(?:for \S+\s+)?(\d[\d.]+)", text)
    return match[1] if match else "unknown"


def _query(*fields: str) -> list[list[str]]:
    """These fields of each GPU, a row each, from nvidia-smi, which comes with the driver; no rows where it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == len(fields)]
