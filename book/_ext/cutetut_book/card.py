"""The picture that a link to the book shows in a chat or a feed: the title and the ladder, 1200 x 630 pixels."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from . import ladder

NAME = "card.png"  # in _static; _config.yml names it as ogp_image
WIDTH, HEIGHT = 1200, 630
DARK, TEXT, MUTED, BAR, ACCENT = "#14181e", "#e8eaed", "#a3acb8", "#5b6b80", "#ffb454"


def draw(title: str, subtitle: str, steps: list[ladder.Step], path: Path) -> None:
    """Write the card as a PNG."""
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor=DARK)
    FigureCanvasAgg(figure)
    figure.text(0.06, 0.84, title, size=40, weight="bold", color=TEXT, va="center")
    figure.text(0.06, 0.74, subtitle, size=19, color=MUTED, va="center")
    axes = figure.add_axes((0.29, 0.09, 0.55, 0.55), facecolor=DARK)
    scale = max(max(step.ours, step.vendor) for step in steps)
    heights = range(len(steps))
    axes.barh(heights, [s.ours for s in steps], height=0.56, color=[*[BAR] * (len(steps) - 1), ACCENT])
    for height, step in zip(heights, steps, strict=True):
        axes.plot([step.vendor] * 2, [height - 0.42, height + 0.42], color=TEXT, linewidth=3, solid_capstyle="butt")
        for x, text in ((-0.03, step.idea), (1.17, step.share)):
            axes.text(x * scale, height, text, ha="right", va="center", size=19, color=TEXT)
    axes.set_ylim(len(steps) - 0.5, -0.5)
    axes.set_xlim(0, 1.01 * scale)
    axes.set_axis_off()
    figure.text(0.94, 0.045, "speed beside cuBLAS, H200", size=14, color=MUTED, ha="right", va="center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", facecolor=DARK, metadata={"Software": None})


def write(app: Sphinx, error: Exception | None) -> None:
    """Draw the card beside the book's other static files, when the book has been built."""
    wanted = getattr(app.config, "ogp_image", None) or ""  # set by sphinxext.opengraph, which a test's book may lack
    if error is not None or app.builder.format != "html" or not wanted.endswith(NAME):
        return
    try:
        shown = ladder.steps()
    except (RuntimeError, KeyError, OSError, ValueError) as reason:
        raise ExtensionError(f"{NAME} cannot be drawn: {reason}") from reason
    title, _, subtitle = app.config.html_title.partition(", ")
    draw(title, subtitle, shown, Path(app.outdir, "_static", NAME))


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write)
