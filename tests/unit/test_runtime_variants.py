"""Which variants a launch leads to: each is asked by all rules."""

from __future__ import annotations

from typing import Any

from warploom.runtime.array import Bytes
from warploom.runtime.variants import (
    Arguments,
    Changes,
    captured_of,
    for_less,
    for_overlap,
    for_split_k,
    variants_for,
)
from warploom.schedule.model import LAST_WAVE


class Plan:
    """A plan that takes nothing for granted but what it is given."""

    programs, workspaces = False, ()
    nonnegative = positive = one_array = disjoint = in_place = stored = ()

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


class Kernel:
    def __init__(self, split: Any = 1, **given: Any) -> None:
        self.plan, self.split = Plan(**given), split

    def is_short(self, values: Any) -> bool:
        return False

    def meeting(self, values: Any) -> Any:
        return None

    def split_k(self, values: Any, programs: int) -> Any:
        return self.split

    def binder(self, values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (), ()


ALIKE = Arguments((4096, 4096, -1), lambda i: Bytes(4096, 8192, ()) if i < 2 else None, (1, 1, 1))


def led_to(kernels: dict[Changes, Kernel]) -> list[Changes]:
    return [changes for changes, _ in variants_for(kernels.__getitem__, ALIKE, lambda *_: None)]


def test_a_variant_that_takes_more_for_granted_is_asked_again() -> None:
    """The one for arguments that overlap divides by a size that is negative."""
    kernels = {
        (): Kernel(disjoint=((0, 1),)),
        (for_overlap,): Kernel(positive=(2,)),
        (for_overlap, for_less): Kernel(),
    }
    assert led_to(kernels) == [(), (for_overlap,), (for_overlap, for_less)]


def test_each_rule_changes_a_request_once() -> None:
    kernels = {(): Kernel(disjoint=((0, 1),)), (for_overlap,): Kernel(disjoint=((0, 1),))}
    assert led_to(kernels) == [(), (for_overlap,)]


def test_a_split_comes_behind_what_it_breaks() -> None:
    split = for_split_k(LAST_WAVE)
    kernels = {
        (): Kernel(split=LAST_WAVE),
        (split,): Kernel(disjoint=((0, 1),)),
        (for_overlap,): Kernel(split=LAST_WAVE),
        (for_overlap, split): Kernel(),
    }
    found = variants_for(kernels.__getitem__, ALIKE, lambda *_: None)
    assert [changes for changes, _ in found] == list(kernels)
    assert captured_of(found) is kernels[for_overlap,]


def test_a_split_is_left_out_where_nothing_asks_for_it_any_more() -> None:
    split = for_split_k(4)
    kernels = {
        (): Kernel(split=4),
        (split,): Kernel(disjoint=((0, 1),)),
        (for_overlap,): Kernel(),
    }
    assert led_to(kernels) == list(kernels)
