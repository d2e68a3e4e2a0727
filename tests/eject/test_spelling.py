"""Every op kind of WARP has a spelling in ejected scripts."""

from __future__ import annotations

import pytest

from warploom.eject import eject
from warploom.eject.spelling import SPELLINGS, UNSAID
from warploom.errors import CompileError
from warploom.ir.core import KINDS, Level, OpKind
from warploom.ir.ops import control
from warploom.ir.parser import parse_func


@pytest.mark.parametrize(
    "kind", [k for k in KINDS.values() if Level.WARP in k.levels], ids=lambda k: k.name
)
def test_every_kind_is_spelled(kind: OpKind) -> None:
    """Without one, kernels that have the op can't be ejected: write it in eject/expressions.py (what computes
    a value) or eject/statements.py (what has an effect)."""
    SPELLINGS[kind]


# What ends before WARP, what passes set after it, and the hints of loops that a schedule has heard.
PROMISED = {"promised"}  # canonicalize says `divisible` instead
PLACED = {
    "layout",
    "offset",
    "reuses",
    "run",
    "synced",
    "id",
    "scope",
    "fenced",
    "unroll",
    "by_lanes",
    "by_threads",
}
HINTS = {"num_stages", "warp_specialize", "flatten", "disallow_acc_multi_buffer", "disable_licm"}


def test_every_attribute_is_said() -> None:
    """An attribute that a spelling leaves out would be lost: say it, and name it in `says`."""
    for kind, row in SPELLINGS.items():
        assert isinstance(kind, OpKind)
        silent = (HINTS if kind is control.for_ else PLACED | PROMISED | UNSAID) - row.says
        assert set(kind.attributes) - silent == row.says, kind.name


def test_what_has_no_words_is_refused() -> None:
    """With the code and the op, as a user's mistake is."""
    text = """
func @f(%p: ptr<f32>) level=WARP {facts=(fact<16>,), warps=4} {
  tasks() {names=("main",), warps=(1,), replicas=(1,), registers=(none,)} do {
    %x = load(%p) {run=(0, 4)} : f32
    store(%p, %x)
    yield()
  }
  yield()
}
"""
    with pytest.raises(CompileError, match=r"run=.* of load has no spelling") as e:
        eject(parse_func(text), {}, [])
    assert e.value.code == "eject"
