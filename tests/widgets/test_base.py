"""What a notebook carries of a widget's files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cutetut.widgets import base

CODE = """// What this is.

/** Two lines
 * of words. */
function f() {
  /* inner */
  // a remark
  return "https://a" + '/* b */'; // stays
}
"""


def test_lines_of_comment_and_indentation_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "HERE", tmp_path)
    (tmp_path / "a.js").write_text(CODE)
    (tmp_path / "b.js").write_text("let x = 1;\n")
    kept = "function f() {\nreturn \"https://a\" + '/* b */'; // stays\n}\nlet x = 1;"
    assert base.source("a.js", "b.js") == kept


def test_no_text_of_the_widgets_goes_over_lines() -> None:
    """Where one did, its indentation would be part of it, and is taken away."""
    for file in base.HERE.glob("*.js"):
        for number, line in enumerate(base.source(file.name).splitlines(), start=1):
            assert line.count("`") % 2 == 0, f"{file.name}, line {number}: a text that goes over lines"


def test_each_dark_colour_is_stated_once_beside_its_light_one() -> None:
    style = base.source("common.css")
    dark = re.findall(r"--tp-[a-z-]+: light-dark\(#[0-9a-f]{6}, (#[0-9a-f]{6})\);", style)
    assert "#14181e" in dark and all(style.count(colour) == 1 for colour in dark)
