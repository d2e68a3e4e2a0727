"""Calls that differ from earlier ones in addresses and floats alone, found without binding their arguments.

As `seen.py` does for calls that differ in nothing, it is learned for each combination of argument types how
to read what decides which variant a launch takes; addresses and numbers are read with it, and fill the
parameters of a launch that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from warploom.runtime.args import MAX_DIVISOR, probe_of, probe_torch
from warploom.runtime.compiled import CompiledKernel
from warploom.runtime.fixed import UNREAD, Start, apart_tests, starter
from warploom.runtime.launch import stream_getter
from warploom.runtime.seen import CALLS_KEPT, TYPES_KEPT, Reading
from warploom.runtime.variants import Accepted

Pairs = frozenset[tuple[int, int]]
Read = Callable[[Sequence[Any], Mapping[str, Any]], tuple[Any, tuple[Any, ...]] | None]


class Alike(NamedTuple):
    """What calls on a device launch.  holds: is the kernel still what it would be compiled to?"""

    start: Start
    kernel: CompiledKernel
    holds: Callable[[], bool]
    device: int


class _Road(NamedTuple):
    """Calls of one combination of types: how they are read, which arguments must share no memory for that,
    and what they launch, by grid and what was read."""

    read: Read
    disjoint: Pairs
    known: dict[Any, Alike]


class AlikeCalls:
    """What calls launch, by what decides it."""

    def __init__(self) -> None:
        # Replaced, never changed, as other threads may be reading it.
        self._roads: tuple[_Road, ...] = ()
        self._stream_of: Callable[[int], int] | None = None

    def __bool__(self) -> bool:
        return bool(self._roads)

    def launched(
        self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> CompiledKernel | None:
        """Launches as a call like this one did, and gives the kernel; None where there was none."""
        try:
            if type(grid) is not tuple or not 1 <= len(grid) <= 3 or type(sum(grid)) is not int:
                return None  # 2.0 is equal to 2, and refused
            sizes = (*grid, 1, 1)[:3]
            for road in self._roads:
                found = road.read(args, kwargs)
                alike = None if found is None else road.known.get((sizes, found[0]))
                if alike is not None and alike.holds():
                    break
            else:
                return None
        except UNREAD:  # binding says what is wrong
            return None
        if self._stream_of is None:
            self._stream_of = stream_getter()
        stream = 0 if self._stream_of is None else self._stream_of(alike.device)
        assert found is not None
        alike.start(*sizes, stream, *found[1])
        return alike.kernel

    def add(
        self,
        sizes: tuple[int, int, int],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        constexprs: Sequence[bool],
        accepted: Accepted[CompiledKernel],
        device: int,
    ) -> None:
        """Lets `launched` launch a variant for calls like this one, if it can read them.

        constexprs: which arguments by position are; all by name are, or knobs."""
        disjoint, kernel = frozenset(accepted.disjoint), accepted.kernel
        roads = (road for road in self._roads if disjoint <= road.disjoint)
        try:
            found = ((road, road.read(args, kwargs)) for road in roads)
            road, read = next((one for one in found if one[1] is not None), (None, None))
            if road is None or read is None:
                reader = _reader(args, kwargs, constexprs, disjoint)
                if reader is None or (read := reader(args, kwargs)) is None:
                    return
                road = _Road(reader, disjoint, {})
                self._roads = (road, *self._roads[: TYPES_KEPT - 1])
        except UNREAD:  # a tensor without a storage
            return
        if len(road.known) >= CALLS_KEPT:
            road.known.clear()
        start = starter(kernel, device, len(read[1]))
        road.known[sizes, read[0]] = Alike(start, kernel, kernel.reads.holds, device)


def _reader(
    args: Sequence[Any], kwargs: Mapping[str, Any], constexprs: Sequence[bool], disjoint: Pairs
) -> Read | None:
    """A function that gives what decides of calls with arguments of these types, and the numbers and
    addresses of a launch; None of others, of arrays that share memory and must not, of tensors without
    memory, and of those with other numbers there (torch's negative views).  None where it would read others
    than numbers and tensors."""
    made = Reading([*enumerate(args), *kwargs.items()])
    key, lines, tests, values = [], [], [], []
    arrays: dict[int, str] = {}  # names, by the place among `values`
    for name, at, value in made.variables:
        kind: Any = type(value)
        if isinstance(at, str) or constexprs[at] or value is None:
            key.append(made.key_of(name, value))
        elif kind is int or kind is bool:
            key.append(name)
            values.append(name)
        elif kind is float:
            values.append(name)
        elif probe_of(kind, value) is probe_torch:
            lines.append(f"p{name} = {name}.data_ptr()")
            tests.append(f"p{name} and not {name}.is_neg()")
            key.append(f"{name}.dtype, {name}.get_device(), p{name} % {MAX_DIVISOR}")
            arrays[len(values)] = name
            values.append(f"p{name}")
        else:
            return None
    more, apart = apart_tests(disjoint, arrays, made.constants)
    tests += apart
    result = f"(({''.join(f'{k}, ' for k in key)}), ({''.join(f'{v}, ' for v in values)}))"
    read: Read = made.written(
        [*lines, *more], f"{result} if {' and '.join(tests) or 'True'} else None"
    )
    return read
