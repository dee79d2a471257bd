"""The errata: which claims it must have, and that a cell of a published chapter settles each."""

from __future__ import annotations

import re

import pytest

from cutetut.course import concordance, notebooks
from tests.book.building import ROOT, built

ROWS = [
    [cell.strip() for cell in line.strip("| \n").split(" | ")]
    for line in (ROOT / "book" / "errata.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| the claim", "| ---"))
]
CLAIMS = {  # words of a claim that the five texts make, and of what is true
    "mma.sync.m16n8k16": "((4,8),(2,2)):((32,1),(16,8))",
    "tid % 8": "tid % 4",
    "avoids bank conflicts": "Banks belong to shared memory",
    "a flat": "keeps the nesting",
    "no rest mode": "one of size 1",
    "must be divisible by the number of thread rows": "(8,4)",
    "only parameter that the author": "atom layout",
    "4x4 block are adjacent in memory": "a row apart",
    "need `bM >= 128`": "can only be K-major",
    "leading byte offset is always": "roles are reversed",
    "cannot be built from values known only at run time": "can be dynamic",
    "built once, when the kernel is compiled": "at every launch",
    "make_trivial_tiled_mma": "one instruction",
    "empties the tensor cores' pipeline": "A wait after every product",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_of_the_texts_is_there_with_what_is_true(claim: str) -> None:
    ((_, truth, _),) = [row for row in ROWS if claim in row[0]]
    assert CLAIMS[claim] in truth


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_cell_settles_each_claim(row: list[str]) -> None:
    """A code cell of a chapter that is in the book, which prints or draws something, or is the kernel itself."""
    assert len(row) == 3
    linked = re.fullmatch(r"\{cell\}`(\w+)/([\w-]+)`", row[2])
    assert linked, row[2]
    chapter, name = linked.groups()
    assert chapter in {path.stem for path in notebooks.toc()}
    assert concordance.place(chapter, name).heading
    cell = next(cell for cell in notebooks.read(chapter).cells if cell.id == name)
    assert cell.outputs or "kernel" in notebooks.tags(cell)


def test_each_row_leads_to_its_section() -> None:
    page = (built() / "book" / "errata.html").read_text(encoding="utf-8")
    links = re.findall(r'<td><p><a class="reference internal" href="\.\./notebooks/\w+\.html#[\w-]+">', page)
    assert len(links) == len(ROWS)
