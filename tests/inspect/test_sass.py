"""Reading machine code: the main loop, its opcodes, and registers of one bank, from texts written by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from cutetut.inspect import sass

LISTING = """
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDS.128 R4, [R0] ;
        /*0020*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0030*/                   FFMA R0, R2, R4, R0 ;
        /*0040*/              @!PT LDS RZ, [RZ] ;
        /*0050*/                   FFMA R1, R2, R5, R1 ;
        /*0060*/               @P1 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_2:
        /*0080*/                   BRA `(.L_x_2);
"""


def test_the_main_loop_is_the_longest() -> None:
    assert sass.main_loop(LISTING) == [
        "FFMA R0, R2, R4, R0", "@!PT LDS RZ, [RZ]", "FFMA R1, R2, R5, R1", "@P1 BRA `(.L_x_1)",
    ]  # fmt: skip


def test_of_nested_loops_the_inner_one_counts() -> None:
    outer = ".L_x_9:\n/*0000*/ MOV R0, R1 ;\n" + LISTING.replace("EXIT", "BRA `(.L_x_9)")
    assert sass.main_loop(outer) == sass.main_loop(LISTING)


@pytest.mark.parametrize("text", ["", ".L_x_2:\n/*0080*/ BRA `(.L_x_2);", "/*0000*/ BRA `(.L_x_1) ;\n.L_x_1:"])
def test_without_a_loop_it_says_so(text: str) -> None:
    with pytest.raises(sass.NoLoop, match="no loop"):
        sass.main_loop(text)


def test_opcodes_are_counted_without_guards_and_modifiers() -> None:
    assert sass.opcodes(sass.main_loop(LISTING)) == {"FFMA": 2, "LDS": 1, "BRA": 1}


@pytest.mark.parametrize(
    ("instructions", "most"),
    [
        (["FFMA R0, R2, R5, R7"], [2]),  # 5 and 7
        (["FFMA R0, R2, R4, R6"], [3]),
        (["FFMA R0, R2, R2, R5"], [1]),  # one register, read once
        (["FFMA R0, R2, R5, RZ"], [1]),
        (["FFMA R0, -R2, c[0x0][0x1c0], R4"], [2]),
        (["@P0 FFMA.FTZ R0, R2, R4, R5"], [2]),
        (["FFMA R1, R2.reuse, R5, R4", "FFMA R1, R2, R5, R4"], [2, 1]),  # R2 is kept: R5 and R4 are left
        (["FFMA R1, R2.reuse, R5, R4", "IADD3 R9, R9, R9, R9", "FFMA R1, R2, R5, R4"], [2, 1]),
        (["FFMA R1, R2.reuse, R5, R4", "FFMA R1, R5, R2, R4"], [2, 2]),  # in another place it is not kept
        (["FFMA R1, R2.reuse, R5, R4", "FFMA R1, R8, R5, R4", "FFMA R1, R2, R5, R4"], [2, 2, 2]),  # and not for long
        (["LDS R0, [R2]"], []),
    ],
)
def test_registers_of_one_bank(instructions: list[str], most: list[int]) -> None:
    assert sass.reads_of_one_bank(instructions) == Counter(most)
