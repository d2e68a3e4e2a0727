"""Random explicit rings with random mistakes: what the checker says against what adversarial runs show.

A ring is drawn (depth, tasks, operands, a second ring behind the first), then at most one mistake in one of its
events.  `check` may not call proved what fails in a run, and may not refuse a ring without a mistake.
"""

from __future__ import annotations

import importlib.util
import random
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warploom.check import check
from warploom.errors import CompileError, InternalError, WarploomError
from warploom.sim.machine import simulate

ROWS, BLOCKS = 32, 3
ORDERS = ("late", "reverse", "early", "seeded")
SIGNED_FROM = 10_000  # seeds whose conditions ask for signs, up to three at once
FLAGS, WORDS = (1, 2, 3, -1, -2, -4), (1, -1, -3)  # of their runs, beside 0


@dataclass(frozen=True)
class Mistake:
    """what: how `event` is changed; "" for none.  test: of a guard.  late: an iteration that matters to it."""

    event: str = ""
    what: str = ""
    test: str = ""
    late: int = 0

    def __str__(self) -> str:
        return f"{self.what} {self.event} {self.test}".strip() or "none"


EVENTS = ("wait full", "wait empty", "expect", "release", "load")
EVENTS_OF_TWO = (*EVENTS, "wait full2", "wait empty2", "arrive2", "release2")


class Ring:
    """The script of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        r = self.r = random.Random(seed)
        self.depth = r.choice([1, 2, 2, 3, 3, 4])
        self.columns = r.choice([16, 32])
        self.replicas = r.choice([1, 1, 2])
        self.operands = r.choice([1, 1, 2])
        self.two = r.random() < 0.3  # a task between producer and consumer, with a ring of its own
        self.depth2 = r.choice([1, 2, 3])
        self.late_release = r.random() < 0.3 and self.depth > 1
        self.warps = r.choice([1, 2, 4])  # of a consumer's replica
        self.whole = r.random() < 0.5  # the producer is one thread from end to end
        self.mistake = Mistake() if r.random() < 0.15 else self.drawn_mistake()
        self.lines: list[str] = []

    # ---- the mistake

    def drawn_mistake(self) -> Mistake:
        r = self.r
        events = EVENTS_OF_TWO if self.two else EVENTS
        event = r.choice(events)
        kind = r.random()
        if kind < 0.5:
            test, late = self.test()
            return Mistake(event, "guard", test, late)
        if kind < 0.62:
            return Mistake(event, "drop")
        if kind < 0.7:
            return Mistake(r.choice(["wait full", "wait empty"]), "phase")
        if kind < 0.78:
            return Mistake(r.choice(["full", "empty"]), r.choice(["count over", "count short"]))
        if kind < 0.84:
            return Mistake("expect", r.choice(["bytes over", "bytes short"]))
        if kind < 0.9:
            return Mistake(r.choice(["producer", "consumer"]), "depth")
        if kind < 0.95:
            return Mistake("release", r.choice(["twice", "early"]))
        return Mistake(
            r.choice(["producer", "consumer"]), "trips", r.choice(["argument", "memory"])
        )

    def test(self) -> tuple[str, int]:
        """A condition that holds mostly, and the iteration that it may fail in."""
        r, c = self.r, self.columns
        late = r.choice([5, 9, 17, 40])
        if self.seed >= SIGNED_FROM:
            return self.signed_test(late)
        return r.choice(
            [
                (f"at != {c * late}", late),
                (f"at < {c * late}", late),
                (f"self.blockIdx.x != {r.choice([0, 1, 2])}", 0),
                (f"flag != {r.choice([1, 2, 3])}", 0),
                ("self.load(f_ptr) == 0", 0),
                (f"(flag < 2) | (at < {c * 2})", 2),
                (f"(at < {c * late}) | (self.load(f_ptr) == 0)", late),
                (f"(self.blockIdx.x < 2) & (flag != 3) | (at < {c})", 1),
                (f"k != {c * r.choice([3, 6])}", 0),
                ("at >= 0", 0),  # always
                (f"(at & {c}) == 0", 1),
            ]
        )

    def signed_test(self, late: int) -> tuple[str, int]:
        """One to three conditions, of which those of words and arguments mostly fail for a negative one."""
        r, c = self.r, self.columns
        parts = [
            f"self.load(f_ptr) >= {r.choice([0, 0, -2])}",
            f"self.load(f_ptr) != {r.choice(WORDS)}",
            f"flag > {r.choice([-1, -3, -3])}",
            f"flag != {r.choice(FLAGS)}",
            f"at {r.choice(['<', '!='])} {c * late}",
            f"self.blockIdx.x != {r.choice([0, 1, 2])}",
        ]
        picked = r.sample(parts, r.choice([1, 2, 3, 3]))
        if len(picked) == 1:
            return picked[0], late
        text = f"({picked[0]})"
        for part in picked[1:]:
            text = f"{text} {r.choice('&||')} ({part})"
        return text, late

    # ---- the text

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def event(self, depth: int, name: str, text: str) -> None:
        """An event of the protocol, with the mistake if it is this one's."""
        m = self.mistake
        if m.event != name:
            self.line(depth, text)
        elif m.what == "guard":
            self.line(depth, f"if {m.test}:")
            self.line(depth + 1, text)
        elif m.what == "twice":
            self.line(depth, text)
            self.line(depth, text)
        elif m.what == "phase":
            self.line(depth, text.replace("phase", "(phase ^ 1)"))
        elif m.what == "drop":
            self.line(depth, "pass")  # it may be all that its block has
        else:
            self.line(depth, text)

    def count(self, barrier: str, n: int) -> str:
        m = self.mistake
        if m.event == barrier:
            n += {"count over": 1, "count short": -1}.get(m.what, 0)
        return f"[{max(1, n)}] * {self.depth}"

    def bound(self, task: str) -> str:
        m = self.mistake
        if m.event == task and m.what == "trips":
            return "k2" if m.test == "argument" else "self.load(f_ptr + 1)"
        return "k"

    def next(self, task: str) -> str:
        depth = self.depth
        if self.mistake.event == task and self.mistake.what == "depth":
            depth = max(1, depth - 1) if depth > 1 else 2
        return f"slot, phase = self.ring_next(slot, phase, {depth})"

    def text(self) -> str:
        threads = 32 * self.warps
        end = threads * self.replicas  # of the consumers
        middle = 64 if self.two else 0
        half = ROWS // self.replicas
        releases = self.warps * self.replicas
        self.line(0, "from warploom import Script")
        self.line(0, "from warploom.language import cdiv, float32, int32\n\n")
        self.line(0, "class Ring(Script):")
        self.line(1, "def __call__(self, x_ptr: ~float32, w_ptr: ~float32, y_ptr: ~float32, f_ptr: ~int32, "
                     "m: int32, k: int32, k2: int32, flag: int32):")  # fmt: skip
        for text in (
            f"self.attrs.blocks = [cdiv(m, {ROWS})]",
            f"self.attrs.warps = {(end + middle) // 32 + 1}",
            "g_x = self.global_view(x_ptr, dtype=float32, shape=[m, k])",
            "g_w = self.global_view(w_ptr, dtype=float32, shape=[m, k])",
            f"g_y = self.global_view(y_ptr, dtype=float32, shape=[m, {self.columns}])",
            *(
                f"{x} = self.shared_tensor(dtype=float32, shape=[{self.depth}, {ROWS}, {self.columns}])"
                for x in "xw"[: self.operands]
            ),
            f"full = self.mbarrier.alloc({self.count('full', 1)})",
            f"empty = self.mbarrier.alloc({self.count('empty', 2 if self.two else releases)})",
            f"row = self.blockIdx.x * {ROWS}",
        ):
            self.line(2, text)
        if self.two:
            self.line(
                2,
                f"z = self.shared_tensor(dtype=float32, shape=[{self.depth2}, {ROWS}, {self.columns}])",
            )
            self.line(2, f"full2 = self.mbarrier.alloc([2] * {self.depth2})")
            self.line(2, f"empty2 = self.mbarrier.alloc([{releases}] * {self.depth2})")
            self.middle(end)
        self.consumer(threads, half)
        self.producer(end + middle)
        return "\n".join(self.lines) + "\n"

    def producer(self, first: int) -> None:
        scope = ", self.single_thread()" if self.whole else ""
        self.line(2, f'with self.thread_group({first}, 32, name="producer"){scope}:')
        self.cursor()
        self.line(3, f"for at in range(0, {self.bound('producer')}, {self.columns}):")
        self.event(4, "wait empty", "self.mbarrier.wait(empty[slot], phase ^ 1)")
        depth = 4
        if not self.whole:
            self.line(4, "with self.single_thread():")
            depth = 5
        size = f"{self.operands} * x[slot].nbytes"
        if self.mistake.event == "expect" and self.mistake.what.startswith("bytes"):
            size += " + 128" if self.mistake.what == "bytes over" else " - 128"
        self.event(depth, "expect", f"self.mbarrier.arrive_and_expect_tx(full[slot], {size})")
        self.event(
            depth,
            "load",
            "self.tma.global_to_shared(g_x, x[slot], offsets=[row, at], mbarrier=full[slot])",
        )
        if self.operands == 2:
            self.line(
                depth,
                "self.tma.global_to_shared(g_w, w[slot], offsets=[row, at], mbarrier=full[slot])",
            )
        self.line(4, self.next("producer"))

    def cursor(self) -> None:
        self.line(3, "slot: int32 = 0")
        self.line(3, "phase: int32 = 0")

    def middle(self, first: int) -> None:
        """Two warps that hand on twice what they take."""
        self.line(2, f'with self.thread_group({first}, 64, name="middle"):')
        self.cursor()
        self.line(3, "slot2: int32 = 0")
        self.line(3, "phase2: int32 = 0")
        self.line(3, f"for at in range(0, k, {self.columns}):")
        self.event(4, "wait full", "self.mbarrier.wait(full[slot], phase)")
        self.line(4, "part = self.load_shared(x[slot])")
        if self.operands == 2:
            self.line(4, "part = part + self.load_shared(w[slot])")
        self.event(4, "release", 'self.mbarrier.arrive(empty[slot], by="warp")')
        self.line(4, self.next("middle"))
        self.event(4, "wait empty2", "self.mbarrier.wait(empty2[slot2], phase2 ^ 1)")
        self.line(4, "self.store_shared(z[slot2], part * 2.0)")
        self.event(4, "arrive2", 'self.mbarrier.arrive(full2[slot2], by="warp")')
        self.line(4, f"slot2, phase2 = self.ring_next(slot2, phase2, {self.depth2})")

    def consumer(self, threads: int, half: int) -> None:
        replicas = f", replicas={self.replicas}" if self.replicas > 1 else ""
        group = " as group" if self.replicas > 1 else ""
        two = "2" if self.two else ""
        late = self.late_release and not self.two
        self.line(2, f'with self.thread_group(0, {threads}{replicas}, name="consumer"){group}:')
        self.line(
            3,
            f"acc = self.register_tensor(dtype=float32, shape=[{half}, {self.columns}], init=0.0)",
        )
        self.cursor()
        self.line(3, "previous: int32 = 0")
        self.line(3, f"for at in range(0, {self.bound('consumer')}, {self.columns}):")
        self.event(4, f"wait full{two}", f"self.mbarrier.wait(full{two}[slot], phase)")
        release = f'self.mbarrier.arrive(empty{two}[slot], by="warp")'
        early = self.mistake == Mistake("release", "early") and not self.two
        if early:
            self.line(4, release)
        for name in "z" if self.two else "xw"[: self.operands]:
            part = f"{name}[slot]"
            if self.replicas > 1:
                part += f".block([{half}, {self.columns}], at=[group, 0])"
            self.line(4, f"acc = acc + self.load_shared({part})")
        if late:
            self.line(4, "if at > 0:")
            self.event(5, "release", release.replace("slot", "previous"))
            self.line(4, "previous = slot")
        elif not early:
            self.event(4, f"release{two}", release)
        self.line(
            4,
            f"slot, phase = self.ring_next(slot, phase, {self.depth2})"
            if self.two
            else self.next("consumer"),
        )
        place = f"row + group * {half}" if self.replicas > 1 else "row"
        self.line(3, f"self.store_global(g_y, acc, offsets=[{place}, 0])")

    # ---- inputs

    def inputs(self) -> list[tuple[int, int, int, int]]:
        """(iterations, iterations by the other argument, flag, word of memory) of the runs."""
        d, late = self.depth, self.mistake.late
        trips = dict.fromkeys([0, 1, d, d + 1, 2 * d + 1, 3, 6, late + 1, late + d + 2])
        found = [(t, t, 0, 0) for t in trips]
        more = [late + d + 2, d + 1]
        found += [(t, t, flag, 0) for t in more for flag in (1, 2, 3)]
        found += [(t, t, 0, 1) for t in more]
        if self.seed >= SIGNED_FROM:
            found += [(t, t, flag, word) for t in more for flag in (0, *FLAGS) for word in WORDS]
            found += [(t, t, flag, 0) for t in more for flag in FLAGS]
        if self.mistake.what == "trips":
            found += [(d + 1, d + 2, 0, 0), (d + 2, d + 1, 0, 0), (2, 0, 0, 0), (0, 3, 0, 0)]
        return found


def arrays(ring: Ring, trips: int, word: int) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(ring.seed)
    m, k = ROWS * BLOCKS, max(1, trips) * ring.columns
    x, w = (rng.integers(-3, 4, (m, k)).astype(np.float32) for _ in range(2))
    words = np.array([word, trips * ring.columns, 0, 0], np.int32)
    return x, w, np.full((m, ring.columns), 7, np.float32), words


def expected(ring: Ring, x: Any, w: Any, trips: int) -> Any:
    total = x + w if ring.operands == 2 else x
    total = total[:, : trips * ring.columns].reshape(len(x), trips, ring.columns).sum(axis=1)
    return total * (2 if ring.two else 1)


def harm(ring: Ring, func: Any) -> str:
    """What goes wrong in a run by itself; "" where nothing does."""
    rng = random.Random(ring.seed)
    for trips, other, flag, word in ring.inputs():
        for order in rng.sample(ORDERS, 2):
            x, w, y, words = arrays(ring, max(trips, other), word)
            if ring.mistake.test == "memory":
                words[1] = other * ring.columns
            wanted = expected(ring, x, w, trips)
            c = ring.columns
            args = [x, w, y, words, ROWS * BLOCKS, trips * c, other * c, flag]
            at = f"{trips} iterations, flag {flag}, word {word}, {order}"
            view = x[:, : max(1, trips) * c]
            args[:2] = [np.ascontiguousarray(v[:, : view.shape[1]]) for v in (x, w)]
            try:
                simulate(
                    func,
                    args,
                    (BLOCKS,),
                    order=order,
                    seed=ring.seed,
                    track=False,
                    max_steps=100_000,
                )
            except WarploomError as e:
                if isinstance(e, InternalError):
                    raise
                return f"{at}: {getattr(e, 'code', '')} {str(e)[:200]}"
            if not np.array_equal(y, wanted):
                return f"{at}: a wrong result"
    return ""


def verdict_of(report: Any) -> str:
    """ "proved", "not proved" or "broken"."""
    found = getattr(report, "verdict", None)
    if found is None:
        return "proved" if report.ok else "broken"
    return str(getattr(found, "value", found))


def placed(ring: Ring, folder: Path) -> Any:
    """The script's program, from a file in the folder."""
    path = folder / f"ring_{ring.seed}.py"
    path.write_text(ring.text())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    script = module.Ring()
    signature = ["*f32:16"] * 3 + ["*i32:16", "i32:16", "i32:16", "i32", "i32"]
    return script._lowered(script._request(_call(script, ring, signature), "sm_90a")).placed


def _call(script: Any, ring: Ring, signature: list[str]) -> Any:
    x, w, y, words = arrays(ring, 4, 0)
    k = 4 * ring.columns
    return script.bind([x, w, y, words, ROWS * BLOCKS, k, k, 5], {})


def judge_script(seed: int, folder: Path) -> dict[str, Any]:
    """The record of a seed."""
    ring = Ring(seed)
    record: dict[str, Any] = {
        "what": "script",
        "seed": seed,
        "status": "ok",
        "mistake": str(ring.mistake),
    }
    try:
        func = placed(ring, folder)
        verdict = verdict_of(check(func))
    except CompileError as e:
        if isinstance(e, InternalError) or not ring.mistake.what:
            return record | {"status": "error", "code": f"script {e.code}", "said": str(e)}
        return record | {"status": "refused", "code": f"refused {e.code}"}
    except Exception as e:
        said = "".join(traceback.format_exception(e))[-2000:]
        return record | {"status": "error", "code": f"script {type(e).__name__}", "said": said}
    try:
        found = harm(ring, func)
    except Exception as e:
        said = "".join(traceback.format_exception(e))[-2000:]
        return record | {"status": "error", "code": f"script run {type(e).__name__}", "said": said}
    state = "harmful" if found else "harmless" if ring.mistake.what else "right"
    record["code"] = f"{verdict}, {state}"
    if verdict == "proved" and found:
        record |= {"status": "wrong", "said": f"{ring.mistake}: {found}"}
    if not ring.mistake.what and (verdict == "broken" or found):
        record |= {"status": "wrong", "said": f"no mistake: {found}"}
    return record
