"""Which variant of a kernel a launch runs: the one place that decides it.

The first variant is compiled for what launches usually have.  `RULES` lists in order what a launch may have
instead, and what that changes of the request; the variant that this leads to is asked again by the others.
A variant that depends on the grid is compiled for each kind of it (`Launch.waves`, `Launch.axes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, Generic, TypeVar

from warploom.errors import CompileError
from warploom.frontend.reads import Variants
from warploom.frontend.tokens import exact
from warploom.runtime.array import Bytes
from warploom.runtime.compiled import CompiledKernel, compile_request
from warploom.runtime.kernel import Kernel
from warploom.runtime.plan import MapKey
from warploom.runtime.request import Request
from warploom.runtime.values import first_overlap
from warploom.schedule.model import LAST_WAVE, MANY_WAVES, Parts
from warploom.target import Target

K = TypeVar("K", bound=Kernel)


Pairs = tuple[tuple[int, int], ...]
Change = Callable[[Request], Request]
Changes = tuple[Change, ...]


class Arguments:
    """A launch's run-time arguments.

    values: numbers, and addresses of arrays.  bytes_of: where an array lies, by the argument's position; None
    of a number.  sizes: of the grid, where it is known."""

    def __init__(
        self,
        values: tuple[Any, ...],
        bytes_of: Callable[[int], Bytes | None],
        sizes: tuple[int, int, int] | None = None,
    ) -> None:
        self.values, self.bytes_of = values, bytes_of
        self.programs = 0 if sizes is None else math.prod(sizes)
        self._bound: tuple[Kernel, Any] | None = None

    def bound(self, kernel: Kernel) -> tuple[tuple[Any, ...], tuple[MapKey, ...]]:
        """The parameters of a kernel, as its binder gives them."""
        if self._bound is None or self._bound[0] is not kernel:
            plan = kernel.plan  # what its launch adds decides nothing here
            more = (1, 1, 1, *(0 for _ in plan.workspaces)) if plan.programs else ()
            self._bound = kernel, kernel.binder((*self.values, *more))
        return self._bound[1]


# ---- what a launch may break


def _is_short(kernel: Kernel, arguments: Arguments) -> bool:
    """Its main loop has few steps."""
    return kernel.is_short(arguments.values)


def _is_less(kernel: Kernel, arguments: Arguments) -> bool:
    """A size or stride is negative, or one is 0 that a divisor has for a factor."""
    plan, values = kernel.plan, arguments.values
    return any(values[i] < 0 for i in plan.nonnegative) or any(values[i] < 1 for i in plan.positive)


def _are_two(kernel: Kernel, arguments: Arguments) -> bool:
    """Two arguments are two arrays, of which the kernel takes one for the other."""
    return any(arguments.values[i] != arguments.values[j] for i, j in kernel.plan.one_array)


def _one_array(kernel: Kernel, arguments: Arguments) -> Pairs:
    """The arguments that share memory and must not, where each pair is one array, from its first element on,
    and the kernel knows what to do about it; else none."""
    found = [p for p in kernel.plan.in_place if first_overlap((p,), arguments.bytes_of)]
    rest = set(kernel.plan.disjoint).difference(found)
    alike = all(arguments.values[i] == arguments.values[j] for i, j in found)
    return tuple(found) if alike and not first_overlap(rest, arguments.bytes_of) else ()


def _overlap(kernel: Kernel, arguments: Arguments) -> tuple[int, int] | None:
    """The first two arguments that share memory and must not."""
    return first_overlap(kernel.plan.disjoint, arguments.bytes_of)


def _stores_meet(kernel: Kernel, arguments: Arguments) -> bool:
    """Two stores, or iterations of a loop, store to common places."""
    if first_overlap(kernel.plan.stored, arguments.bytes_of) is not None:
        return True
    return kernel.meeting(arguments.values) is not None


def _is_empty(kernel: Kernel, arguments: Arguments) -> bool:
    """An extent is 0 or less."""
    return any(min(dims) <= 0 for _, dims, _ in arguments.bound(kernel)[1])


def _splits_k(kernel: Kernel, arguments: Arguments) -> Parts:
    """How many CTAs share the steps of each program, or of the last wave's, where there are few; else 0."""
    ctas = kernel.split_k(arguments.values, arguments.programs) if arguments.programs > 0 else 1
    return 0 if ctas == 1 else ctas


# ---- what that changes


def for_short(request: Request) -> Request:
    """The variant for launches whose main loop has few steps."""
    return replace(request, launch=replace(request.launch, short=True))


def for_less(request: Request) -> Request:
    """The variant for negative sizes or strides, and divisors of 0: no boxes, every access by pointers."""
    return replace(request, structured=False, schedule=None)


@cache  # for equal pairs it is the same change
def for_one_array(pairs: Pairs) -> Change:
    """The variant for pairs of arguments that are one array each: rows are stored where they were loaded."""
    return lambda request: replace(request, one_array=pairs, schedule=None)


def for_order(request: Request) -> Request:
    """The variant for stores that meet: they keep the program's order."""
    return replace(request, in_order=True, schedule=None)


def for_overlap(request: Request) -> Request:
    """The variant for arguments that overlap: uniform, no load passes a store of the program."""
    return replace(request, knobs=request.knobs.uniform(), overlap=True, schedule=None)


def for_foreign(request: Request) -> Request:
    """The variant that others launch, with any arguments: nothing about them is taken for granted."""
    return replace(for_less(for_overlap(request)), foreign=True)


def for_empty(request: Request) -> Request:
    """The variant for extents of 0 or less, which TMA can't describe: no pointer counts as aligned."""
    specs = tuple(
        s if s.kind == "scalar" else replace(s, fact=replace(s.fact, divisible=1))
        for s in request.specs
    )
    return replace(request, specs=specs, schedule=None)


@cache
def for_split_k(ctas: Parts) -> Change:
    """The variant in which so many CTAs share the steps of a program, or some those of the last wave's."""
    return lambda request: replace(
        request, launch=replace(request.launch, split_k=ctas), schedule=None
    )


@dataclass(frozen=True, eq=False)
class Rule:
    """breaks: how a launch breaks what a kernel takes for granted; false where it does not.  change: what it
    is compiled for instead, by what `breaks` said."""

    breaks: Callable[[Kernel, Arguments], Any]
    change: Callable[[Any], Change]


OVERLAP = Rule(_overlap, lambda _: for_overlap)
SPLIT = Rule(_splits_k, for_split_k)
RULES = (
    Rule(_are_two, lambda _: for_one_array(())),
    Rule(_is_short, lambda _: for_short),
    Rule(_is_less, lambda _: for_less),
    Rule(_stores_meet, lambda _: for_order),
    Rule(_one_array, for_one_array),
    OVERLAP,
    Rule(_is_empty, lambda _: for_empty),
    SPLIT,  # last: where a stream is captured, the variant before it runs
)


def variants_for(
    kernel_of: Callable[[Changes], K],
    arguments: Arguments,
    tell: Callable[[Rule, K, Any], object],
) -> list[tuple[Changes, K]]:
    """The variants that a launch leads to, with the changes that make each; it runs the last one.

    kernel_of: the kernel with these changes.  tell: gets what each rule has found, before its change."""
    found: list[tuple[Changes, K]] = [((), kernel_of(()))]
    left = list(RULES)
    while met := _broken(left, found[-1][1], arguments):
        rule, reason = met
        changes, kernel = found[-1]
        tell(rule, kernel, reason)
        left.remove(rule)
        if rule is not SPLIT and SPLIT not in left:  # what it led to breaks another: first that one
            changes, left = changes[:-1], [*left, SPLIT]
        changes = (*changes, rule.change(reason))
        found.append((changes, kernel_of(changes)))
    return found


def _broken(rules: Sequence[Rule], kernel: Kernel, arguments: Arguments) -> tuple[Rule, Any] | None:
    """The first rule of which a launch gives a kernel something else, and how."""
    for rule in rules:
        if reason := rule.breaks(kernel, arguments):
            return rule, reason
    return None


def captured_of(found: Sequence[tuple[Changes, K]]) -> K | None:
    """The variant that runs instead where the stream is being captured (`OwnMemoryLaunch.captured`)."""
    changes, _ = found[-1]
    return found[-2][1] if changes and changes[-1] is for_split_k(LAST_WAVE) else None


@dataclass(frozen=True)
class Accepted(Generic[K]):
    """The variant that a launch led to, for all which differ from it in addresses alone (by multiples of
    MAX_DIVISOR) and in which no arguments overlap that must not.

    captured: as of `captured_of`.  disjoint: pairs of such arguments.  spans: where each argument in
    them lies from its address on; None of a number."""

    kernel: K
    captured: K | None
    disjoint: tuple[tuple[int, int], ...]
    spans: dict[int, Bytes | None]

    @staticmethod
    def of(found: Sequence[tuple[Changes, K]], arguments: Arguments) -> Accepted[K] | None:
        """Of what `variants_for` gave; None where that is for arguments that overlap, or are one array."""
        changes, kernel = found[-1]
        if kernel.plan.one_array or not {for_overlap, for_order}.isdisjoint(changes):
            return None
        disjoint = {pair for _, kernel in found for pair in kernel.plan.disjoint}
        spans = {
            i: _moved(arguments.bytes_of(i), -arguments.values[i])
            for i in {i for pair in disjoint for i in pair}
        }
        return Accepted(found[-1][1], captured_of(found), tuple(disjoint), spans)

    def takes(self, values: Sequence[Any]) -> bool:
        """Whether a launch with these addresses and numbers is such a one."""

        def bytes_of(i: int) -> Bytes | None:
            return _moved(self.spans[i], values[i])

        return not self.disjoint or first_overlap(self.disjoint, bytes_of) is None


def _moved(held: Bytes | None, by: int) -> Bytes | None:
    return None if held is None else Bytes(held.first + by, held.stop + by, held.rows)


def changed(request: Request, changes: Changes) -> Request:
    """The request for a variant."""
    for change in changes:
        request = change(request)
    return request


# ---- what has been compiled


def kind_of_grid(
    sizes: tuple[int, int, int] | None, target: Target, ctas: Any = 1
) -> tuple[int, int | None]:
    """`Launch.waves` and `Launch.axes` of a grid.  ctas: of each program, as a launch gives it."""
    if sizes is None:
        return 0, None
    x, y, z = sizes
    each = ctas if isinstance(ctas, int) else 1  # what is none is refused later
    waves = -(-x * y * z * each // target.multiprocessors)
    return min(MANY_WAVES, waves), (x > 1) | (y > 1) << 1 | (z > 1) << 2


class Compilations:
    """The variants of one kernel that this process has."""

    def __init__(self) -> None:
        self._made: Variants[CompiledKernel] = Variants()

    def __len__(self) -> int:
        return len(self._made)

    def get(self, request: Request, before: Callable[[Request], object]) -> CompiledKernel:
        """The kernel for a request, compiled if it is not here; `before` may refuse that."""
        for by_waves, by_axes in product((False, True), repeat=2):
            key = replace(request, launch=request.launch.less(by_waves, by_axes))
            kernel = self._made.find(_typed(key), request.roots)
            if kernel is None:
                continue
            plan = kernel.plan
            if key == request or (plan.by_waves <= by_waves and plan.by_axes <= by_axes):
                return kernel
        before(request)
        kernel = self._compiled(request, before)
        key = replace(
            request, launch=request.launch.less(kernel.plan.by_waves, kernel.plan.by_axes)
        )
        self._made.add(_typed(key), kernel.reads, kernel)
        return kernel

    def _compiled(self, request: Request, before: Callable[[Request], object]) -> CompiledKernel:
        """Of a request that no user made, where that can't be had, what it was made for."""
        try:
            return compile_request(request)
        except CompileError:
            if request.launch.split_k == 1:
                raise
        return self.get(replace(request, launch=replace(request.launch, split_k=1)), before)


def _typed(request: Request) -> tuple[Request, Any]:
    """A request as a key: True is not 1."""
    return request, exact(request.constexprs)
