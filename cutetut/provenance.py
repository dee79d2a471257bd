"""Which machine and which versions made an output: recorded with it, shown beside it."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cutetut.backend import CAPABILITY

FIELDS = ("gpu", "driver", "cuda", "torch", "cutlass_dsl", "date")


class NotRecordable(RuntimeError):
    """Outputs are recorded on a Hopper GPU only, and this machine has none that torch can use."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as the driver reports it; capability is "9.0" for Hopper."""

    name: str
    capability: str
    driver: str


def gpus() -> list[Gpu]:
    """The NVIDIA GPUs of this machine by the driver's own tool, which needs neither CUDA nor torch."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(done.stdout) if done.returncode == 0 else []


def parse_gpus(text: str) -> list[Gpu]:
    """The GPUs in nvidia-smi's `name, compute_cap, driver_version` lines; other lines are its complaints."""
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
    return [Gpu(*row) for row in rows if len(row) == 3 and re.fullmatch(r"\d+\.\d+", row[1])]


def version(package: str) -> str | None:
    """The installed version of a package, or None; does not import it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def today() -> str:
    """The date in UTC as YYYY-MM-DD."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def collect() -> dict[str, str]:
    """The provenance of a run on this machine's GPU 0: the keys of FIELDS, each a string.

    Raises NotRecordable on a machine where torch sees no Hopper GPU, saying what it sees instead.
    """
    try:
        import torch
    except ImportError as error:
        raise NotRecordable("this needs a Hopper GPU and torch with CUDA; torch is not installed here") from error
    if not torch.cuda.is_available():
        seen = ", ".join(gpu.name for gpu in gpus()) or "no NVIDIA GPU"
        raise NotRecordable(
            f"this needs a Hopper GPU (H100, H200): torch {torch.__version__} can use none here ({seen}). "
            "Run this on a GPU host; here `python -m cutetut run` runs the same notebooks in the emulator"
        )
    name, capability = torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0)
    if capability != CAPABILITY:
        raise NotRecordable(
            "this needs a Hopper GPU (compute capability {}.{})".format(*CAPABILITY)
            + "; GPU 0 here is {} with {}.{}".format(name, *capability)
        )
    return {
        "gpu": name,
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "cutlass_dsl": version("nvidia-cutlass-dsl") or "unknown",
        "date": today(),
    }


def _driver() -> str:
    found = gpus()
    if found:
        return found[0].driver
    proc = Path("/proc/driver/nvidia/version")
    match = re.search(r"Kernel Module\S*\s+(?:for \S+\s+)?(\d[\d.]+)", proc.read_text()) if proc.exists() else None
    return match[1] if match else "unknown"


def sentence(facts: dict[str, str]) -> str:
    """Provenance as the line that tables and pages show."""
    return (
        f"{facts['gpu']}, driver {facts['driver']}, CUDA {facts['cuda']}, torch {facts['torch']}, "
        f"CuTe DSL {facts['cutlass_dsl']}, {facts['date']}"
    )
