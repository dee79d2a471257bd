"""The directive `{exercises}`: all exercises of the published chapters, with how hard they are and what judges them.

Each row has an id, by which exercises.js keeps a reader's ticks in the browser; the tables are whole without it.
"""

from collections.abc import Iterable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cutetut.course import concordance, exercises, notebooks
from cutetut.course.exercises import DIFFICULTIES, JUDGES, Exercise

from .explained import CellLink
from .generated import Cell, numbered, table

SCRIPT = "exercises.js"
HEADER = ["exercise", "what is asked", "difficulty", "judged by"]
STARS = {level: "●" * level + "○" * (len(DIFFICULTIES) - level) for level in DIFFICULTIES}


class Exercises(SphinxDirective):
    """What the levels and the judges mean, how many exercises each chapter has, and a table for each chapter."""

    def run(self) -> list[nodes.Node]:
        for path in concordance.order(drafts=False):
            self.env.note_dependency(str(path))
        try:
            found = exercises.collect()
            missing = [each.key for each in found if each.difficulty not in DIFFICULTIES]
        except (notebooks.NotebookError, OSError, ValueError, KeyError) as error:
            raise self.error(f"exercises: {error}") from error
        if missing or not found:
            raise self.error(f"exercises: none, or without a difficulty: {', '.join(missing)}")
        levels = ([STARS[level], meaning] for level, meaning in DIFFICULTIES.items())
        return [
            table(["difficulty", "means"], levels, ["stacks"]),
            table(["judged by", "means"], JUDGES.items(), ["stacks"]),
            *self._counted(found),
            *self._chapters(found),
        ]

    def _counted(self, found: list[Exercise]) -> list[nodes.Node]:
        counts = exercises.counts(found)
        rows: list[list[Cell]] = [
            [self._inline(f"{{doc}}`{numbered(chapter)} </notebooks/{chapter}>`"), str(total), str(of_kernels)]
            for chapter, (total, of_kernels) in counts.items()
        ]
        of_kernels = sum(each.of_kernel for each in found)
        text = f"{len(found)} exercises in {len(counts)} chapters; in {of_kernels} of them you write kernel code."
        counted = table(["chapter", "exercises", "write kernel code"], rows, ["measured"])
        return [nodes.paragraph("", text, classes=["cutetut-exercises"]), counted]

    def _chapters(self, found: Iterable[Exercise]) -> Iterable[nodes.section]:
        by_chapter: dict[str, list[Exercise]] = {}
        for each in found:
            by_chapter.setdefault(each.chapter, []).append(each)
        for chapter, listed in by_chapter.items():
            section = nodes.section("", nodes.title("", numbered(chapter)), ids=[nodes.make_id(f"exercises {chapter}")])
            rows = table(HEADER, map(self._row, listed), ["exercises", "stacks"])
            for each, row in zip(listed, list(rows.findall(nodes.tbody))[0].children, strict=True):
                row["ids"] = [each.key]
            section += rows
            yield section

    def _row(self, each: Exercise) -> list[Cell]:
        asked = f"{each.asks} *Kernel code.*" if each.of_kernel else each.asks
        assert each.difficulty is not None  # `run` has seen to it
        stars = nodes.inline("", STARS[each.difficulty], classes=["cutetut-stars"])
        stars += nodes.inline("", f" {each.difficulty} of {len(DIFFICULTIES)}", classes=["visually-hidden"])
        return [CellLink("", cell=each.key, label=False), self._inline(asked), stars, each.judge]

    def _inline(self, markdown: str) -> nodes.inline:
        found, messages = self.state.inline_text(markdown, self.lineno)
        return nodes.inline("", "", *found, *messages)


def add_script(app: Sphinx, pagename: str, *context: object) -> None:
    """Load the script on the page of exercises alone."""
    if pagename == "book/exercises":
        app.add_js_file(SCRIPT)


def setup(app: Sphinx) -> None:
    app.add_directive("exercises", Exercises)
    app.connect("html-page-context", add_script)
