"""The page of exercises: a row for each, linked to its place in its chapter, with its difficulty and its judge."""

from __future__ import annotations

import html
import re

import pytest

from cutetut.course import exercises
from tests.book.building import built
from tests.book.pages import of_the_book

ROW = re.compile(r'<tr class="row-\w+" id="([^"]+)">(.*?)</tr>', re.DOTALL)
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
LINK = re.compile(r'href="([^"#]*)#([^"]+)">(.*?)</a>', re.DOTALL)


@pytest.fixture(scope="module")
def page() -> str:
    return (built() / "book" / "exercises.html").read_text(encoding="utf-8")


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())


def test_each_exercise_has_a_row_with_its_difficulty_and_its_judge(page: str) -> None:
    rows = {key: [words(cell) for cell in CELL.findall(row)] for key, row in ROW.findall(page)}
    listed = exercises.collect()
    assert list(rows) == [each.key for each in listed]
    for each in listed:
        name, asked, difficulty, judge = rows[each.key]
        assert name.startswith(f"{each.number}. ") and judge == each.judge
        assert difficulty.endswith(f"{each.difficulty} of 3") and difficulty.count("●") == each.difficulty
        assert asked.endswith("Kernel code.") == each.of_kernel and len(asked.split()) > 3
        assert "{" + "term}" not in asked and "](" not in asked


def test_each_row_leads_to_the_heading_of_its_exercise(page: str) -> None:
    for key, row in ROW.findall(page):
        link = LINK.search(row)
        assert link, key
        chapter = key.partition("/")[0]
        path = built() / "notebooks" / f"{chapter}.html"
        assert (built() / "book" / link[1]).resolve() == path
        assert link[2] in of_the_book(path).ids


def test_the_page_says_how_many_there_are(page: str) -> None:
    listed = exercises.collect()
    of_kernels = sum(each.of_kernel for each in listed)
    counts = exercises.counts(listed)
    said = f"{len(listed)} exercises in {len(counts)} chapters; in {of_kernels} of them you write kernel code."
    assert said in words(page)
    counted = re.search(r'<p class="cutetut-exercises">.*?</table>', page, re.DOTALL)
    assert counted
    numbers = [tuple(map(int, re.findall(r"<td><p>(\d+)</p></td>", row))) for row in counted[0].split("<tr")[2:]]
    assert numbers == list(counts.values())


def test_only_this_page_loads_the_script() -> None:
    loading = {path.name for path in (built() / "book").glob("*.html") if "exercises.js" in path.read_text()}
    assert loading == {"exercises.html"}
