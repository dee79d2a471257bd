"""Which machine and which versions made an output: recorded with it, shown beside it."""

from __future__ import annotations

import datetime
from importlib import metadata

from cutetut import hardware
from cutetut.backend import CAPABILITY

FIELDS = ("gpu", "driver", "cuda", "torch", "cutlass_dsl", "date")


class NotRecordable(RuntimeError):
    """Outputs are recorded on a Hopper GPU only, and this machine has none that torch can use."""


def version(package: str) -> str | None:
    """The installed version of a package, or None; does not import it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cudnn() -> str:
    """cuDNN by name, with the version that PyTorch uses, such as "cuDNN 9.19.0"; the name alone where it has none."""
    import torch

    number = torch.backends.cudnn.version()
    return f"cuDNN {number // 10000}.{number // 100 % 100}.{number % 100}" if number else "cuDNN"


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
        seen = ", ".join(gpu.name for gpu in hardware.gpus()) or "no NVIDIA GPU"
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
        "driver": hardware.driver_version(),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "cutlass_dsl": version("nvidia-cutlass-dsl") or "unknown",
        "date": today(),
    }


def of_several(facts: dict[str, str], gpus: int) -> dict[str, str]:
    """The same for a run on several such GPUs: "2 x NVIDIA H200"."""
    return facts if gpus == 1 else {**facts, "gpu": f"{gpus} x {facts['gpu']}"}


def sentence(facts: dict[str, str]) -> str:
    """Provenance as the line that tables and pages show."""
    return (
        f"{facts['gpu']}, driver {facts['driver']}, CUDA {facts['cuda']}, torch {facts['torch']}, "
        f"CuTe DSL {facts['cutlass_dsl']}, {facts['date']}"
    )
