"""The derived WARP program of the library's attention beside the hand-written one: the same effects in the same
order, but for what EXPLAINED lists."""

from __future__ import annotations

import difflib
import functools

import pytest

from tests.passes.protocol import Protocol
from warploom.ir.parser import parse_func
from warploom.kernels.attention import attention_forward
from warploom.kernels.explicit.attention import Attention

# (d, groups, eighths): two groups of 64 rows at head size 128, three at 64.
TILES = [(128, 2, 3), (64, 3, 2)]


@functools.cache
def programs(d: int, groups: int, eighths: int) -> tuple[dict[str, list[str]], ...]:
    """(hand-written, derived): task -> lines.  Not causal."""
    by_hand = Attention(d=d, groups=groups, eighths=eighths, q_stages=2).compile(
        ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]
    )
    derived = attention_forward.compile(
        signature=["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "i32", "fp32"],
        constexprs={
            "D": d,
            "BLOCK_M": 64 * groups,
            "BLOCK_N": 128,
            "CAUSAL": False,
            "Q_STAGES": 2,
            "DYNAMIC": True,
        },
        num_consumer_groups=groups,
        num_buffers_warp_spec=2,
        mma_wait_position=eighths,
    )
    ours = by_hand.ir["WARP"].replace("full_3", "full_drawn").replace("empty_3", "empty_drawn")
    texts = (ours, derived.ir["WARP"])
    return tuple(Protocol(parse_func(text)).tasks() for text in texts)


def main_loop(lines: list[str]) -> list[str]:
    """The lines of the first loop with two dots."""
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        body = []
        for x in lines[i + 1 :]:
            if len(x) - len(x.lstrip()) <= indent:
                break
            body.append(x.strip())
        if line.strip() == "for" and body.count("commit") == 2 and "for" not in body:
            return body
    raise AssertionError("no loop with two dots")


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.each(2)
def test_the_main_loop_is_the_hand_written_one(tile: tuple[int, int, int]) -> None:
    """Line by line: waits, turns, dots, releases, and how many exponentials stand before each wait."""
    by_hand, derived = programs(*tile)
    assert main_loop(derived["consumer"]) == main_loop(by_hand["consumer"])
    assert "hold" in main_loop(derived["consumer"])


Difference = tuple[
    str, list[str], list[str]
]  # why; lines of the hand-written program; of the derived one

FIRST = "by hand the first tile's number is handed on as well; derived, every task knows it"
NEXT = "derived, the next tile's number is taken under the last dots; by hand behind the stores"
ONE_TURN = "in the kernel's source a tile stands in a loop, for pairs of tiles"
WHOLE_Q = (
    "by hand each group waits for its own rows of q, behind the first k; derived, q is one item"
)

DRAWN = f"by hand what is drawn is said not to be negative; {WHOLE_Q}"


def explained(d: int, groups: int, eighths: int) -> dict[str, list[Difference]]:
    """Task -> where the programs differ, in order."""
    held = 16 * eighths
    numbers = ["wait full_drawn", "shared_get", "assume", "arrive empty_drawn"]
    load_q = ["wait empty q", "expect full q", "load q"]
    first = ["wait empty_drawn", "shared_put", "arrive full_drawn"]
    tail = ["wait full_drawn", "shared_get", "arrive empty_drawn", "assume"]
    turn = f"""for;wait full k;take turn;fence;dot q k;commit;wait full v;fence;dot registers v;commit;
        pass turn;pending 1;arrive empty k;max of 64x128;exp2 64;exp2 64x{held};hold;pending 0;
        arrive empty v;exp2 64x{128 - held}"""
    masked = [x.strip() for x in turn.split(";")]
    return {
        "consumer": [
            (FIRST, numbers, []),
            (ONE_TURN, [], ["for"]),
            ("that there are keys is not known", [], ["if"]),
            (
                "by hand the last block, the only one with a mask, comes first and alone; derived, blocks "
                "come as in the source, and those from the mask's beginning on have a loop of their own",
                [],
                ["exp2 64", *masked],
            ),
            (f"by hand a lane adds two columns to one sum; {NEXT}", ["add of 64x4"], ["add of 64x8", *tail]),
            ("keeps what runs under the last dots in front of their wait", [], ["hold"]),
            ("without keys", [], ["else", "arrive empty q", *tail, "store_wait", "group_sync"]),
            (NEXT, numbers, []),
        ],
        "producer": [
            (FIRST, first, ["for"]),
            (DRAWN, ["assume"], [*load_q, "if"]),
            (WHOLE_Q, load_q * groups, []),
        ],
    }  # fmt: skip


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.each(2)
def test_every_difference_is_explained(tile: tuple[int, int, int]) -> None:
    by_hand, derived = programs(*tile)
    for task, reasons in explained(*tile).items():
        mine, theirs = ([x.strip() for x in p[task]] for p in (derived, by_hand))
        blocks = difflib.SequenceMatcher(None, theirs, mine, autojunk=False).get_opcodes()
        found = [(theirs[a:b], mine[c:d]) for kind, a, b, c, d in blocks if kind != "equal"]
        assert found == [(left, right) for _, left, right in reasons], task
