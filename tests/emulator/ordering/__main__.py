"""Print what the emulator says of each mistake: `python -m tests.emulator.ordering [OPTIONS] [NAME...]`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from cutetut.emulator.errors import EmulatorError
from tests.emulator.ordering.cases import KERNELS, MISTAKES
from tests.emulator.ordering.model import Launch, missing


def said(name: str) -> str:
    """What the emulator says of a mistake, in a few words."""
    mistake = MISTAKES[name]
    kernel = KERNELS[mistake.kernel]
    with tempfile.TemporaryDirectory() as folder:
        loaded = kernel.load(Path(folder), mistake.changes)
        launch = Launch(kernel, loaded)
        try:
            launch()
        except EmulatorError as error:
            kind = "told" if isinstance(error, mistake.errors) else "another error"
            if left_out := missing(loaded, mistake, error):
                kind += f", without {', '.join(left_out)}"
            return f"{kind}: {type(error).__name__}: {error.what}"
        return f"NOTHING, the result is {'right' if launch.right else 'wrong'}"


def main() -> None:
    """Print what is said of each mistake."""
    parser = argparse.ArgumentParser(description="What the emulator says of each mistake in ordering.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mistakes; all if none is named")
    parser.add_argument("--policy", default="late", help="when operations complete: late, early or random:N")
    parser.add_argument("--schedule", default="order", help="in which order warps run: order or random:N")
    options = parser.parse_args()
    os.environ |= {"CUTETUT_ASYNC": options.policy, "CUTETUT_SCHEDULE": options.schedule}
    for name in options.names or MISTAKES:
        print(f"{name:36} {'new ' if MISTAKES[name].new else '    '} {said(name)}", flush=True)


if __name__ == "__main__":
    main()
