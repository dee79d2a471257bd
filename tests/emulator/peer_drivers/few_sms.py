"""Run a script as if the GPU had few SMs: `few_sms.py N SCRIPT ...`.  A persistent CTA has more than one tile then."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import cutlass.utils


def main() -> None:
    """Answer N to whoever asks how many SMs or clusters run at once, and become the script."""
    count, script = int(sys.argv[1]), Path(sys.argv[2]).resolve()
    for question in ("get_max_active_clusters", "get_device_multiprocessor_count"):
        setattr(cutlass.utils.HardwareInfo, question, lambda *_, **__: count)
    sys.argv = [str(script), *sys.argv[3:]]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
