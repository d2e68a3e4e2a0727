"""The vocabulary between kernels and the frontend: markers, loops, and values that are no tiles."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

from warploom.errors import WarploomError
from warploom.ir.core import Value
from warploom.ir.types import DType

__all__ = [
    "async_task", "condition", "constexpr", "constexpr_function", "range", "static_range", "tensor",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

METHODS: dict[str, Callable[..., Any]] = {}  # functions that are also methods of tiles: x.to(…)


def builtin(fn: F) -> F:
    """Marks a function of the language: it is called while translating and emits IR."""
    fn.__warploom_builtin__ = True  # type: ignore[attr-defined]
    return fn


def named(name: str, means: str, fn: F) -> F:
    """A builtin that was made by another function: what it is called, and its docstring."""
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = means
    return builtin(fn)


def method(fn: F) -> F:
    """A builtin that is also a method of tiles and scalars, which become its first argument."""
    METHODS[fn.__name__.rstrip("_")] = fn
    return builtin(fn)


def constexpr_function(fn: F) -> F:
    """Decorator: a Python function that kernels may call with constexprs; it runs while compiling."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapped.__warploom_constexpr__ = fn  # type: ignore[attr-defined]
    return wrapped  # type: ignore[return-value]


class Constexpr:
    """A value known while compiling: annotation of a parameter or local, or wrapper of a global; of a Python
    function what `constexpr_function` makes of it."""

    def __new__(cls, value: Any) -> Any:
        return (
            constexpr_function(value) if isinstance(value, FunctionType) else super().__new__(cls)
        )

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, Constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"  # Triton's text

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Constexpr) else other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def not_(self) -> Constexpr:
        """not, as a constexpr."""
        return Constexpr(not self.value)

    def logical_and(self, other: Constexpr) -> Constexpr:
        """Python's and of what both hold, as a constexpr."""
        return Constexpr(self.value and other.value)

    def logical_or(self, other: Constexpr) -> Constexpr:
        """Python's or of what both hold, as a constexpr."""
        return Constexpr(self.value or other.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __getitem__(self, index: Any) -> Any:
        return self.value[index]


def _operator(fn: Callable[..., Any], is_reversed: bool = False) -> Callable[..., Constexpr]:
    def method(*operands: Any) -> Constexpr:
        known = [Constexpr(x).value for x in operands]
        return Constexpr(fn(*(reversed(known) if is_reversed else known)))

    return method


# On the host constexprs are computed with as what they hold.
for _name in ("neg", "pos", "invert"):
    setattr(Constexpr, f"__{_name}__", _operator(getattr(operator, _name)))
_SIDED = "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor"
for _name in _SIDED.split():
    _own = _name.strip("_")
    setattr(Constexpr, f"__{_own}__", _operator(getattr(operator, _name)))
    setattr(Constexpr, f"__r{_own}__", _operator(getattr(operator, _name), is_reversed=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Constexpr, f"__{_name}__", _operator(getattr(operator, _name)))


# A type checker sees a constexpr parameter as what the kernel's code uses it as: any value.
if TYPE_CHECKING:
    constexpr: TypeAlias = Any
else:
    constexpr = Constexpr


tensor = Value  # for annotations of helpers, and isinstance


@dataclass(init=False)
class range:
    """A loop with hints: `for i in tl.range(lo, hi, step, num_stages=3)`.

    num_stages: slots of the rings that this loop's loads fill, before what the launch asks for.
    warp_specialize: True asks that a task of its own issues the loop's loads (a launch with
    num_consumer_groups=0 overrules it), False that it doesn't.  flatten: one loop with those in it: the
    producer runs on from one iteration to the next.  loop_unroll_factor: copies of the body an iteration.
    disallow_acc_multi_buffer: holds anyway.  disable_licm is never honoured.
    What can't be done as asked is a warning with the loop's line, an error where strict=True.
    """

    bounds: tuple[Any, Any, Any]
    hints: dict[str, Any]

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = None,
        disable_licm: Any = False,
    ) -> None:
        lo, hi = (0, arg1) if arg2 is None else (arg1, arg2)
        self.bounds = (lo, hi, 1 if step is None else step)
        self.hints = {
            "num_stages": num_stages,
            "unroll": loop_unroll_factor,
            "flatten": flatten,
            "warp_specialize": warp_specialize,
            "disallow_acc_multi_buffer": disallow_acc_multi_buffer,
            "disable_licm": disable_licm,
        }

    def __iter__(self) -> Iterator[Any]:
        raise WarploomError("tl.range can only be looped over inside a kernel")


@dataclass(init=False)
class static_range:
    """A loop that is unrolled while compiling: its bounds and index are constexprs.

    One of more than 16 steps with dots is a loop all the same, so that rings bring their operands, where no
    step needs its index while compiling."""

    bounds: tuple[Any, Any, Any]

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        lo, hi = (0, arg1) if arg2 is None else (arg1, arg2)
        self.bounds = (lo, hi, 1 if step is None else step)

    def __iter__(self) -> Iterator[Any]:
        raise WarploomError("tl.static_range can only be looped over inside a kernel")


@dataclass(frozen=True)
class async_task:
    """`with tl.async_task([0]):` names the tasks that shall run the ops inside.

    Numbers only group: the task of the dots is the consumers' (as many groups as numbers, where the launch
    doesn't say), loads under another number are the producer's.  What can't be done as asked is a warning
    with its line, an error where strict=True.  A launch with num_consumer_groups=0 has one task.
    """

    task_ids: Any

    def __enter__(self) -> None:
        raise WarploomError("tl.async_task can only be entered inside a kernel")

    def __exit__(self, *error: object) -> None:
        pass


@builtin
def condition(arg1: Any, disable_licm: Any = False) -> Any:
    """`while tl.condition(i < n, disable_licm=True):` is `while i < n:`; the hint is never honoured."""
    return arg1


@dataclass(frozen=True)
class Handle:
    """A value of several IR values and some constants.  Loops and ifs carry the fields named in `carried`."""

    carried: ClassVar[tuple[str, ...]]

    def parts(self) -> tuple[Any, ...]:
        """The values, in order."""
        return tuple(getattr(self, name) for name in self.carried)

    def with_parts(self, parts: tuple[Any, ...]) -> Self:
        """The same handle of other values."""
        return replace(self, **dict(zip(self.carried, parts, strict=True)))

    def static(self) -> tuple[Any, ...]:
        """What must not change when it is carried."""
        kept = (f.name for f in fields(self) if f.name not in self.carried)
        return (type(self), *(getattr(self, name) for name in kept))


@dataclass(frozen=True)
class Table(Handle):
    """A dict inside a kernel: names known while compiling, and a value of any kind for each."""

    carried = ("values",)
    keys: tuple[Any, ...]
    values: tuple[Any, ...]

    def as_dict(self) -> dict[Any, Any]:
        return dict(zip(self.keys, self.values, strict=True))


@dataclass(frozen=True)
class Aggregate(Handle):
    """An object of a class under @triton.aggregate: its fields, those annotated tl.constexpr apart."""

    carried = ("values",)
    kind: type
    names: tuple[str, ...]
    values: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...]

    def __getattr__(self, name: str) -> Any:
        """A field, in an __init__ that Python runs."""
        if name in FIELDS_OF_OWN or name not in self.as_dict():
            raise AttributeError(name)
        return self.as_dict()[name]

    def as_dict(self) -> dict[str, Any]:
        return {**dict(zip(self.names, self.values, strict=True)), **dict(self.constants)}


FIELDS_OF_OWN = ("kind", "names", "values", "constants")
FIELDS = "__warploom_fields__"  # of such a class: name -> annotation


def aggregate(cls: type) -> type:
    """Decorator: a class whose objects kernels make, with typed fields and methods under @triton.jit.

    Objects don't change: methods return new ones.  A field annotated tl.constexpr is known while compiling.
    Without an __init__ of its own (plain, or under @triton.constexpr_function) the class takes its fields,
    with the defaults that it gives them.

    @triton.aggregate
    class Sum:
        total: tl.tensor
        count: tl.constexpr

        @triton.jit
        def add(self, x):
            return Sum(self.total + x, self.count)
    """
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        fields |= vars(base).get("__annotations__", {})
    setattr(cls, FIELDS, fields)
    return cls


@dataclass(frozen=True)
class BlockPointer(Handle):
    """tl.make_block_ptr: a parent array, and where in it the block now stands (i32, one an axis)."""

    carried = ("base", "shape", "strides", "offsets")
    base: Value
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offsets: tuple[Any, ...]
    block_shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Descriptor(Handle):
    """A tensor descriptor inside a kernel: a view and the shape of the boxes that it moves."""

    carried = ("base", "view", "shape", "strides")
    base: Value
    view: Value
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    block_shape: tuple[int, ...]
    dtype: DType
    padding: str = "zero"
