"""JupyterLab with the course on an H100 at Modal: modal run examples/cloud/modal_app.py, from a checkout's root."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path

import modal

HERE = Path(__file__).resolve()
CHECKOUT = HERE.parents[2] if len(HERE.parents) > 2 else HERE.parent  # in the container this file lies at the top
COURSE = "/root/cutetut"
PORT = 8888
HOURS = 4

image = (
    modal.Image.from_registry("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime")
    .apt_install("git", "make", "python3-venv")
    .add_local_dir(CHECKOUT, COURSE, copy=True, ignore=[".git", ".venv", ".cache", "_build", "**/__pycache__"])
    # No GPU can be seen while an image is built, so say that this torch is the one to use.
    .run_commands(f"make -C {COURSE} setup SYSTEM_TORCH=1")
)
app = modal.App("cutetut", image=image)


@app.function(gpu="H100", timeout=HOURS * 3600, max_containers=1)
def lab() -> None:
    """Start JupyterLab and print its address; whoever knows its token can use it."""
    token = secrets.token_urlsafe(24)
    with modal.forward(PORT) as tunnel:
        print(f"JupyterLab: {tunnel.url}/lab?token={token}", flush=True)
        options = f"LAB=--ip=0.0.0.0 --port={PORT} --no-browser --ServerApp.allow_remote_access=True"
        subprocess.run(["make", "-C", COURSE, "lab", options], env={**os.environ, "JUPYTER_TOKEN": token}, check=True)


@app.local_entrypoint()
def main() -> None:
    """Run until Ctrl-C or for HOURS."""
    lab.remote()
