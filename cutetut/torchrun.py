"""torchrun's command line, for `cutetut emulate`, which runs the ranks in one process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

MODULE, COMMAND = "torch.distributed.run", "torchrun"


class NotOneHost(ValueError):
    """torchrun is asked for something that one process cannot stand in for."""


@dataclass(frozen=True)
class Asked:
    """How many ranks of which program."""

    ranks: int
    script: str
    args: list[str]
    module: bool


def is_asked_for(script: str, module: bool) -> bool:
    """Whether what is to be run is torchrun."""
    return script == MODULE if module else os.path.basename(script) == COMMAND


def read(args: Sequence[str], gpus: int | None) -> Asked:
    """What torchrun is asked for; PyTorch reads its options. gpus: how many ranks "auto" and "gpu" are.

    Raises NotOneHost.
    """
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    parser.prog = COMMAND
    options = parser.parse_args(list(args))
    if options.nnodes not in ("1", "1:1"):
        raise NotOneHost(f"torchrun --nnodes {options.nnodes}: one host is emulated")
    if options.no_python or options.run_path:
        raise NotOneHost("torchrun --no-python and --run-path are not emulated")
    number = options.nproc_per_node
    ranks = int(number) if str(number).isdecimal() else gpus or 1
    return Asked(ranks, options.training_script, options.training_script_args, options.module)
