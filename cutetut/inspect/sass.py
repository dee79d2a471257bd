"""The machine code of a kernel's main loop: its instructions, and which registers its multiply-adds read at once.

`KernelInfo.sass`, from cutetut.inspect.compiled, is the text that the functions here read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

_LABEL = re.compile(r"^\s*(\.L_\w+):")
_CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_BACK = re.compile(r"\bBRA\b.*\(?(\.L_\w+)\)")
_GUARD = re.compile(r"^@!?U?P\w+\s+")
_REGISTER = re.compile(r"-?\|?R(\d+)(\.reuse)?\|?")
SOURCES = 3  # operands that an FFMA reads


class NoLoop(ValueError):
    """The machine code has no branch back to an earlier label."""


def main_loop(sass: str) -> list[str]:
    """The instructions of the longest innermost stretch that a branch repeats, without addresses.

    sass: text of one kernel, as nvdisasm prints it. A loop reaches from a label to the last branch back to it; of
    loops within each other the inner ones are looked at. Raises NoLoop if no branch goes back.
    """
    code: list[str] = []
    at: dict[str, int] = {}
    loops: dict[str, tuple[int, int]] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            at[label[1]] = len(code)
        elif found := _CODE.search(line):
            code.append(found[1])
            back = _BACK.search(found[1])
            if back and back[1] in at and at[back[1]] < len(code) - 1:  # a branch to itself ends every kernel
                loops[back[1]] = at[back[1]], len(code)
    inner = [a for a in loops.values() if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops.values())]
    if not inner:
        raise NoLoop("this machine code has no loop: no branch goes back to an earlier label")
    start, end = max(inner, key=lambda loop: loop[1] - loop[0])
    return code[start:end]


def opcodes(instructions: Iterable[str]) -> Counter[str]:
    """How often each opcode stands there, without modifiers: `LDS` for `LDS.128`."""
    return Counter(_GUARD.sub("", text).split()[0].split(".")[0] for text in instructions)


def reads_of_one_bank(instructions: Iterable[str]) -> Counter[int]:
    """FFMA instructions by the most registers that one of them reads from one bank of the register file.

    The file has two banks, of the even and of the odd registers: Jia, Maggioni, Staiger and Scarpazza found them on
    Volta ("Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018). What a second read of one bank
    costs on Hopper is not documented. A register that the FFMA before has read in the same place with the mark
    `.reuse` is still at hand and is not read again.
    """
    found: Counter[int] = Counter()
    kept: dict[int, str] = {}
    for text in instructions:
        words = _GUARD.sub("", text).replace(",", " ").split()
        if words[0].split(".")[0] != "FFMA":
            continue
        sources = [_REGISTER.fullmatch(word) for word in words[2 : 2 + SOURCES]]
        registers = {place: match for place, match in enumerate(sources) if match}
        read = {match[1] for place, match in registers.items() if kept.get(place) != match[1]}
        found[_most_in_one_bank(read)] += 1
        kept = {place: match[1] for place, match in registers.items() if match[2]}
    return found


def _most_in_one_bank(registers: Iterable[str]) -> int:
    parities: Sequence[int] = [int(number) % 2 for number in registers]
    return max(parities.count(0), parities.count(1))
