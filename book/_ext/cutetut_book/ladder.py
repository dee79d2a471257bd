"""The `{ladder}` directive: the speed of each chapter's GEMM beside cuBLAS, as bars that fit any width and theme."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cutetut.measure import rungs, tables

from .generated import DATA, BadData

SIZE, METHOD = 4096, "sustained"


@dataclass(frozen=True)
class Step:
    """One bar: a notebook, its idea, and the TFLOP/s of its kernel and of cuBLAS in the same run."""

    notebook: str
    idea: str
    ours: float
    vendor: float

    @property
    def share(self) -> str:
        """The speed as a percentage of cuBLAS."""
        percent = 100 * self.ours / self.vendor
        return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"


def steps(size: int = SIZE, method: str = METHOD) -> list[Step]:
    """Return what was measured at M = N = K = size, in the order of the chapters.

    Raises BadData when nothing was, and what `cutetut.measure.tables` raises of a file that it cannot read.
    """
    found = [(rung, tables.rung_row(rung, size, method)) for rung in tables.measured()]
    shown = [Step(rung.notebook, rung.idea, row["ours_tflops"], row["vendor_tflops"]) for rung, row in found if row]
    if not shown:
        raise BadData(f"no chapter was measured at {size} ({method})")
    return shown


def bars(shown: Sequence[Step], address: Mapping[str, str]) -> str:
    """Return the bars as HTML, all on one scale that starts at zero; `address` has each notebook's page."""
    scale = 1.01 * max(max(step.ours, step.vendor) for step in shown)
    rows = []
    for step in shown:
        bar, mark = (f"{100 * speed / scale:.2f}%" for speed in (step.ours, step.vendor))
        link = f'<span class="number">{step.notebook[:2]}</span> {html.escape(step.idea)}'
        rows.append(
            f'<li><a href="{html.escape(address[step.notebook])}">{link}</a>'
            f'<span class="track" aria-hidden="true"><span class="bar" style="width: {bar}"></span>'
            f'<span class="vendor" style="left: {mark}"></span></span>'
            f'<span class="speed">{step.ours:.3g}<small> TFLOP/s</small></span>'
            f'<span class="share">{step.share}<small> of cuBLAS</small></span></li>'
        )
    return f'<ol class="cutetut-ladder">{"".join(rows)}</ol>'


def attention_range() -> str:
    """Return a sentence with the slowest and the fastest of the attention kernel's sustained ratios; "" without one."""
    rows = tables.attention()[1]
    ratios = sorted(float(cells[-1].split()[0]) for cells in rows)
    if not ratios:
        return ""
    return (
        f"Chapter {rungs.ATTENTION.notebook[:2]}'s {rungs.ATTENTION.idea} kernel, in the {len(ratios)} cases that were "
        f"measured, runs at {ratios[0]:.2f} to {ratios[-1]:.2f} times the speed of the faster of cuDNN and flash-attn."
    )


class Ladder(SphinxDirective):
    """The bars, and a line that says what they are; without `:bars-only:` also the attention kernel and the machine."""

    option_spec = {"bars-only": directives.flag}

    def run(self) -> list[nodes.Node]:
        try:
            shown = steps()
            sentences = [
                f"C = A Bᵀ with M = N = K = {SIZE}, back to back until the clocks settle. The mark on each line is "
                "cuBLAS in bfloat16 in the same run.",
            ]
            if "bars-only" not in self.options:
                sentences += [attention_range(), tables.measured_on()]
        except (RuntimeError, KeyError, OSError, ValueError) as error:
            raise self.error(f"ladder: {error}") from error
        for step in shown:
            self.env.note_dependency(str(DATA / f"{step.notebook}.json"))
        builder = self.env.app.builder
        address = {
            step.notebook: builder.get_relative_uri(self.env.docname, f"notebooks/{step.notebook}") for step in shown
        }
        caption = nodes.paragraph("", " ".join(filter(None, sentences)), classes=["cutetut-caption"])
        return [nodes.raw("", bars(shown, address), format="html"), caption]


def setup(app: Sphinx) -> None:
    app.add_directive("ladder", Ladder)
