"""Cuts the consumer task's tiles into one part a replica, along an axis of its dots.

Order: after partition_tasks; before insert_channels, which finds the parts as views of whole items.
Changes: 19 families, all that divide a tile among consumer groups or warps of a uniform kernel.

before:  %c = dot(%a, %b, %acc) @{consumer} : tile<128x256xf32>
         store_box(%v, %c, %row, %col) @{consumer}
after:   %id = replica_id() @{consumer}
         %a0 = slice_block(%a, %id, %zero) {shape=(64, 64)} @{consumer}
         %c = dot(%a0, %b, %acc) @{consumer} : tile<64x256xf32>
         store_box(%v, %c, add(%row, mul(%id, 64)), %col) @{consumer}

analysis/data_split.py says which versions (whole, cut along which axis) of each value are needed; here each
version gets an op.  What other tasks run stays whole.  A store of something that is not cut is done by
replica 0 alone.  func.attrs["replicas"] tells interpreters of sequential levels how often a task runs.
"""

from __future__ import annotations

from warploom.analysis.access import Accesses
from warploom.analysis.data_split import Split
from warploom.analysis.structure import structure_of
from warploom.ir.core import Func
from warploom.passes.partition_values import Stores
from warploom.schedule.model import Schedule
from warploom.target import Target


def partition_data(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring.  The split was tried when it was chosen: a refusal is a RefusalError."""
    main = schedule.tasks[0]
    structure = structure_of(func)
    carried = {i for c in schedule.channels for i in c.all_items}
    items = frozenset(o.result for o in structure.ops if o.id in carried)
    axis = schedule.split.axis or "M"
    broadcasts = Accesses(func, target).in_workspace
    split = Split(structure, lambda o: main.name in o.tasks, items, axis, main.replicas, broadcasts)
    body = Stores(split, frozenset({main.name})).whole(func.body)
    attrs = {**func.attrs, "replicas": ((main.name, main.replicas),)}
    return func.with_(body=body, attrs=attrs)
