"""The chapters' exercises: where each stands, what it asks, how hard it is, and what judges an answer.

    python -m cutetut.course.exercises [NAME ...]    list those of these chapters, or of all

An exercise is a code cell that calls a check, with a solution in a cell whose id is the same with "-solution" appended.
How hard it is stands in its cell's metadata, `"cutetut": {"difficulty": 1}`; all else is read from the cells.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutetut.columns import aligned
from cutetut.course import concordance, contract, notebooks, prose
from cutetut.course.notebooks import NotebookError

DIFFICULTIES = {
    1: "one step: a number, a layout or a line that follows from one rule of the chapter",
    2: "some steps: some lines of code, or several rules put together",
    3: "a piece of work: code whose layout, order or visibility has to be right as a whole",
}
EMULATOR, ALGEBRA, NUMBERS = "emulator and float64", "layout algebra", "numbers"
JUDGES = {
    EMULATOR: "a kernel runs with your answer in it; it must have no fault, and its results must be right",
    ALGEBRA: "your layout is compared with the right one, place by place",
    NUMBERS: "your numbers, or those that your function returns, are compared with what the check works out",
}
_ASKS = (
    "Add", "Arrange", "Change", "Choose", "Complete", "Copy", "Count", "Derive", "Do ", "Find", "Give",
    "Let ", "Make", "Mend", "Order", "Predict", "Put", "Return", "Rewrite", "Start", "Then write", "Use", "Work",
    "Write", "You write",
)  # fmt: skip
_EMULATES = {"emulated", "must_compute", "must_run", "report", "diagnose", "fault"}  # in a check: these run a kernel
_COMPARES = {"double", "float64", "reference", "equal"}  # and these, where something is compiled, compare results
_LAYOUTS = {"answers.layout", "offsets", "answers.offsets", "layouts.offsets", "layouts.text"}


@dataclass(frozen=True)
class Exercise:
    """One exercise: its cell, its heading, what it asks in Markdown, and how it is judged."""

    chapter: str
    cell: str
    number: int
    title: str
    asks: str
    difficulty: int | None
    judge: str
    of_kernel: bool

    @property
    def key(self) -> str:
        """Its name in the list of solved exercises."""
        return f"{self.chapter}/{self.cell}"


def of_chapter(chapter: str | Path) -> list[Exercise]:
    """A chapter's exercises in their order. Raises NotebookError for one without a heading or a check."""
    name, cells = notebooks.find(chapter).stem, notebooks.read(chapter).cells
    functions = _functions(cell.source for cell in cells if cell.cell_type == "code")
    solutions = contract.solutions(cells)
    found, title, text = [], "", ""
    for cell in cells:
        if cell.cell_type == "markdown":
            for heading, part in prose.sections(cell.source):
                if heading:
                    title, text = heading, ""
                text += part
        elif cell.id in solutions:
            numbered = re.fullmatch(r"(\d+)\. (.+)", title)
            check = _check_of(cell.source, functions)
            used = _used(check, functions)
            if numbered is None or not used:
                raise NotebookError(f"{name}, cell {cell.id}: an exercise has a numbered heading and calls a check")
            difficulty = cell.metadata.get("cutetut", {}).get("difficulty")
            judge = EMULATOR if _launches(functions[check], functions) else _judge(used)
            of_kernel = contract.writes_kernel_code(*solutions[cell.id])
            number, words = int(numbered[1]), numbered[2]
            found.append(Exercise(name, cell.id, number, words, request_in(text), difficulty, judge, of_kernel))
    return found


def collect(chapters: Iterable[str | Path] | None = None) -> list[Exercise]:
    """The exercises of these chapters, or of all that are published, in the book's order. Raises NotebookError."""
    paths = concordance.order(drafts=False) if chapters is None else chapters
    return [exercise for path in paths for exercise in of_chapter(path)]


def counts(exercises: Iterable[Exercise]) -> dict[str, tuple[int, int]]:
    """How many exercises each chapter has, and in how many of them one writes kernel code."""
    found: dict[str, tuple[int, int]] = {}
    for each in exercises:
        total, of_kernels = found.get(each.chapter, (0, 0))
        found[each.chapter] = total + 1, of_kernels + each.of_kernel
    return found


def request_in(text: str) -> str:
    """The first sentence of a text that asks for something, or else its first, as Markdown in one line.

    Links to pages and terms become their words. A list or a table ends the text.
    """
    paragraph = re.split(r"\n\n(?=[-|`!:])|\n(?=- )", re.sub(r"^#.*\n+", "", text.strip()))[0]
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z`*(])", " ".join(prose.without_links(paragraph).split()))
    asking = (each for each in sentences if each.startswith(_ASKS) or each.endswith("?"))
    return next((each for each in asking if len(each.split()) > 3), sentences[0])


def _functions(sources: Iterable[str]) -> dict[str, ast.FunctionDef]:
    """The functions of a chapter's cells by their names; of several with one name the first."""
    found: dict[str, ast.FunctionDef] = {}
    for source in sources:
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a shell command, say
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, node)
    return found


def _check_of(source: str, functions: Mapping[str, ast.FunctionDef]) -> str:
    """The name of the check that an exercise's cell calls; "" if it calls none."""
    called = [ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return next((name for name in called if name.startswith("check_") and name in functions), "")


def _used(name: str, functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    """Every name and attribute in a function's body, and in those of the chapter's functions that it uses.

    `module.f` is the chapter's f as well, since `module` is the chapter with some lines changed.
    """
    found: set[str] = set()
    waiting, seen = [name], set()
    while waiting:
        one = waiting.pop()
        if one in seen or one not in functions:
            continue
        seen.add(one)
        for node in ast.walk(functions[one]):
            if isinstance(node, ast.Name):
                found.add(node.id)
                waiting.append(node.id)
            elif isinstance(node, ast.Attribute):
                found |= {node.attr, ast.unparse(node)}
                waiting.append(node.attr)
    return found


def _launches(check: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef]) -> bool:
    """Whether a check hands an answer to a `@cute.jit` function of the chapter."""
    answers = {argument.arg for argument in check.args.args}
    for node in ast.walk(check):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            is_jit = any(ast.unparse(each) == "cute.jit" for each in functions[node.func.id].decorator_list)
            if is_jit and answers & {each.id for each in node.args if isinstance(each, ast.Name)}:
                return True
    return False


def _judge(used: set[str]) -> str:
    if used & _EMULATES or ("cute.compile" in used and used & _COMPARES):
        return EMULATOR
    return ALGEBRA if used & _LAYOUTS else NUMBERS


def main(asked: Sequence[str]) -> int:
    """Print the exercises; returns 1 if one has no difficulty."""
    try:
        found = collect(asked or concordance.order())
    except (NotebookError, OSError, ValueError) as error:
        print(error)
        return 1
    rows = [[each.key, each.title, str(each.difficulty), each.judge, "kernel" * each.of_kernel] for each in found]
    print(aligned([["exercise", "heading", "difficulty", "judged by", "writes"], *rows]))
    missing = [each.key for each in found if each.difficulty not in DIFFICULTIES]
    for key in missing:
        print(f'! {key}: its cell\'s metadata lack "cutetut": {{"difficulty": 1}}, 2 or 3')
    total, of_kernels = len(found), sum(each.of_kernel for each in found)
    print(f"{total} exercises; in {of_kernels} of them you write kernel code")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
