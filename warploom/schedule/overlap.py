"""Chooses which of a consumer's loops overlap two iterations (analysis/loop_overlap.py says which can), where
the wait for the late dots stands, and whether groups take turns at issuing dots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warploom.analysis.loop_overlap import Overlap, find, mask_of, phase_cycles, split_of
from warploom.analysis.structure import Structure
from warploom.ir.core import Op, Value
from warploom.ir.ops import control
from warploom.ir.types import dtype_of, shape_of
from warploom.schedule.context import named
from warploom.schedule.model import Knobs, PipelinePlan, Reason
from warploom.target import Target

# Arithmetic under the dots from which on it pays that another group's dots run meanwhile, as a part of
# theirs, and the cycles of a group's iteration from which on a turn is worth its barriers: the backward pass
# in two walks is 1 % (144 to 253 cycles of arithmetic beside 176 to 272 of dots) and 2.4 % faster without
# turns (126 to 253 beside 352 to 544; docs/log/2026-11-21-corpus-attention.md).
_SUBSTANTIAL = 0.6
_WORTH_A_TURN = 600
# Eighths of the special functions before the wait for the late dots, where nobody says: measured on
# attention (docs/log/2026-11-21-automatic-attention-first.md).  Three groups and more keep the
# tensor cores busy among themselves.
_EIGHTHS = {1: 2, 2: 2}
_RESERVE = 24  # registers a thread beside what is in flight


@dataclass(frozen=True)
class Groups:
    """The consumer: how many groups share a tile, and how many registers a thread of them has."""

    count: int
    registers: int
    threads: int  # of one


def plans(
    structure: Structure,
    knobs: Knobs,
    target: Target,
    groups: Groups,
    stays: Callable[[Op], bool],
    in_place: Callable[[Value], bool],
    cramped: Callable[[Overlap], str],
) -> tuple[list[PipelinePlan], list[Reason]]:
    """What is done to the consumer's loops, and why.  cramped: why the rings of a loop don't allow it."""
    chosen: list[PipelinePlan] = []
    reasons: list[Reason] = []
    for o in structure.ops:
        found = find(o, stays, in_place) if o.kind is control.for_ and stays(o) else None
        if found is None:
            continue
        why = found.why_not or _why_not_chosen(found, knobs, groups, in_place) or cramped(found)
        if why:
            asked = bool(knobs.consumer_stages and knobs.consumer_stages > 1)
            asked = asked or knobs.ping_pong is True
            reasons.append(Reason(o.id, "iterations don't overlap", why, warn=asked))
            continue
        early, late = (named(list(dots)) for dots in (found.early, found.late))
        reasons.append(
            Reason(
                o.id,
                f"{early} of the next iteration in flight with {late}",
                "the former need nothing of the latter: the arithmetic between them runs under both",
            )
        )
        eighths, why = knobs.mma_wait_position, "mma_wait_position"
        if eighths is None:
            eighths, why = _EIGHTHS.get(groups.count, 0), f"usually best with {groups.count} groups"
        where = f"{late} waited for after {eighths}/8 of the special functions"
        reasons.append(Reason(o.id, where, why))
        cut = split_of(o) or mask_of(structure, o)
        if cut is not None:
            told = Reason(cut.id, "its loop is cut in two without it", "it turns once")
            if cut.kind is not control.if_:
                why = "its mask lets all through in the middle, or up to an end"
                told = Reason(cut.id, "its loop is cut around iterations without it", why)
            reasons.append(told)
        ping_pong, reason = _ping_pong(found, knobs, groups, target)
        reasons.append(reason)
        stages = ((d.id, int(d in found.late)) for d in (*found.early, *found.late))
        chosen.append(
            PipelinePlan(o.id, tuple(stages), eighths, ping_pong, cut.id if cut is not None else "")
        )
    return chosen, reasons


def _why_not_chosen(
    found: Overlap, knobs: Knobs, groups: Groups, in_place: Callable[[Value], bool]
) -> str:
    if knobs.consumer_stages == 1:
        return "consumer_stages=1"
    need = _RESERVE
    for o in (*found.early, *found.late):
        need += _registers(o.result, groups)
    for o in found.late:
        if not in_place(o.operands[0]):
            need += _registers(o.operands[0], groups)
    if need > groups.registers:
        return f"it takes about {need} registers a thread, of {groups.registers}"
    return ""


def _registers(v: Value, groups: Groups) -> int:
    m, n = shape_of(v.type)
    return m * n * dtype_of(v.type).bits // (32 * groups.threads * groups.count)


def _ping_pong(found: Overlap, knobs: Knobs, groups: Groups, target: Target) -> tuple[bool, Reason]:
    def told(yes: bool, why: str, warn: bool = False) -> tuple[bool, Reason]:
        decision = "groups take turns at issuing dots" if yes else "groups issue dots as they come"
        return yes, Reason(found.loop.id, decision, why, warn)

    if groups.count < 2:
        return told(False, "there is one group", warn=knobs.ping_pong is True)
    if not target.sync.named_barriers:
        return told(False, "the target has no named barriers", warn=knobs.ping_pong is True)
    if isinstance(knobs.ping_pong, bool):
        return told(knobs.ping_pong, f"ping_pong={knobs.ping_pong}")
    tensor, other = phase_cycles(found.loop.regions[0], 1 / groups.count, target)
    cycles = f"in an iteration {other:.0f} cycles of arithmetic stand beside {tensor:.0f} of dots"
    return told(other >= _SUBSTANTIAL * tensor and tensor + other >= _WORTH_A_TURN, cycles)
