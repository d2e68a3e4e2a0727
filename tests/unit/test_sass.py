"""Loops of machine code, from a listing as nvdisasm writes it."""

from __future__ import annotations

from tests.sass import Loop, _innermost, _loops

LISTING = """
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   UIADD3 UR4, UR4, 0x1, URZ ;
.L_x_2:
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ;
        /*0030*/                   MUFU.EX2 R3, R3 ;
        /*0040*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*0050*/                   MUFU.EX2 R4, R4 ;
.L_x_5:
        /*0060*/              @!P0 MUFU.EX2 R5, R5 ;
        /*0070*/               @P0 BRA `(.L_x_2) ;
        /*0080*/               @P1 BRA `(.L_x_1) ;
        /*0090*/                   EXIT ;
.L_x_4:
        /*00a0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR20], R2 ;
        /*00b0*/              @!P0 BRA `(.L_x_4) ;
        /*00c0*/                   BRA `(.L_x_5) ;
.L_x_6:
        /*00d0*/                   BRA `(.L_x_6);
"""


def test_loops_are_innermost_and_end_before_the_exit() -> None:
    found = _loops(LISTING.splitlines())
    with_products = [x for x in found if Loop(x[2]).count("HGMMA")]
    assert len(with_products) == 2
    (loop,) = _innermost(with_products)
    assert loop.count("MUFU.EX2") == 3 and loop.count("UIADD3") == 0
    assert loop.before_waits("MUFU.EX2") == (1, 2)
