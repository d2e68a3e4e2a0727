"""Calls found again: by types and values, arrays by what a launch reads of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warploom.language as tl
from tests.unit.fake_driver import FakeDriver, GpuArray
from warploom.runtime import args, launch
from warploom.runtime.args import _PROBES, KEYS, TensorDescriptor
from warploom.runtime.seen import CALLS_KEPT, TYPES_KEPT, SeenCalls

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Storage(NamedTuple):
    """What a tensor of torch is a view of."""

    begin: int
    size: int

    def data_ptr(self) -> int:
        return self.begin

    def nbytes(self) -> int:
        return self.size


class Tensor:
    """As much of a torch tensor as a launch reads."""

    def __init__(self, pointer: int = 1 << 20, **changed: Any) -> None:
        self.dtype, self.shape, self._strides, self._device = "torch.float16", (4, 8), (8, 1), 0
        self._pointer, self._is_neg = pointer, False
        self._storage: Storage | None = None
        vars(self).update(changed)

    def data_ptr(self) -> int:
        if not self._pointer:
            raise RuntimeError("it has no storage")
        return self._pointer

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def get_device(self) -> int:
        return self._device

    def is_neg(self) -> bool:
        return self._is_neg

    def numel(self) -> int:
        return math.prod(self.shape)

    def untyped_storage(self) -> Storage:
        return self._storage or Storage(self._pointer, 1 << 12)


@pytest.fixture(autouse=True)
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(launch, "driver", FakeDriver)
    _PROBES[Tensor] = KEYS[Tensor] = args.probe_torch
    yield
    for table in (_PROBES, KEYS):
        for kind in (Tensor, GpuArray):
            table.pop(kind, None)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": "torch.bfloat16"},
        {"shape": (8, 8)},
        {"_strides": (1, 4)},
        {"_device": 1},
        {"_is_neg": True},
        {"pointer": 1 << 21},
    ],
)
def test_an_array_is_what_a_launch_reads_of_it(changed: dict[str, Any]) -> None:
    calls: SeenCalls[str] = SeenCalls()
    calls.add((Tensor(), 3), {"BLOCK": 4}, "first")
    assert calls.find((Tensor(), 3), {"BLOCK": 4}) == "first"  # another object, the same array
    assert calls.find((Tensor(**changed), 3), {"BLOCK": 4}) is None
    assert calls.find((Tensor(), 3, 4), {}) is calls.find((Tensor(),), {"BLOCK": 4}) is None
    assert calls.find((Tensor(), 3), {"B": 4}) is calls.find((), {}) is None


def test_arrays_of_other_kinds_and_descriptors() -> None:
    calls: SeenCalls[int] = SeenCalls()
    x, y = np.zeros((4, 8), np.float32), GpuArray(1 << 20, (64,))
    calls.add((x, y, TensorDescriptor(x, (4, 8), (8, 1), (2, 8))), {}, 1)
    same = GpuArray(1 << 20, (64,)), TensorDescriptor(x, (4, 8), (8, 1), (2, 8))
    assert calls.find((x[:], *same), {}) == 1
    assert calls.find((x.T, *same), {}) is None
    assert calls.find((x, same[0], TensorDescriptor(x, (4, 8), (8, 1), (4, 8))), {}) is None
    assert calls.find((x, GpuArray(1 << 20, (64,), "float16"), same[1]), {}) is None


def test_an_order_of_names_makes_no_difference() -> None:
    calls: SeenCalls[int] = SeenCalls()
    calls.add((1,), {"a": 2, "b": 3}, 5)
    assert calls.find((1,), {"b": 3, "a": 2}) == 5
    assert calls.find((1,), {"b": 2, "a": 3}) is None


VALUES = st.one_of(
    st.sampled_from([0, 1, 1 << 40, True, False, 0.0, -0.0, 1.0, float("inf"), None, "", "1"]),
    st.sampled_from([*map(tl.constexpr, (1, True, 1.0, 0.0, -0.0)), (tl.constexpr(1),)]),
    st.sampled_from([np.float32(0), np.float32(-0.0), np.int64(1), (1,), (True,), (0.0,), (-0.0,)]),
)
CALLS = st.tuples(
    st.lists(VALUES, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=2),
)


@given(st.lists(CALLS, max_size=30))
def test_calls_are_told_apart_by_types_and_values(made: list[Arguments]) -> None:
    calls: SeenCalls[int] = SeenCalls()
    wanted: dict[str, int] = {}
    for n, (values, named) in enumerate(made):
        text = repr(([(type(v), v) for v in values], sorted(named.items(), key=str)))
        assert calls.find(values, named) == wanted.get(text)
        calls.add(values, named, n)
        wanted[text] = n
        if len({tuple(map(type, v)) + tuple(m) for v, m in made[: n + 1]}) >= TYPES_KEPT // 4:
            break  # more may be forgotten


def test_what_has_no_key_is_not_kept() -> None:
    calls: SeenCalls[int] = SeenCalls()
    for unkeyed in ([{}], {}, Tensor(0)):
        calls.add((unkeyed,), {}, 1)
        assert calls.find((unkeyed,), {}) is None
    calls.add((Tensor(),), {}, 2)
    assert calls.find((Tensor(0),), {}) is None and calls.find((Tensor(),), {}) == 2


def test_an_array_of_a_type_seen_first_is_no_mere_object() -> None:
    calls: SeenCalls[int] = SeenCalls()
    x = GpuArray(1 << 20, (64,))
    assert type(x) not in KEYS
    calls.add((x,), {}, 1)
    x.__cuda_array_interface__["data"] = (1 << 21, False)
    assert calls.find((x,), {}) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: SeenCalls[int] = SeenCalls()
    kinds = [type(f"K{i}", (), {}) for i in range(2 * TYPES_KEPT)]
    objects = [kind() for kind in kinds]
    for i, x in enumerate(objects):
        calls.add((x,), {}, i + 1)
    assert len(calls) == TYPES_KEPT
    assert calls.find((objects[-1],), {}) and calls.find((objects[0],), {}) is None
    for i in range(CALLS_KEPT + 5):
        calls.add((i,), {}, i)
    assert len(calls) <= CALLS_KEPT and calls.find((CALLS_KEPT + 4,), {}) == CALLS_KEPT + 4


def test_threads_find_and_add_at_once() -> None:
    calls: SeenCalls[int] = SeenCalls()
    wrong: list[Any] = []

    def work(start: int) -> None:
        for i in range(start, start + 3000):
            value: Any = (i, float(i), str(i))[i % 3]
            calls.add((value,), {}, i)
            if (found := calls.find((value,), {})) not in (i, None):
                wrong.append((i, found))

    threads = [threading.Thread(target=work, args=(n * 3000,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(calls) <= CALLS_KEPT + 8
