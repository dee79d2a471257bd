"""The list of exercises: what it reads of a chapter, and that each published exercise has what its page shows."""

from __future__ import annotations

import nbformat
import pytest

from cutetut.course import concordance, exercises, notebooks
from cutetut.course.exercises import ALGEBRA, EMULATOR, NUMBERS

LISTED = exercises.collect()


@pytest.mark.parametrize("exercise", LISTED, ids=lambda each: each.key)
def test_each_exercise_has_a_difficulty(exercise: exercises.Exercise) -> None:
    found = exercise.difficulty
    assert found in exercises.DIFFICULTIES, (
        f'{exercise.key}: add "cutetut": {{"difficulty": 1}} to the metadata of its cell'
    )
    assert len(exercise.asks.split()) >= 4 and exercise.title


def test_every_chapter_has_its_exercises_in_order() -> None:
    chapters = [path.stem for path in concordance.order(drafts=False)]
    assert list(exercises.counts(LISTED)) == chapters
    for chapter, (total, of_kernels) in exercises.counts(LISTED).items():
        numbers = [each.number for each in LISTED if each.chapter == chapter]
        assert numbers == list(range(1, total + 1)) and total >= 3 and of_kernels >= 1
    assert len({each.key for each in LISTED}) == len(LISTED)
    for level in exercises.DIFFICULTIES:  # a scale of which a level is never used says nothing
        assert sum(each.difficulty == level for each in LISTED) >= len(LISTED) // 10


# read by hand in the chapters' checks
JUDGED = {
    "00_start_here/ex4": NUMBERS, "00_start_here/ex5": EMULATOR, "01_layouts/blocks": ALGEBRA,
    "03_tensors_and_jit/ex1": NUMBERS, "04_scalar_fma_gemm/ex4": EMULATOR, "05_partition_c/exercise-5": ALGEBRA,
    "07_mma_sync/ex1": NUMBERS, "11_tma/ex4": EMULATOR, "13_warp_specialized/ex4": EMULATOR,
    "14_persistent/ex2": NUMBERS, "14_persistent/ex3": EMULATOR, "16_rows/ex3": EMULATOR, "18_fa_tma/ex3": EMULATOR,
    "19_fa_wgmma/ex2": NUMBERS, "19_fa_wgmma/ex5": EMULATOR, "24_flash_decode/ex2": NUMBERS,
    "museum_of_bugs/ex5": EMULATOR, "26_two_gpus/ex1": NUMBERS, "26_two_gpus/ex4": EMULATOR,
}  # fmt: skip
OF_KERNELS = {"00_start_here/ex5": True, "05_partition_c/exercise-1": False, "24_flash_decode/ex4": True}


@pytest.mark.parametrize("key", JUDGED)
def test_who_judges_an_exercise(key: str) -> None:
    found = next(each for each in exercises.of_chapter(key.partition("/")[0]) if each.key == key)
    assert found.judge == JUDGED[key] and found.of_kernel is OF_KERNELS.get(key, found.of_kernel)


def chapter(*cells: object) -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook()
    made.cells = list(cells)
    return made


CHECK = "@judged\ndef check_sum(answer):\n    must(answer)\n\n\ndef must(answer):\n    emulated(launch, answer)"
TEXT = (
    "## Exercises\n\nAll judged.\n\n### 1. A sum\n\n"
    "There are [warps](../book/glossary.md#warp). Write `add`: it adds. Then rest."
)
SUM = "@cute.jit\ndef add(a, b):\n    return a\n\n\ncheck_sum(add)"


def of(monkeypatch: pytest.MonkeyPatch, *cells: object) -> list[exercises.Exercise]:
    monkeypatch.setattr(notebooks, "read", lambda name: chapter(*cells))
    return exercises.of_chapter("00_start_here")


def test_what_is_read_of_an_exercise(monkeypatch: pytest.MonkeyPatch) -> None:
    new = nbformat.v4
    cells = [
        new.new_code_cell(CHECK, id="ex1-check"),
        new.new_markdown_cell(TEXT, id="ex1-md"),
        new.new_code_cell(SUM, id="ex1", metadata={"cutetut": {"difficulty": 2}}),
        new.new_code_cell(SUM, id="ex1-solution"),
    ]
    (found,) = of(monkeypatch, *cells)
    assert (found.number, found.title, found.asks) == (1, "A sum", "Write `add`: it adds.")
    assert (found.difficulty, found.judge, found.of_kernel) == (2, EMULATOR, True)
    cells[2].metadata.clear()
    assert of(monkeypatch, *cells)[0].difficulty is None
    cells[1].source = "## Exercises"
    with pytest.raises(notebooks.NotebookError, match="a numbered heading"):
        of(monkeypatch, *cells)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("A is (8,8). Which B turns it? Think.", "Which B turns it?"),
        ("It never begins. Why?", "It never begins."),
        ("See [chapter 16](16_rows.ipynb) and [a paper](https://example.org). Go on.", "See chapter 16 and a paper."),
        ("Write `f(x)`, as x = 1.5 is\none case.\n\n- a list", "Write `f(x)`, as x = 1.5 is one case."),
    ],
)
def test_the_sentence_that_asks(text: str, asked: str) -> None:
    assert exercises.request_in(f"### 1. A heading\n\n{text}") == asked


def test_the_command_says_what_lacks_a_difficulty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exercises.main(["01_layouts"]) == 0
    assert "5 exercises; in 2 of them you write kernel code" in capsys.readouterr().out
    monkeypatch.setattr(exercises, "DIFFICULTIES", {1: "one step"})
    assert exercises.main(["01_layouts"]) == 1
    assert "! 01_layouts/blocks: " in capsys.readouterr().out
    assert exercises.main(["no_such_chapter"]) == 1
