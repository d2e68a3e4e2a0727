"""sm_89: NVIDIA L4, L40, L40S and the GeForce RTX 40 series.

As sm_86 with 8-bit floats in the tensor cores (PTX ISA, "mma": e4m3 and e5m2 from sm_89).  They add 16
products at once with 13 bits kept (arXiv 2511.10909, MMA-Sim; found on hardware by its authors, not by us).
Rate: 512 multiply-adds of 16-bit types a cycle and SM (NVIDIA L40S data sheet: 362 TFLOPS on 142 SMs at 2.52
GHz).
"""

from __future__ import annotations

from dataclasses import replace

from warploom.target.model import Arithmetic, Product
from warploom.target.sm_80 import MMA_SYNC
from warploom.target.sm_86 import SM_86
from warploom.target.sm_90a import EIGHT_BIT_FLOATS, FMA

_CUT, _CUT_F16 = Arithmetic(16, 13, 13, "cut"), Arithmetic(16, 13, 10, "nearest", "f16")

SM_89 = replace(
    SM_86,
    name="sm_89",
    chips=("L4", "L40", "L40S", "RTX 40"),
    capabilities=((8, 9),),
    multiprocessors=142,
    converts=frozenset(EIGHT_BIT_FLOATS),
    matrix_units=(
        replace(
            MMA_SYNC,
            products=(
                *MMA_SYNC.products,
                *(Product(a, b, "f32", _CUT) for a in EIGHT_BIT_FLOATS for b in EIGHT_BIT_FLOATS),
                *(
                    Product(a, b, "f16", _CUT_F16)
                    for a in EIGHT_BIT_FLOATS
                    for b in EIGHT_BIT_FLOATS
                ),
            ),
        ),
        FMA,
    ),
)
