"""Which values of a function its launch knows, as expressions that the host computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from warploom.analysis.facts import Facts
from warploom.analysis.structure import Structure
from warploom.ir.analysis import definitions
from warploom.ir.core import Op, Value
from warploom.ir.host_expressions import Expressions, Number, plus, quotient
from warploom.ir.ops import arith, control
from warploom.ir.types import Scalar

UNBOUNDED = 1 << 62  # a count that is not known, nor the launch's
FAR = 1 << 30  # what is known to change by so much is not known to be bounded


@dataclass(eq=False)
class LaunchNumbers:
    """The integers of a function that follow from its arguments."""

    structure: Structure
    facts: Facts
    _found: dict[Value, bool] = field(default_factory=dict)

    @cached_property
    def _program(self) -> Expressions:
        return Expressions(self.structure.root.params, definitions(self.structure.root))

    def is_of_launch(self, v: Value) -> bool:
        """Can the host compute v from the launch's arguments alone?"""
        if v not in self._found:
            o = self.structure.maker(v)
            if o is None:
                self._found[v] = self.structure.made[v].op is None
            else:
                self._found[v] = arith.is_of_host(o) and all(map(self.is_of_launch, o.operands))
        return self._found[v]

    def of(self, v: Value) -> Number | None:
        """The integer v; None where neither the compiler nor the launch knows it."""
        if (n := self.facts.constant(v)) is not None:
            return n
        is_integer = isinstance(v.type, Scalar) and v.type.dtype.is_int
        return self._program.expression(v) if is_integer and self.is_of_launch(v) else None

    def known(self, v: Value) -> Number:
        """The same of what is known."""
        found = self.of(v)
        assert found is not None
        return found

    def iterations(self, loop: Op) -> Number:
        """Of a loop, at most."""
        if loop.kind is not control.for_:
            return UNBOUNDED
        lo, hi, step = map(self.of, loop.operands[:3])
        if not isinstance(step, int) or step < 1:
            return UNBOUNDED
        known = self.facts.interval(loop.regions[0].params[0])
        if known.high - known.low < FAR:
            return 1 + int(known.high - known.low) // step
        if lo is None or hi is None:
            return UNBOUNDED
        less = -lo if isinstance(lo, int) else ("neg", "i64", lo)
        return quotient(plus(hi, less), step)
