"""Makes a failing kernel small: delta debugging over its tree, then a file that shows the failure by itself."""

from __future__ import annotations

import base64
import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.case import Case
from tests.fuzz.draw import draw
from tests.fuzz.judge import judge
from tests.fuzz.ops import literal, typed
from tests.fuzz.tree import (
    Access,
    Atomic,
    E,
    For,
    If,
    Kernel,
    Let,
    Load,
    While,
    accesses,
    blocks,
    expressions,
    parts,
    rewrite_statement,
    statements,
)

Fails = Callable[[Kernel], bool]


def shrink(kernel: Kernel, fails: Fails, seconds: float = 60.0) -> Kernel:
    """The smallest kernel that was found in the time and still fails."""
    end = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for step in STEPS:
            found = _exhaust(kernel, step, fails, end)
            progress |= found is not kernel
            kernel = found
    return kernel


def _exhaust(
    kernel: Kernel, step: Callable[[Kernel], Iterator[Kernel]], fails: Fails, end: float
) -> Kernel:
    """The kernel after all reductions of one sort that keep the failure."""
    again = True
    while again:
        again = False
        for smaller in step(kernel):
            if time.monotonic() > end:
                return kernel
            if fails(smaller):
                kernel, again = smaller, True
                break
    return kernel


# ---- reductions: each gives smaller kernels, the boldest first


def _knobs(k: Kernel) -> Iterator[Kernel]:
    if k.knobs:
        yield replace(k, knobs={})
    for name in k.knobs:
        yield replace(k, knobs={n: v for n, v in k.knobs.items() if n != name})


def _statements(k: Kernel) -> Iterator[Kernel]:
    """Without some statements; what they would have defined is a constant instead."""
    everything = list(statements(k.body))
    for count in (len(everything) // 2, len(everything) // 4, 3, 1):
        if count < 1:
            continue
        for at in range(0, len(everything), count):
            yield _without(k, {id(s) for s in everything[at : at + count]})


def _variables(k: Kernel) -> Iterator[Kernel]:
    """Without all that defines a variable."""
    for name in dict.fromkeys(n for s in statements(k.body) if (n := _defined(s))):
        yield _without(k, {id(s) for s in statements(k.body) if _defined(s) == name})


def _defined(s: Any) -> str:
    if isinstance(s, Let | Load | Atomic):
        return s.name
    return s.var if isinstance(s, For | While) else ""


def _without(k: Kernel, dropped: set[int]) -> Kernel:
    def keep(body: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            replace(s, **{key: keep(inner) for key, inner in blocks(s).items()}) if blocks(s) else s
            for s in body
            if id(s) not in dropped
        )

    return _closed(replace(k, body=keep(k.body)))


def _closed(k: Kernel) -> Kernel:
    """Variables that nothing defines any more become constants; arrays and numbers that nothing uses go."""
    defined = {_defined(s) for s in statements(k.body)} | set(k.numbers)

    def change(e: E) -> E:
        if (
            e.op == "var"
            and e.attrs["name"] not in defined
            and not e.attrs["name"].startswith("x_")
        ):
            return constant(e)
        return e

    body = tuple(rewrite_statement(s, _outside_helpers(change)) for s in k.body)
    used = {a.array for s in statements(body) for a in accesses(s)}
    names = {
        e.attrs["name"]
        for s in statements(body)
        for t in expressions(s)
        for e in parts(t)
        if e.op == "var"
    }
    return replace(
        k,
        body=body,
        arrays=tuple(a for a in k.arrays if a.name in used),
        numbers={n: v for n, v in k.numbers.items() if n in names},
    )


def _outside_helpers(change: Callable[[E], E]) -> Callable[[E], E]:
    """The change, but for the parameters of helpers."""

    def outside(e: E) -> E:
        if e.op == "call":
            args = tuple(_rewrite(a, outside) for a in e.args)
            return replace(e, args=args)
        return change(e)

    return outside


def _rewrite(e: E, change: Callable[[E], E]) -> E:
    new = change(e)
    return new if new is not e else replace(e, args=tuple(_rewrite(a, change) for a in e.args))


def constant(e: E) -> E:
    """A constant that an expression's type allows."""
    t = e.t
    value = 1.0 if t.lo <= 1 <= t.hi else max(t.lo, min(t.hi, 0.0))
    found = (
        typed(value, t.dtype)
        if not t.shape and t.dtype == "i32"
        else typed(value, t.dtype, t.shape)
    )
    return replace(found, t=t)


def _flattened(k: Kernel) -> Iterator[Kernel]:
    """A loop or an if replaced by what stands in it."""
    for target in statements(k.body):
        for inner in blocks(target).values():
            yield _closed(replace(k, body=_replaced(k.body, target, inner)))


def _replaced(body: tuple[Any, ...], target: Any, by: tuple[Any, ...]) -> tuple[Any, ...]:
    out: list[Any] = []
    for s in body:
        if s is target:
            out += by
        elif blocks(s):
            out.append(
                replace(s, **{key: _replaced(x, target, by) for key, x in blocks(s).items()})
            )
        else:
            out.append(s)
    return tuple(out)


def _expressions(k: Kernel) -> Iterator[Kernel]:
    """A part of an expression replaced by a constant, or by a part of its own."""
    for s in statements(k.body):
        for top in expressions(s):
            for e in parts(top):
                if e.op in ("var", "literal", "full", "program_id", "num_programs", "arange"):
                    continue
                for smaller in (constant(e), *(a for a in e.args if a.t.within(e.t))):
                    if smaller.op == "full" and not e.t.shape and e.t.dtype == "i1":
                        continue
                    yield _closed(_with(k, e, smaller))


def _with(k: Kernel, old: E, new: E) -> Kernel:
    return replace(
        k, body=tuple(rewrite_statement(s, lambda e: new if e is old else e) for s in k.body)
    )


def _accesses(k: Kernel) -> Iterator[Kernel]:
    """Plainer accesses."""
    for s in statements(k.body):
        for a in accesses(s):
            for key, value in (
                ("walk", ""),
                ("mask", None),
                ("other", None),
                ("hint", ""),
                ("way", "ptr"),
                ("wrap", ()),
            ):
                if getattr(a, key) != value:
                    yield _accessing(k, s, replace(a, **{key: value}))


def _accessing(k: Kernel, target: Any, access: Access) -> Kernel:
    return replace(k, body=_replaced(k.body, target, (replace(target, access=access),)))


def _plain(k: Kernel) -> Iterator[Kernel]:
    """Fewer programs and iterations, plainer arrays, no hints, else without arms."""
    if any(n > 1 for n in k.grid):
        yield replace(k, grid=(1,) * len(k.grid))
    for name, value in k.numbers.items():
        for less in sorted({0, 1, value // 2, value - 1}):
            if 0 <= less < value:
                yield replace(k, numbers={**k.numbers, name: less})
    for i, a in enumerate(k.arrays):
        plain = replace(a, order="r", pad=0)
        if plain != a:
            yield replace(k, arrays=(*k.arrays[:i], plain, *k.arrays[i + 1 :]))
    for s in statements(k.body):
        if isinstance(s, For) and (s.hints or s.kind != "range"):
            yield replace(k, body=_replaced(k.body, s, (replace(s, hints=(), kind="range"),)))
        if isinstance(s, If) and s.other:
            yield replace(k, body=_replaced(k.body, s, (replace(s, other=()),)))
        if isinstance(s, For) and s.lo.op != "literal":
            yield replace(k, body=_replaced(k.body, s, (replace(s, lo=literal(0, "i32")),)))


STEPS = (_knobs, _statements, _variables, _flattened, _plain, _accesses, _expressions)


# ---- the result


def reproducer(seed: int, kind: str, folder: Path, orders: int = 1, seconds: float = 60.0) -> str:
    """A file that shows the failure of a seed, as small as it became."""

    def fails(k: Kernel) -> bool:
        try:
            return judge(Case(k), folder, orders).kind == kind
        except Exception:
            return False

    small = shrink(draw(seed), fails, seconds)
    return stand_alone(Case(small), kind)


def stand_alone(case: Case, kind: str) -> str:
    """The kernel, its data, what it should give, and the comparison; needs NumPy and warploom alone."""
    data = {f"in_{n}": _contiguous(x) for n, x in case.data.items()}
    with contextlib.suppress(Exception):  # where the reference itself fails
        data |= {f"out_{n}": _contiguous(x) for n, x in case.expected.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **data)
    blob = base64.b85encode(buffer.getvalue()).decode()
    k = case.kernel
    arrays = {
        a.name: (case.data[a.name].dtype.name, case.data[a.name].shape, case.data[a.name].strides)
        for a in k.arrays
    }
    return _FILE.format(
        kind=kind.replace("\n", " "), seed=k.seed, text=case.text, arrays=arrays, numbers=list(k.numbers.values()),
        grid=k.grid, knobs=k.knobs, blob=blob,
    )  # fmt: skip


def _contiguous(x: Any) -> Any:
    """The elements as unsigned words, which any NumPy file holds."""
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


_FILE = '''"""{kind} (found by tests/fuzz, seed {seed}).  Runs the kernel in the oracle and in the simulator."""

import base64
import io

import ml_dtypes  # noqa: F401  (names its dtypes for NumPy)
import numpy as np

{text}

ARRAYS = {arrays!r}  # name: dtype, shape, strides
NUMBERS, GRID, KNOBS = {numbers!r}, {grid!r}, {knobs!r}
DATA = np.load(io.BytesIO(base64.b85decode("{blob}")))


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def inputs():
    found = {{}}
    for name, (kind, shape, strides) in ARRAYS.items():
        size = sum(s * (n - 1) for n, s in zip(shape, strides)) + dtype(kind).itemsize
        raw = np.zeros(size + 128, np.uint8)[:]
        raw = raw[-raw.ctypes.data % 128 :]
        found[name] = np.ndarray(shape, dtype(kind), raw, 0, strides)
        found[name][...] = DATA["in_" + name].view(dtype(kind))
    return found


def run(how):
    arrays = inputs()
    args = []
    for a in arrays.values():
        args += [a, *a.shape, *(s // a.itemsize for s in a.strides)]
    args += NUMBERS
    if how == "oracle":
        kernel[GRID](*args)
    else:
        kernel.compile_for(*args, grid=GRID, **KNOBS).simulate(*args, grid=GRID, order=how, seed=1)
    for name, a in arrays.items():
        if "out_" + name in DATA:
            wanted = DATA["out_" + name].view(a.dtype)
            wrong = int(np.sum(np.asarray(wanted != a) & ((wanted == wanted) | (a == a))))
            print(how, name, "right" if not wrong else f"{{wrong}} elements differ (exactly compared)")


for how in ("oracle", "late", "reverse", "early", "seeded"):
    run(how)
'''
