"""The report of the emulator that the README and the book's first page show.

`python -m tests.book.recorded_report --write` runs `examples/missing_barrier.py` and writes its report beside it and
into the README; without `--write` it prints it. A test fails when either is older than what the emulator reports.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "missing_barrier.py"
RECORD = SCRIPT.with_suffix(".txt")
README = ROOT / "README.md"
BLOCK = re.compile(r"(?<=```text\n)MissingBarrier: .*?(?=\n```)", re.DOTALL)


def report(script: Path = SCRIPT) -> str:
    """Return the report with which `cutetut emulate` ends a script, from the error's name on.

    Raises RuntimeError when the emulator finds nothing.
    """
    command = [sys.executable, "-m", "cutetut", "emulate", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    found = re.search(r"^cutetut\.emulator\.errors\.(.*)\Z", done.stderr, re.DOTALL | re.MULTILINE)
    if done.returncode == 0 or found is None:
        raise RuntimeError(f"the emulator reports nothing of {script.name}: {done.stdout}{done.stderr}")
    return re.sub(r" ?\t", " ", found[1]).rstrip() + "\n"


def in_readme(text: str) -> str:
    """Return the report in the README's text. Raises RuntimeError unless there is exactly one."""
    found = BLOCK.findall(text)
    if len(found) != 1:
        raise RuntimeError("README.md must hold one report of the emulator, in a block of ```text")
    return str(found[0]) + "\n"


def main() -> None:
    text = report()
    print(text, end="")
    if "--write" in sys.argv[1:]:
        RECORD.write_text(text, encoding="utf-8")
        page = README.read_text(encoding="utf-8")
        README.write_text(page.replace(in_readme(page), text), encoding="utf-8")


if __name__ == "__main__":
    main()
