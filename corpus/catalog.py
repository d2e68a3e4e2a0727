"""All kernels of the corpus that have a reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from corpus import (
    around,
    attention,
    backward,
    batched,
    decoding,
    formats,
    fused,
    in_order,
    microscaling,
    plain,
    serving,
    several,
    skinny,
    states,
)  # fmt: skip
from corpus.attending import Builds, named
from corpus.case import Case

ATTENDING: Mapping[str, Builds] = {
    "attention": attention.CASES,
    "serving": serving.CASES,
    "decoding": decoding.CASES,
    "backward": backward.CASES,
    "states": states.CASES,
    "fused": fused.CASES,
    "in order": in_order.CASES,
    "batched": batched.CASES,
    "skinny": skinny.CASES,
    "scaled": microscaling.CASES,
}


def cases() -> Iterator[Case]:
    """Products."""
    yield from plain.cases()
    yield from formats.cases()
    yield from around.cases()
    yield from several.cases()


def everything() -> Iterator[Case]:
    """Products, and what is like attention."""
    yield from cases()
    for family, builds in ATTENDING.items():
        yield from named(builds, family)


@cache
def by_name() -> Mapping[str, Case]:
    """All by their names, made once; who runs one works on copies of its arrays."""
    return {case.name: case for case in everything()}
