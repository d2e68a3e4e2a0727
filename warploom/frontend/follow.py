"""Whether what was read is what it was, at the price of a few comparisons.

A `Condition` is one comparison by identity; `same` makes of many a function that a launch can afford.
`follow` finds the conditions under which a constexpr function, which Python runs, must give the same result
again: it reads the code objects that the function reaches for what they load from outside.  Where something
can't be followed (an object's state, a dict, an import, a module that is passed on) there is no such list,
and the call is made again.  Functions written in C are taken to depend on their arguments only.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_FUNCTIONS = 100  # that one call is followed through

# Of Python's functions those whose result is no function of their arguments.
_OPEN = frozenset(
    [
        "__import__",
        "breakpoint",
        "compile",
        "dir",
        "eval",
        "exec",
        "globals",
        "input",
        "locals",
        "open",
        "vars",
    ]
)
_ATOMS = (type(None), bool, int, float, str, bytes, complex, type(Ellipsis))


@dataclass(frozen=True)
class Condition:
    """What must hold.  kind: `item` (subject[name] is value), `attribute` (subject.name is value), `absent`
    (name is not in subject), `again` (subject() is true)."""

    kind: str
    subject: Any
    name: str = ""
    value: Any = None

    @classmethod
    def of_name(cls, fn: types.FunctionType, name: str, value: Any) -> Condition:
        """A name that `fn` does not assign."""
        if name in fn.__code__.co_freevars and fn.__closure__ is not None:
            cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
            return cls("attribute", cell, "cell_contents", value)
        return cls.of_item(fn.__globals__, name, value)

    @classmethod
    def of_item(cls, space: Any, name: str, value: Any) -> Condition:
        """A namespace's entry; none where Python looks on elsewhere."""
        return cls("item", space, name, value) if name in space else cls("absent", space, name)

    @classmethod
    def of_attribute(cls, owner: Any, name: str, value: Any) -> Condition | None:
        """An attribute of a module or class; None where its object is made anew each time."""
        if vars(owner).get(name, owner) is value:
            return cls("item", vars(owner), name, value)
        return (
            cls("attribute", owner, name, value) if getattr(owner, name, owner) is value else None
        )


def same(conditions: Iterable[Condition]) -> Callable[[], bool]:
    """A function that tells whether all conditions hold, as Python text: half the time of a loop."""
    constants: list[Any] = []
    tests: dict[tuple[Any, ...], str] = {}

    def constant(value: Any) -> str:
        constants.append(value)
        return f"v{len(constants) - 1}"

    for c in conditions:
        key = c.kind, id(c.subject), c.name
        if key in tests:
            continue
        subject = constant(c.subject)
        match c.kind:
            case "item":
                tests[key] = f"{subject}[{c.name!r}] is {constant(c.value)}"
            case "absent":
                tests[key] = f"{c.name!r} not in {subject}"
            case "attribute":
                tests[key] = f"{subject}.{c.name} is {constant(c.value)}"
            case _:
                tests[key] = f"{subject}()"
    # calls last: they cost most
    ordered = sorted(tests.values(), key=lambda text: text.endswith("()"))
    text = (
        f"def make({', '.join(f'v{i}' for i in range(len(constants)))}):\n"
        " def holds():\n"
        "  try:\n"
        f"   return {' and '.join(ordered) or 'True'}\n"
        "  except Exception:\n"  # a name or attribute that is gone
        "   return False\n"
        " return holds\n"
    )
    made: dict[str, Any] = {}
    exec(text, made)
    holds: Callable[[], bool] = made["make"](*constants)
    return holds


def is_own(value: Any) -> bool:
    """Whether a function, class or module is warploom's; its kernels count as a user's."""
    if isinstance(value, types.FunctionType):  # by its globals: functools.wraps copies __module__
        inner = getattr(value, "__warploom_constexpr__", value)
        return _is_own_module(getattr(inner, "__globals__", {}).get("__name__"))
    module = value.__name__ if isinstance(value, types.ModuleType) else None
    return _is_own_module(module or getattr(value, "__module__", None))


@functools.cache
def _is_own_module(name: object) -> bool:
    parts = name.split(".") if isinstance(name, str) else [""]
    return parts[0] == "warploom" and parts[1:2] != ["kernels"]


# ---- constexpr functions


def follow(fn: Any, args: Sequence[Any]) -> list[Condition] | None:
    """The conditions under which fn(*args) gives what it gave; None where its code doesn't tell."""
    trail = _Trail()
    try:
        trail.function(fn)
        for value in args:
            trail.settle(value)
    except _Unknown:
        return None
    return trail.found


class _Unknown(Exception):
    """The code reads something that can't be followed."""


class _Trail:
    """What the functions that a call reaches read, as far as it was followed."""

    def __init__(self) -> None:
        self.found: list[Condition] = []
        self.seen: set[int] = set()

    def function(self, value: Any) -> None:
        """A function that is called, or may be."""
        inner = getattr(value, "__warploom_constexpr__", None)
        fn = value if inner is None else inner
        if is_own(fn) or id(fn) in self.seen:
            return
        if not isinstance(fn, types.FunctionType) or len(self.seen) >= MOST_FUNCTIONS:
            raise _Unknown
        self.seen.add(id(fn))
        if fn.__kwdefaults__ or hasattr(fn, "__wrapped__"):
            raise _Unknown
        for default in fn.__defaults__ or ():
            self.settle(default)
        self.found.append(Condition("attribute", fn, "__code__", fn.__code__))
        self.found.append(Condition("attribute", fn, "__defaults__", fn.__defaults__))
        self.code(fn, fn.__code__, frozenset())

    def code(self, fn: types.FunctionType, code: types.CodeType, local: frozenset[str]) -> None:
        """A code object of fn's.  local: cells of the code objects around it."""
        local |= {*code.co_cellvars}
        steps = [i for i in dis.get_instructions(code) if i.opname not in _SILENT]
        for at, step in enumerate(steps):
            match step.opname:
                case "LOAD_GLOBAL":
                    self.chain(self.named(fn, step.argval), steps[at + 1 :])
                case "LOAD_DEREF" | "LOAD_CLOSURE" if step.argval not in local:
                    self.chain(self.named(fn, step.argval), steps[at + 1 :])
                case "STORE_DEREF" if step.argval not in local:
                    raise _Unknown
                case name if name in _UNKNOWN:
                    raise _Unknown
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                self.code(fn, inner, local)

    def named(self, fn: types.FunctionType, name: str) -> Any:
        """The value of a name now."""
        if name in fn.__code__.co_freevars and fn.__closure__ is not None:
            try:
                value = fn.__closure__[fn.__code__.co_freevars.index(name)].cell_contents
            except ValueError:
                raise _Unknown from None
        elif name in fn.__globals__:
            value = fn.__globals__[name]
        elif name in vars(builtins) and name not in _OPEN:
            value = vars(builtins)[name]
        else:
            raise _Unknown
        self.found.append(Condition.of_name(fn, name, value))
        return value

    def chain(self, value: Any, steps: Sequence[dis.Instruction]) -> None:
        """A value that was loaded, and the attributes of modules and classes that are read of it at once."""
        for step in steps:
            if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            if type(value) in _ATOMS:
                return
            if not _is_constexpr(value):
                if is_own(value):
                    return
                if not isinstance(value, types.ModuleType | type):
                    raise _Unknown
            found = getattr(value, step.argval, _Unknown)
            condition = Condition.of_attribute(value, step.argval, found)
            if found is _Unknown or condition is None:
                raise _Unknown
            self.found.append(condition)
            value = found
        self.settle(value)

    def settle(self, value: Any) -> None:
        """A value that the code may do anything with.  Raises _Unknown where it has state."""
        if type(value) in _ATOMS or isinstance(value, enum.Enum):
            return
        if type(value) in (tuple, frozenset):
            for item in value:
                self.settle(item)
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, types.BuiltinFunctionType):
            if not isinstance(value.__self__, types.ModuleType | type(None)):
                raise _Unknown  # a method of some object
        elif isinstance(value, type):
            if not is_compiled(value):
                raise _Unknown
        elif _is_constexpr(value):
            self.found.append(Condition("item", vars(value), "value", value.value))
            self.settle(value.value)
        elif type(value).__module__ != "warploom.ir.types":  # dtypes don't change
            raise _Unknown


# Instructions without a value of their own that may stand between a load and its attributes.
_SILENT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "PRECALL", "NOT_TAKEN"})
_UNKNOWN = frozenset(
    {"DELETE_DEREF", "DELETE_GLOBAL", "IMPORT_FROM", "IMPORT_NAME", "LOAD_BUILD_CLASS"}
    | {"LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_NAME"}
    | {"LOAD_LOCALS", "STORE_GLOBAL"}
)


def _is_constexpr(value: Any) -> bool:
    return type(value).__name__ == "Constexpr" and is_own(type(value))


def is_compiled(kind: type) -> bool:
    """Whether a class is written in C, and can't be changed."""
    return bool(kind.__flags__ & (1 << 8))  # Py_TPFLAGS_IMMUTABLETYPE
