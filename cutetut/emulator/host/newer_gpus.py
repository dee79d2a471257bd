"""Errors of CuTe DSL and its compilers that mean: this kernel is for a GPU after Hopper."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OTHER_ARCH = re.compile(r"expects arch to be (.*?),? but got")  # a check of CuTe DSL's own, of an operation or a call
_REFUSALS = (  # by libNVVM and by ptxas, of an instruction that sm_90a does not have
    re.compile(r"NVVM.* target architecture: sm_90a .*Error: unsupported operation"),
    re.compile(r"ptxas .*(not supported on \.target 'sm_90a'|requires \.target '?sm_1\d\d)"),
)


def needed(error: BaseException | None) -> str | None:
    """The oldest GPU that would do, such as "sm_100", if an error or what caused it says that it is a newer one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if found := _named(" ".join(_COLOUR.sub("", str(error)).split())):
            return found
        error = error.__cause__ or error.__context__
    return None


def _named(text: str) -> str | None:
    if check := _OTHER_ARCH.search(text):
        admissible = [int(number) for number in re.findall(r"sm_(\d+)", check[1])]
        return f"sm_{min(admissible)}" if admissible and min(admissible) >= 100 else None
    return "sm_100" if any(refusal.search(text) for refusal in _REFUSALS) else None
