"""What a chapter says before anything runs: the stake, with numbers that its own cell prints. And all of its prose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cutetut.course import concordance, notebooks
from tests.chapters import contract
from tests.chapters.exercises import printed

STAKES = [path for path in notebooks.toc() if path.stem < "08"]
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")


def stake(cells: list[Any]) -> str:
    """The paragraph that names the stake; it stands before the first cell of code."""
    first = next(index for index, cell in enumerate(cells) if cell.cell_type == "code")
    paragraphs = [part for cell in cells[:first] for part in cell.source.split("\n\n")]
    (found,) = (part for part in paragraphs if part.startswith("The stake"))
    return found


@pytest.mark.parametrize("path", STAKES, ids=lambda path: path.stem)
def test_the_stake_comes_first_and_has_the_recorded_numbers(path: Path) -> None:
    cells = notebooks.read(path).cells
    said, (shown,) = set(NUMBER.findall(stake(cells))), (printed(cell) for cell in cells if cell.id == "stake")
    recorded = set(NUMBER.findall(shown))
    assert len(said & recorded) >= 2, "from where to where?"
    assert {number for number in said if "." in number} <= recorded


def measured(content: Any) -> Iterator[float]:
    """All numbers in a file of measurements."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for part in content:
            yield from measured(part)
    elif isinstance(content, int | float):
        yield float(content)


@pytest.mark.parametrize("number", range(27))
def test_the_numbers_of_the_stake_were_printed_or_measured(number: int) -> None:
    """Each decimal, and each whole number from 20 on, is one that the chapter prints, or rounds one that was measured.

    Measured for the chapter, or for the one before, with which a stake may begin.
    """
    numbered = [path for path in notebooks.toc() if path.stem[0].isdigit()]
    cells, chapters = notebooks.read(numbered[number]).cells, numbered[max(0, number - 1) : number + 1]
    first = next(index for index, cell in enumerate(cells) if cell.cell_type == "code")
    opening = "\n\n".join(cell.source for cell in cells[: first + 2] if cell.cell_type == "markdown").split("\n\n")
    said = next(part for part in opening if part.startswith(("The stake", "Where")))
    shown = "\n".join(printed(cell) for cell in cells if cell.cell_type == "code")
    known = [float(found.replace(",", "")) for found in NUMBER.findall(shown)]
    for chapter in chapters:
        for file in (notebooks.project_root() / "book" / "data").glob(f"{chapter.stem}*.json"):
            known += measured(json.loads(file.read_text()))
    for found in NUMBER.findall(re.sub(r"\(https?://\S+\)", "", said)):
        value, digits = float(found.replace(",", "")), len(found.partition(".")[2])
        if digits or value >= 20:
            assert any(round(one, digits) == value for one in known), f"{found}: {said}"


@pytest.mark.parametrize("path", concordance.order(), ids=lambda path: path.stem)
def test_no_sum_becomes_a_list(path: Path) -> None:
    """A line of a paragraph that begins with a plus, a minus or `1.` starts a list, wherever the text wraps."""
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "markdown":
            for paragraph in re.sub(r"^ *```.*?^ *```", "", cell.source, flags=re.MULTILINE | re.DOTALL).split("\n\n"):
                first, *rest = paragraph.strip().splitlines() or [""]
                if not re.match(r"\s*([-*+]|\d+\.) |[|#]", first):
                    broken = [line for line in rest if re.match(r"[+*] |1\. ", line)]
                    assert broken == [], cell.id


@pytest.mark.parametrize("path", concordance.order(), ids=lambda path: path.stem)
def test_links_are_links_in_every_editor(path: Path) -> None:
    """MyST's roles and directives are markup in the book alone: JupyterLab, VS Code and Colab show their braces.

    So chapters link one another and the book's pages by path, and a term by its id, which the book's build checks.
    """
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"^ *```\w*$.*?^ *```", "", cell.source, flags=re.MULTILINE | re.DOTALL)
            assert re.findall(r"\{[a-z:]+\}`|^ *(?:```\{|:::).*", text, re.MULTILINE) == [], cell.id
            for address in re.findall(r"\]\(([^)\s]*)\)", text):
                assert address.startswith("https://") or (path.parent / address.split("#")[0]).is_file(), cell.id


@pytest.mark.parametrize("path", concordance.order(), ids=lambda path: path.stem)
def test_a_chapter_has_at_most_4000_words_by_a_plain_split_too(path: Path) -> None:
    """The contract counts words as a reader does, without fenced code and signs; this counts all that is typed."""
    contract.assert_few_words(path)


def test_no_word_is_new_in_two_recaps() -> None:
    new_in: dict[str, list[str]] = {}
    for path in concordance.order():
        for cell in notebooks.read(path).cells:
            for line in re.findall(r"^New words?: ([^;]*?)(?:;|\.$|\n\n|\Z)", cell.source, re.MULTILINE):
                for shown in re.findall(r"\[([^\]]*)\]\(\.\./book/glossary\.md#", line):
                    new_in.setdefault(shown.lower().removesuffix("s"), []).append(path.stem)
    assert {word: chapters for word, chapters in new_in.items() if len(chapters) > 1} == {}
    assert len({chapter for chapters in new_in.values() for chapter in chapters}) > 20, "it sees the recaps"
