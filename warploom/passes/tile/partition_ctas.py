"""Cuts a program into one part for each CTA of its cluster, along M or N of its dots.

Order: at TILE, after recover_boxes and before the schedule is chosen: that is one CTA's.
Changes: products in clusters (`num_ctas`).

before:  %a = load_box(%v, %row, %k) : tile<256x64xbf16>
         %c = dot(%a, %b, %acc) : tile<256x256xf32>
         store_box(%w, %c, %row, %col)
after:   %cta = cta_rank()
         %a0 = load_box(%v, add(%row, mul(%cta, 128)), %k) : tile<128x64xbf16>
         %c0 = dot(%a0, %b, %acc0) : tile<128x256xf32>
         store_box(%w, %c0, add(%row, mul(%cta, 128)), %col)

analysis/data_split.py says which versions of each value are needed, as for partition_data; here loads are
cut, too, and there is one function for all CTAs: func.attrs["cluster"], by which the oracle runs a program
through for each of them in turn.  What is not cut CTA 0 stores alone.
"""

from __future__ import annotations

from warploom.analysis.data_split import Split
from warploom.analysis.structure import structure_of
from warploom.ir.core import Func
from warploom.ir.ops.cluster import cta_rank
from warploom.passes.partition_values import Stores
from warploom.schedule.model import ClusterPlan


def partition_ctas(func: Func, cluster: ClusterPlan) -> Func:
    """See the module's docstring.  The split was tried when it was chosen."""
    if cluster.ctas == 1:
        return func
    assert cluster.axis is not None
    structure = structure_of(func)
    split = Split(structure, lambda o: True, frozenset(), cluster.axis, cluster.ctas)
    body = Stores(split, identity=cta_rank).whole(func.body)
    return func.with_(body=body, attrs={**func.attrs, "cluster": (cluster.ctas, 1, 1)})
