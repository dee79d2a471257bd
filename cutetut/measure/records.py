"""A chapter's other tables, such as counters or latencies, beside its table of speeds in book/data.

A chapter's `benchmark` writes them with `write`, under the chapter's name and another word; its cells read them with
`read` on every machine.
"""

from __future__ import annotations

import json
from typing import Any

from cutetut.course import notebooks, provenance
from cutetut.measure import bench


def write(chapter: str, what: str, content: Any) -> None:
    """Write book/data/CHAPTER_WHAT.json: the content, which has to be JSON, with the machine and the code's hash."""
    path = bench.data_file(f"{chapter}_{what}")
    facts = provenance.of_several(provenance.collect(), notebooks.notebook(chapter).gpus)
    head = {"notebook": chapter, "provenance": facts, "code_hash": bench.current_hash(chapter)}
    notebooks.replace_text(path, json.dumps({**head, what: content}, indent=1, allow_nan=False) + "\n")


def read(chapter: str, what: str) -> Any:
    """What `write` has written, without its head; raises BenchError, which says how to record it, if it is missing."""
    return _content(chapter, what)[what]


def source(chapter: str, what: str) -> str:
    """Where and when it was measured, in a sentence, and whether the chapter's kernels have changed since."""
    return bench.origin(chapter, _content(chapter, what))


def _content(chapter: str, what: str) -> dict[str, Any]:
    return bench.content_of(chapter, bench.data_file(f"{chapter}_{what}"), what)
