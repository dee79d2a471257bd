"""Print what the emulator says of each mistake: `python -m tests.emulator.ordering [OPTIONS] [NAME...]`.

`--write` records it for the book's page about the emulator.
"""

from __future__ import annotations

import argparse
import os

from tests.emulator.ordering import record
from tests.emulator.ordering.cases import MISTAKES


def main() -> None:
    """Print what is said of each mistake."""
    parser = argparse.ArgumentParser(description="What the emulator says of each mistake in ordering.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mistakes; all if none is named")
    parser.add_argument("--policy", default="late", help="when operations complete: late, early or random:N")
    parser.add_argument("--schedule", default="order", help="in which order warps run: order or random:N")
    parser.add_argument("--write", action="store_true", help=f"record it in {record.FILE.name}, for the book")
    options = parser.parse_args()
    if options.write and options.names:
        parser.error("the record is of all mistakes")
    os.environ |= {"CUTETUT_ASYNC": options.policy, "CUTETUT_SCHEDULE": options.schedule}
    rows = []
    for name in options.names or MISTAKES:
        answer = record.ask(name)
        rows.append(record.row(name, answer))
        print(f"{name:36} {'new ' if MISTAKES[name].new else '    '} {answer}", flush=True)
    if options.write:
        record.write(rows, options.policy, options.schedule)


if __name__ == "__main__":
    main()
