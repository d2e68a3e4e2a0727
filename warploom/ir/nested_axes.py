"""Whether places along several axes are all different: an axis is (stride, how many)."""

from __future__ import annotations

from collections.abc import Iterable


def first_meeting(axes: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """The first axis whose stride is no more than what those with smaller ones come to, by its number, and
    the places of these; None where each is more, so that no place is reached twice.

    >>> first_meeting([(128, 4), (1, 128)]), first_meeting([(64, 4), (1, 128)])
    (None, (0, 128))
    """
    places = 1
    for stride, n, i in sorted([(abs(s), n, i) for i, (s, n) in enumerate(axes) if n > 1]):
        if stride < places:
            return i, places
        places += stride * (n - 1)
    return None
