"""tilus.Pipeline: the barriers of a ring, and where its producer and its consumer stand."""

# mypy: disable-error-code="attr-defined, no-untyped-call"

from __future__ import annotations

from typing import Any

from warploom.explicit.script import Class
from warploom.language import int32, uint32


class Pipeline(Class):
    """A ring of so many slots.  A producer waits for an empty slot (producer_acquire), lets what fills it
    arrive at producer_barrier(), and goes on (producer_advance); a consumer likewise.

    producer_arrive_count, consumer_arrive_count: arrivals that fill a slot, and that empty it."""

    def __init__(
        self, num_stages: int, producer_arrive_count: int = 1, consumer_arrive_count: int = 1
    ) -> None:
        self.num_stages: int = num_stages
        self.full_barriers = self.mbarrier.alloc([producer_arrive_count for _ in range(num_stages)])
        self.empty_barriers = self.mbarrier.alloc(
            [consumer_arrive_count for _ in range(num_stages)]
        )
        self.producer_stage: int32 = 0  # type: ignore[valid-type]
        self.consumer_stage: int32 = 0  # type: ignore[valid-type]
        self.producer_phase: uint32 = self.mbarrier.producer_initial_phase  # type: ignore[valid-type]
        self.consumer_phase: uint32 = self.mbarrier.consumer_initial_phase  # type: ignore[valid-type]

    def producer_acquire(self) -> None:
        self.mbarrier.wait(self.empty_barriers[self.producer_stage], self.producer_phase)

    def producer_barrier(self) -> Any:
        return self.full_barriers[self.producer_stage]

    def producer_release_barrier(self) -> Any:
        return self.full_barriers[self.producer_stage]

    def producer_advance(self) -> None:
        self.producer_stage = (self.producer_stage + 1) % self.num_stages
        self.producer_phase = self.producer_phase ^ (self.producer_stage == 0)

    def consumer_acquire(self) -> None:
        self.mbarrier.wait(self.full_barriers[self.consumer_stage], self.consumer_phase)

    def consumer_barrier(self) -> Any:
        return self.empty_barriers[self.consumer_stage]

    def consumer_release_barrier(self) -> Any:
        return self.empty_barriers[self.consumer_stage]

    def consumer_advance(self) -> None:
        self.consumer_stage = (self.consumer_stage + 1) % self.num_stages
        self.consumer_phase = self.consumer_phase ^ (self.consumer_stage == 0)
