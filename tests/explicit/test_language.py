"""Single features of the explicit language: what they compute, the code they become, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.explicit.language import COMBINE, REDUCED, Hinted, reducer, values
from warploom.errors import CompileError
from warploom.ir.ops.tile import CACHE_POLICIES

RNG = np.random.default_rng(7)


def refused(script: Any, *args: Any) -> CompileError:
    with pytest.raises(CompileError) as e:
        script.check(*args)
    assert e.value.loc is not None and e.value.help
    return e.value


# ---- TMA's reductions and the L2's hints


@pytest.mark.parametrize(("fn", "name"), REDUCED)
def test_tma_combines_into_memory(fn: str, name: str) -> None:
    m, n = 70, 144  # boxes reach over both ends
    x, y = (values(name, RNG, (m, n)) for _ in range(2))
    wanted = COMBINE[fn](y, x)
    kernel = reducer(name)(fn)
    assert kernel.check(m, n, x, y).ok
    kernel(m, n, x, y)
    assert np.array_equal(y, wanted)


@pytest.mark.parametrize(("fn", "name"), [("add", "bf16"), ("max", "i64"), ("inc", "u32")])
def test_reductions_compile(fn: str, name: str) -> None:
    text = {"i64": "i64", "u32": "u32"}.get(name, name)
    built = reducer(name)(fn).compile(["i32:16", "i32:16", f"*{text}:16", f"*{text}:16"])
    assert f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{fn}.tile" in built.cuda
    assert ".L2::cache_hint" in built.cuda and "createpolicy" in built.cuda
    assert built.resources.problems() == ()


@pytest.mark.parametrize(("fn", "name"), [("add", "i64"), ("max", "f32"), ("mean", "f32")])
def test_a_reduction_that_tma_lacks(fn: str, name: str) -> None:
    x = values(name, RNG, (32, 64))
    e = refused(reducer(name)(fn), 32, 64, x, x)
    assert e.code == "tma-reduce"


@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_hints_change_no_result(policy: str) -> None:
    n = 48
    x, y = RNG.normal(size=(n, 32)).astype(np.float32), np.zeros((4, n, 32), np.float32)
    kernel = Hinted(policy)
    assert kernel.check(n, x, y).ok
    kernel(n, x, y)
    assert np.array_equal(y, np.stack([x] * 4))


def test_hints_reach_the_instructions() -> None:
    built = Hinted("evict_first").compile(["i32:16", "*fp32:16", "*fp32:16"])
    for text in (
        "tma_load_2d_hinted(",
        "tma_store_3d_hinted(",
        "cp_async_hinted<16>(",
        "load_global128_hinted(",
        "store_global128_hinted(",
        "l2_evict_last()",
    ):
        assert text in built.cuda
    assert built.resources.problems() == ()


def test_a_policy_that_does_not_exist() -> None:
    x = np.zeros((64, 32), np.float32)
    assert refused(Hinted("evict_never"), 64, x, x).code == "cache-policy"
