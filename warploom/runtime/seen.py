"""Calls like one before: what they led to, found again by everything that a launch depends on.

Most launches of a process repeat earlier ones, so finding them costs more often than anything else here.  As
an interpreter does at a call site (a polymorphic inline cache), it is learned for each combination of
argument types how to read a key: a function is written that tests the types and gives the key, without a
loop, a table or a call for each argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from warploom.frontend.tokens import distinct, key_of_class
from warploom.runtime.args import CPU, KEYS, TORCH_READS, probe_of, probe_torch

T = TypeVar("T")
KeyOf = Callable[[Sequence[Any], Mapping[str, Any]], Any]

CALLS_KEPT = 4096  # that one kernel remembers
TYPES_KEPT = 16  # combinations of argument types that it remembers
# What reading a key raises: of arguments that can't be hashed, and of torch's tensors without an address.
UNKEYED = (TypeError, ValueError, RuntimeError)
_THEMSELVES = (int, bool, str, type(None))  # equal values of one of these types are the same


class SeenCalls(Generic[T]):
    """What calls led to, by the types and values of their arguments; of arrays address, dtype, shape, strides
    and device count.  True is not 1, and 0.0 is not -0.0."""

    def __init__(self) -> None:
        # Of each combination of types; replaced, never changed, as other threads may be reading it.
        self._alike: tuple[tuple[KeyOf, dict[Any, T]], ...] = ()

    def __len__(self) -> int:
        return sum(len(calls) for _, calls in self._alike)

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> T | None:
        """What a call like this one led to; None where there was none."""
        try:
            for key_of, calls in self._alike:
                found = calls.get(key_of(args, kwargs))
                if found is not None:
                    return found
        except UNKEYED:  # binding says what is wrong
            pass
        return None

    def add(self, args: Sequence[Any], kwargs: Mapping[str, Any], found: T) -> None:
        """Lets `find` give `found`, unless the arguments have no key."""
        if len(self) >= CALLS_KEPT:
            self._alike = ()
        try:
            for key_of, calls in self._alike:
                key = key_of(args, kwargs)
                if key is not None:
                    calls[key] = found
                    return
            key_of = _key_function([*enumerate(args), *kwargs.items()])
            calls = {key_of(args, kwargs): found}
        except UNKEYED:
            return
        self._alike = ((key_of, calls), *self._alike[: TYPES_KEPT - 1])


class Reading:
    """A function of a call's arguments that is being written: variables for arguments of these types, each
    with its position or name."""

    def __init__(self, values: Iterable[tuple[int | str, Any]]) -> None:
        self.variables = [(f"a{i}", at, value) for i, (at, value) in enumerate(values)]
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        """A name for a value."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def key_of(self, name: str, value: Any) -> str:
        """What a launch depends on of a variable with values of this one's type, as Python text."""
        kind: Any = type(value)
        if kind in _THEMSELVES:
            return name
        if kind is float:
            return f"{name} or repr({name})"
        if isinstance(value, tuple | list):
            return f"{self.constant(_key_of_parts)}({name})"
        read = KEYS.get(kind) or probe_of(kind, value) or key_of_class(kind)
        is_torch = read is probe_torch
        return TORCH_READS.format(name) if is_torch else f"{self.constant(read)}({name})"

    def written(self, lines: Iterable[str], result: str) -> Any:
        """The function: `result`, after these lines, where arguments have the types; else None."""
        unpacked = [name for name, at, _ in self.variables if isinstance(at, int)]
        named = [(name, at) for name, at, _ in self.variables if isinstance(at, str)]
        tests = [f"type({n}) is {self.constant(type(v))}" for n, _, v in self.variables]
        text = (
            "def read(args, kwargs):",
            f" if len(kwargs) != {len(named)}: return None",
            " try:",
            f"  [{', '.join(unpacked)}] = args",
            *(f"  {name} = kwargs[{at!r}]" for name, at in named),
            " except (ValueError, KeyError): return None",
            f" if not ({' and '.join(tests) or 'True'}): return None",
            *(f" {line}" for line in lines),
            f" return {result}",
        )
        exec("\n".join(text), self.constants)
        return self.constants["read"]


def _key_function(values: Iterable[tuple[int | str, Any]]) -> KeyOf:
    """A function that gives the key of a call's arguments where they have the types of these; else None."""
    made = Reading(values)
    parts = [made.key_of(name, value) for name, _, value in made.variables]
    key_of: KeyOf = made.written((), f"({' '.join(f'{p},' for p in parts)})")
    return key_of


def _key_of_parts(values: Sequence[Any]) -> tuple[Any, ...]:
    """What a launch depends on of a tuple of arguments."""
    return tuple((type(v), _part(v)) for v in values)


def _part(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return _key_of_parts(value)
    kind = type(value)
    read = KEYS.get(kind) or probe_of(kind, value) or distinct
    return read(value)


class Usual(NamedTuple):
    """Arguments that are arrays and numbers, read without binding them.

    classes: what the variant depends on, but for extents and overlaps.  items: the run-time arguments:
    numbers, and of arrays what a probe read."""

    classes: tuple[Any, ...]
    items: tuple[Any, ...]

    @property
    def values(self) -> tuple[Any, ...]:
        """Numbers, and addresses of arrays."""
        return tuple([x[1] if type(x) is tuple else x for x in self.items])

    @property
    def extents(self) -> tuple[Any, ...]:
        """Integers, bools, and shapes and strides of arrays: no float decides which variant runs."""
        shown = [x[2:4] if type(x) is tuple else x for x in self.items if type(x) is not float]
        return tuple(shown)

    @property
    def device(self) -> int:
        """The first array's; CPU where there is none."""
        return next((x[4] for x in self.items if type(x) is tuple), CPU)


def usual(
    args: Iterable[Any], constexprs: Iterable[bool], named: Mapping[str, Any]
) -> Usual | None:
    """Arguments by position, of which some are constexprs, and constexprs and knobs by name; None where only
    binding can read them, or refuses them."""
    classes: list[Any] = []
    items: list[Any] = []
    try:
        for constexpr, value in zip(constexprs, args, strict=False):
            kind = type(value)
            if constexpr or value is None:
                classes.append(distinct(value))
            elif kind is int:
                # i32 or wider, 1, and the divisor up to 16
                wide = not -(1 << 31) <= value < 1 << 31
                classes.append((value if wide else 0, value == 1, value & -value & 15))
                items.append(value)
            elif kind is float or kind is bool:
                classes.append(kind)
                items.append(value)
            else:
                probe = probe_of(kind, value)
                if probe is None:
                    return None
                item = probe(value)
                if item[5] or not (item[1] or 0 in item[2]):  # of the other sign, or without memory
                    return None
                classes.append((item[0], item[1] & 15, item[4]))
                items.append(item)
        classes += [(name, distinct(value)) for name, value in named.items()]
        found = tuple(classes)
        hash(found)
    except UNKEYED:
        return None
    return Usual(found, tuple(items))
