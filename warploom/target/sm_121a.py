"""sm_121a: NVIDIA GB10 (DGX Spark).

As sm_120a (PTX ISA, "Target architecture": the block-scaled products of sm_120a are sm_121a's as well), on 48
SMs with the same 99 KiB of shared memory a CTA (what the driver reports, as users of DGX Spark publish it).
No rate was fitted or looked up: the chooser weighs as on sm_120a, whose memory is faster.
"""

from __future__ import annotations

from dataclasses import replace

from warploom.target.sm_120a import SM_120A

SM_121A = replace(
    SM_120A, name="sm_121a", chips=("GB10",), capabilities=((12, 1),), multiprocessors=48
)
