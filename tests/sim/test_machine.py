"""The simulator on the hand-written GEMM, and on programs broken on purpose."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import warploom.sim
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.ir.types import bf16
from warploom.sim.machine import simulate
from warploom.sim.report import Deadlock, MemoryFault, ProtocolError, Race, SimError

FILE = Path(__file__).parent.parent / "golden" / "gemm_bf16_tn.warp.ir"
GEMM = FILE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def gemm() -> Func:
    return parse_func(GEMM, str(FILE))


def run(
    func: Func,
    m: int,
    n: int,
    k: int,
    grid: int,
    seed: int = 0,
    whole: bool = True,
    **options: object,
) -> tuple[np.ndarray, np.ndarray]:
    """(result, exact product in float64)."""
    rng = np.random.default_rng(seed)
    a, b = (
        rng.integers(-3, 4, s).astype(np.float32)
        if whole
        else rng.standard_normal(s).astype(np.float32)
        for s in ((m, k), (n, k))
    )
    a, b = a.astype(bf16.numpy), b.astype(bf16.numpy)
    c = np.full((m, n), 9, np.float32).astype(bf16.numpy)
    simulate(func, (a, b, c, m, n, k), grid, seed=seed, **options)  # type: ignore[arg-type]
    return c, a.astype(np.float64) @ b.astype(np.float64).T


SHAPES = [
    (128, 256, 64, 1),  # one step
    (128, 256, 448, 1),  # more steps than twice the depth
    (100, 264, 72, 1),  # nothing a multiple of the blocks
    (1, 8, 8, 1),
    (384, 264, 0, 2),  # K = 0
    (128, 256, 128, 3),  # fewer tiles than programs
    (640, 256, 200, 1),  # five tiles a program
]


@pytest.mark.parametrize("m, n, k, grid", SHAPES)
@pytest.mark.parametrize("order", ["late", "early", "reverse", "seeded", "timed"])
@pytest.mark.each(3)
def test_gemm_is_exact_on_integers(
    gemm: Func, m: int, n: int, k: int, grid: int, order: str
) -> None:
    c, exact = run(gemm, m, n, k, grid, order=order)
    np.testing.assert_array_equal(c, exact.astype(np.float32).astype(bf16.numpy))


@pytest.mark.parametrize("seed", range(4))
def test_gemm_is_right_untracked(gemm: Func, seed: int) -> None:
    c, exact = run(gemm, 256, 264, 328, 1, seed=seed, track=False)
    np.testing.assert_array_equal(c, exact.astype(np.float32).astype(bf16.numpy))


def test_gemm_on_random_data_is_close_to_float64(gemm: Func) -> None:
    c, exact = run(gemm, 200, 304, 520, 2, whole=False)
    error = c.astype(np.float64) - exact
    assert np.linalg.norm(error) < 3e-3 * np.linalg.norm(exact)
    assert (np.abs(error) <= 2.0**-8 * np.abs(exact) + 1e-4).all()


def test_a_seed_decides_everything(gemm: Func) -> None:
    def trace(seed: int) -> list[tuple[str, str, float]]:
        events: list[tuple[str, str, float]] = []
        args = [np.zeros(1 << 16, np.float32).astype(bf16.numpy) for _ in range(3)]
        simulate(
            gemm, (*args, 128, 256, 256), 1, seed=seed,
            trace=lambda e: events.append((e.agent, e.op, e.start)),
        )  # fmt: skip
        return events

    assert trace(5) == trace(5)
    assert any(trace(5) != trace(s) for s in range(6, 10))


def test_events_are_a_timeline(gemm: Func) -> None:
    x = np.zeros(1 << 18, np.float32).astype(bf16.numpy)
    report = simulate(gemm, (x, x.copy(), x.copy(), 128, 256, 512), 1, order="timed")
    assert report.programs == 1
    assert {e.agent for e in report.events} == {"consumer[0]", "consumer[1]", "producer"}
    assert all(0 <= e.start <= e.end <= report.cycles for e in report.events)
    tensor = [e for e in report.events if e.unit == "tensor"]
    assert len(tensor) == 2 * 8  # two consumers, eight steps of K
    assert sum(e.end - e.start for e in tensor) == 128 * 256 * 512 / 2048
    assert any(e.unit == "wait" and "full" in e.cause for e in report.events)


# ---- broken on purpose: the text with one place changed, and the error that names both parties

FULL = "mbarrier_wait(%full, %slot, %phase)"
RELEASE = 'mbarrier_arrive(%empty, %previous) {by="warp"}'
LAST = 'mbarrier_arrive(%empty, %last) {by="warp"}'
ACQUIRE = "mbarrier_wait(%empty, %slot, %free)"
FENCE = "shared_store(%staging0, %chunk0)\n      fence_async()"
SYNC = 'group_sync() {scope="replica"}'
END = "tma_store_wait() {pending=0, read=true}"

BROKEN = [
    ("no wait for full", FULL, "", MemoryFault, "uninitialised", ("wgmma of a[0]", "written here", "tma_load(%a_map")),
    ("no wait for empty", ACQUIRE, "", ProtocolError, None, ("full[0]", "producer (t=0, k=0)", "producer (t=0, k=3)")),
    ("no release", RELEASE, "", Deadlock, "deadlock", ("empty[0]", "8 of 8 arrivals")),
    ("late release too early", "{pending=1}", "{pending=2}", Race, "race", ("wgmma of", "tma_load of")),
    ("a byte too many", "bytes=49152", "bytes=49168", Deadlock, "deadlock", ("16 bytes", "differ by 16")),
    ("a byte too few", "bytes=49152", "bytes=49136", SimError, "deadlock", ("full[0]",)),
    ("a count too high", "n=3, count=8", "n=3, count=9", Deadlock, "deadlock", ("1 of 9 arrivals",)),
    ("a count too low", "n=3, count=8", "n=3, count=7", ProtocolError, None, ("empty",)),
    ("released by one", LAST, LAST.replace("warp", "one"), Deadlock, "deadlock", ("lacks 6 of 8 arrivals",)),
    ("no proxy fence", FENCE, "shared_store(%staging0, %chunk0)", Race, "proxy-fence",
     ("shared_store of c[", "tma_store of c[")),
    ("no sync before the store", SYNC, "", Race, "race", ("shared_store", "tma_store")),
    ("no wait at the end", END, "", ProtocolError, "exit-store", ("consumer[",)),
    ("no commit", "wgmma_commit()", "", Race, "race", ("wgmma of", "tma_load of")),
    ("no fence", "wgmma_fence()", "", ProtocolError, "wgmma-fence", ("wgmma_fence",)),
    ("too many registers", "registers=(232, 40)", "registers=(240, 40)", Deadlock, "setmaxnreg", ("2304 more", "256 of 384 × 168", "nobody gives")),
]  # fmt: skip


@pytest.mark.parametrize("name, old, new, error, code, words", BROKEN, ids=[b[0] for b in BROKEN])
def test_broken(
    name: str, old: str, new: str, error: type, code: str | None, words: tuple[str, ...]
) -> None:
    assert old in GEMM
    func = parse_func(GEMM.replace(old, new, 1), "<broken.ir>")
    for order in ("late", "early"):
        with pytest.raises(error) as caught:
            run(func, 256, 256, 448, 1, order=order)
        assert code is None or caught.value.code == code
        text = str(caught.value)
        assert all(w in text for w in words), text
        assert caught.value.loc is not None


def test_a_deadlock_tells_of_every_task() -> None:
    func = parse_func(GEMM.replace(RELEASE, "", 1), str(FILE))
    with pytest.raises(Deadlock) as caught:
        run(func, 128, 256, 448, 1)
    text = str(caught.value)
    line = GEMM[: GEMM.index(ACQUIRE)].count("\n") + 1
    assert "producer (t=0, k=3) waits for phase 0 of empty[0] (parity 0)" in text
    assert f"gemm_bf16_tn.warp.ir:{line}" in text
    assert "consumer[1] (t=0, k=3) waits for phase 1 of full[0]" in text
    assert "nothing arrives" in text


@pytest.mark.parametrize(
    "old, new", [(FULL, ""), (ACQUIRE, ""), (SYNC, ""), (FENCE, FENCE.split("\n")[0])]
)
def test_untracked_runs_go_wrong_by_themselves(old: str, new: str) -> None:
    """Without vector clocks the adversarial orders alone must show the harm."""
    func = parse_func(GEMM.replace(old, new, 1), str(FILE))
    for order in ("late", "early", "reverse"):
        try:
            c, exact = run(func, 256, 256, 448, 1, order=order, track=False)
        except SimError:
            return
        if not np.array_equal(c, exact.astype(np.float32).astype(bf16.numpy)):
            return
    pytest.fail("no order shows the harm")


def test_shared_memory_is_poison_until_written() -> None:
    text = """func @f(%p: ptr<bf16>) level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32} : i32
  %s = shared_alloc() {name="s", lead=(1,), shape=(64, 64), dtype=bf16, inner=1, swizzle=128} : shared<[1]64x64xbf16, inner=1, swizzle=128>
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    %slot = shared_slot(%s, %c0) : shared<64x64xbf16, inner=1, swizzle=128>
    %x = shared_load(%slot) : tile<64x64xbf16>
    yield()
  }
  yield()
}
"""
    for track in (True, False):
        with pytest.raises(MemoryFault, match="nothing wrote"):
            simulate(parse_func(text), (np.zeros(1, bf16.numpy),), 1, track=track)


# What only IR text can get wrong (scripts are refused while compiling), or what is advised later.
WITHOUT_ADVICE = {
    "blocks", "elect", "outside-elect", "ring", "ring-order", "run", "setmaxnreg-action", "setmaxnreg-group",
    "sync-in-elect", "uninitialised", "wgmma-group", "wgmma-layout",
}  # fmt: skip


def test_every_finding_says_what_to_do() -> None:
    kinds = ("ProtocolError", "MemoryFault", "LaunchError", "Deadlock", "Race", "error")
    silent = set()
    for path in Path(warploom.sim.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            given = len(node.args) > (3 if name == "error" else 4)
            given |= any(k.arg == "help" for k in node.keywords)
            code = node.args[0]
            if name in kinds and not given and isinstance(code, ast.Constant):
                silent.add((path.name, code.value))
    assert {code for _, code in silent} <= WITHOUT_ADVICE | {"argument-type"}, silent
