"""Which launches of others' operators count as slow, and what is kept of a profile."""

from __future__ import annotations

from typing import Any

from benchmarks.third_party.counted import figures, slow_of, with_counters


def launch(kernel: str, us: float, theirs: float) -> dict[str, Any]:
    return {"kernel": kernel, "grid": [1], "arguments": {}, "us": [us], "triton_us": [theirs]}


def test_slow_are_those_that_take_long_and_are_under_the_bar() -> None:
    launches = [
        launch("slow", 12, 10),
        launch("short", 9, 5),
        launch("near", 100, 96),
        launch("fast", 50, 80),
        {"kernel": "refused", "grid": [1], "arguments": {}},
    ]
    assert [one["kernel"] for one in slow_of({"launches": launches})] == ["slow"]


def test_counters_come_beside_the_times_of_their_launch() -> None:
    timed = {"right": True, "launches": [launch("a", 12, 10), launch("b", 13, 10)]}
    counted = {"launches": [launch("b", 0, 0) | {"counters": {"warploom": {"us": 13.0}}}]}
    both = with_counters(timed, counted)
    assert both["right"] and both["launches"][1]["us"] == [13]
    assert [one["counters"] for one in both["launches"]] == [None, {"warploom": {"us": 13.0}}]


def test_figures_in_microseconds_and_the_longest_waits() -> None:
    stall = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio [inst]"
    waits = {"wait": "1.5", "barrier": "0.2", "long_scoreboard": "4.25", "drain": "0.1"}
    row = {
        "Kernel Name": "f",
        "gpu__time_duration.sum [ns]": "12,345",
        **{stall.format(name): text for name, text in waits.items()},
    }
    assert figures(row) == {
        "us": 12.35,
        "stall: long_scoreboard": 4.25,
        "stall: wait": 1.5,
        "stall: barrier": 0.2,
    }
