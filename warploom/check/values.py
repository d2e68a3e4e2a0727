"""What scalars come to at an input, told without a run; also at many inputs at once, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from warploom.check.dependence import CHOOSING, Dependence
from warploom.check.input_space import InputSpace
from warploom.check.runs import Case
from warploom.ir.core import Op, Value
from warploom.ir.ops import cluster, control, smem, task, tile
from warploom.ir.types import Pointer, Scalar
from warploom.sim.evaluate import PURE, Fn, prepared

DEEPEST = 240  # ops that a value is followed back through

_ZERO = np.int32(0)


@dataclass(frozen=True)
class Wish:
    """What an input must have: numbers of variables (InputSpace), and a program's number along an axis."""

    numbers: Mapping[int, int]
    ids: Mapping[int, int]

    def and_(self, other: Wish) -> Wish:
        return Wish({**self.numbers, **other.numbers}, {**self.ids, **other.ids})


class Values:
    """The scalars of one function."""

    def __init__(self, dependence: Dependence, space: InputSpace) -> None:
        self.dependence, self.space = dependence, space
        self.func = dependence.func
        self.index = {p: i for i, p in enumerate(self.func.params)}
        self._meanings: dict[Op, tuple[Fn, list[np.dtype[Any]]]] = {}
        self._known: dict[tuple[Value, Any], tuple[Any, Case]] = {}
        self.loop_of: dict[Value, Op] = {
            o.regions[0].params[0]: o for o in self.func.body.all_ops if o.kind is control.for_
        }

    def __call__(self, v: Value, case: Case, given: Mapping[Value, Any] | None = None) -> Any:
        """A scalar at an input, in the first iteration of all loops (or where `given` says) of program 0;
        None where that can't be told."""
        key = v, case.key
        if given or key not in self._known:
            with np.errstate(all="ignore"):
                found = self._value(case, dict(given or {}), v, 0)
            if given:
                return found
            self._known[key] = found, case  # with the case its arrays stay, and their ids
        return self._known[key][0]

    def outcome(
        self, condition: Value, case: Case, given: Mapping[Value, Any] | None = None
    ) -> Any:
        """What a condition comes to; None where that can't be told."""
        o = self.dependence.made.get(condition)
        if o is None or o.kind not in CHOOSING:
            return self(condition, case, given)
        x, y = (self(v, case, given) for v in o.operands)
        return None if x is None or y is None else np.less(x, y)

    def _value(self, case: Case, memo: dict[Value, Any], v: Value, depth: int) -> Any:
        if v not in memo:
            memo[v] = None  # what is computed from itself is not told
            memo[v] = self._find(v, case, memo, depth) if depth < DEEPEST else None
        return memo[v]

    def _find(self, v: Value, case: Case, memo: dict[Value, Any], depth: int) -> Any:
        find = partial(self._value, case, memo)
        if v in self.index:
            return None if isinstance(v.type, Pointer) else case.args[self.index[v]]
        if v in self.loop_of:
            return find(self.loop_of[v].operands[0], depth + 1)
        o = self.dependence.made.get(v)
        if o is None or o.kind in (control.if_, control.for_, control.while_):
            if o is not None and o.kind is control.if_:
                chosen = find(o.operands[0], depth + 1)
                arms = [find(r.yielded[o.results.index(v)], depth + 1) for r in o.regions]
                if np.ndim(chosen) and not any(x is None for x in arms):
                    return np.where(chosen, *arms)
                return None if chosen is None or np.ndim(chosen) else arms[0 if chosen else 1]
            behind = self.dependence.flow.get(v, ())
            return find(behind[0], depth + 1) if behind else None
        match o.kind:
            case (
                tile.program_id
                | task.replica_id
                | cluster.cta_rank
                | cluster.cta_id
                | tile.atomic
                | tile.globaltimer
            ):
                return _ZERO
            case tile.num_programs:
                args = [find(p, depth + 1) for p in self.func.params]
                return self.space.programs(case, args)[o.attrs["axis"]]
            case tile.load:
                return self._loaded(o, case)
            case smem.shared_get:
                behind = self.dependence.flow.get(v, ())[1:]
                return find(behind[0], depth + 1) if behind else None
        if o.kind not in PURE or not isinstance(v.type, Scalar):
            return None
        values = [find(x, depth + 1) for x in o.operands]
        if any(x is None for x in values):
            return None
        if o not in self._meanings:
            dtypes = [t.type.dtype.numpy for t in o.operands if isinstance(t.type, Scalar)]
            self._meanings[o] = prepared(o), dtypes
        meaning, dtypes = self._meanings[o]
        numbers = [
            x.astype(t) if isinstance(x, np.ndarray) else t.type(x)
            for x, t in zip(values, dtypes, strict=True)
        ]
        out = meaning(*numbers)
        return out[o.results.index(v)] if isinstance(out, tuple) else out

    def _loaded(self, o: Op, case: Case) -> Any:
        fills = dict(case.memory)
        for array in self.dependence.arrays(o.operands[0]):
            if array.hint in fills:
                return np.int64(fills[array.hint](0))
        return None
