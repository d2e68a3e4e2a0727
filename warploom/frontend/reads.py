"""What a translation reads of the world outside of the kernel: the identity of what it makes.

A translation is a function of the kernel's text, its arguments, and the answers that it gets when it looks at
something else: a global name, a closure's variable, an attribute of a module or class, the text and defaults
of a helper, the result of a constexpr function.  `Reads` gives these answers and writes each down beside its
question.  Asked again in the same order, questions that get the same answers lead a translation to the same
result.  So the record is a key: of compiled variants in a process (`Variants`) and on disk (`Reads.text`).

Answers are *tokens*, nested tuples of strings and numbers.  Numbers, strings and dtypes stand for themselves;
other objects are numbered in the order in which they are met, and questions name them by number: what matters
of a module is what was read of it.  What belongs to warploom or to Python itself has a name; the cache's key
holds warploom's own text.

Not tracked: files, the environment and the clock, where a constexpr function reads them by functions written
in C only (`follow`), and Python's builtins, which are taken to stay what they are.
"""

from __future__ import annotations

import ast
import functools
import json
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from warploom.errors import InternalError
from warploom.frontend.follow import Condition, follow, is_own, same
from warploom.frontend.source import Function, Source, default_of, lookup, parse_function
from warploom.frontend.tokens import (
    LITERAL_NAMES,
    LITERALS,
    Token,
    alike,
    changes,
    frozen,
    function_of,
    in_words,
    is_object,
    label,
    public_name,
    resolve,
    unwrapped,
)

Question = tuple[Any, ...]  # (what, number of the object that is asked, …)

MISSING = object()  # the answer where there is no such name or attribute
VARIANTS_KEPT = 16  # of one key: what a notebook changes again and again is compiled again at last

T = TypeVar("T")


class Reads:
    """The record of one translation.  roots: what it starts from, the kernel's function or script first, then
    the values of its compile-time parameters.

    `is_current()` says whether a translation now would read the same.  `text` is the record as a key."""

    def __init__(self, *roots: Any) -> None:
        self.roots = roots
        self.answers: dict[Question, Token] = {}
        self._values: dict[Question, Any] = {}
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}  # by id; `_objects` keeps them alive
        self._kept: dict[Token, Any] = {}  # values that their tokens don't say
        self._conditions: list[Condition] = []
        self._holds: Callable[[], bool] | None = None
        self.start = tuple(map(self._token, roots))  # what is known before anything is read
        self._of_roots = frozenset(self._kept)

    # ---- while translating

    def name(self, fn: Function, name: str) -> tuple[bool, Any]:
        """`lookup`, recorded."""
        if is_own(fn):
            return lookup(fn, name)
        value = self._ask(("name", self._number(fn), name))
        return value is not MISSING, value

    def attribute(self, owner: Any, name: str) -> Any:
        """getattr of a module or class; MISSING where there is none."""
        if is_own(owner):
            return getattr(owner, name, MISSING)
        return self._ask(("attribute", self._number(owner), name))

    def field(self, owner: Any, name: str) -> Any:
        """A variable of an object, whatever its class has; MISSING where there is none."""
        return self._ask(("field", self._number(owner), name))

    def source(self, fn: Function) -> Source:
        """The text of a function that is inlined."""
        if not is_own(fn):
            self._ask(("source", self._number(fn)))
        return parse_function(fn)

    def default(self, fn: Function, parameter: str) -> Any:
        """A parameter's default."""
        if is_own(fn):
            return default_of(fn, parameter)
        return self._ask(("default", self._number(fn), parameter))

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a constexpr function."""
        if is_own(fn):
            return fn(*args, **kwargs)
        named = tuple((name, self._token(value)) for name, value in kwargs.items())
        return self._ask(("call", self._number(fn), tuple(map(self._token, args)), named))

    def _ask(self, question: Question) -> Any:
        if question not in self._values:
            value = self._answer(question)
            self.answers[question] = self._token(value)
            self._values[question] = value
            self._conditions += self._conditions_of(question, value)
        return self._values[question]

    def _answer(self, question: Question) -> Any:
        what, number, *rest = question
        subject = self._objects[number]
        match what:
            case "name":
                found, value = lookup(function_of(subject), rest[0])
                return value if found else MISSING
            case "attribute":
                return getattr(subject, rest[0], MISSING)
            case "field":
                return vars(subject).get(rest[0], MISSING)
            case "source":
                return parse_function(function_of(subject)).digest
            case "default":
                return default_of(function_of(subject), rest[0])
            case "call":
                args = [self._value(t) for t in rest[0]]
                return subject(*args, **{name: self._value(t) for name, t in rest[1]})
        raise InternalError(f"a record of what a translation read asks {what!r}")

    # ---- tokens

    def _token(self, value: Any) -> Token:
        value = unwrapped(value)
        kind = type(value)
        if value is MISSING:
            return ("missing",)
        if kind in LITERALS:
            return (kind.__name__, repr(value))
        if isinstance(value, list | tuple):
            token: Token = ("list" if kind is list else "tuple", *map(self._token, value))
            if kind not in (list, tuple):
                token = ("named tuple", kind.__qualname__, getattr(kind, "_fields", ()), token)
                self._kept[token] = value
            return token
        if kind is dict:
            token = ("dict", *map(self._token, value.items()))
            self._kept[token] = dict(value)
            return token
        if kind.__module__.startswith("warploom.") and not is_object(value):
            token = ("value", kind.__qualname__, repr(value))
        elif isinstance(value, bool | int | float | str | bytes | complex):  # an enum's member, say
            token = ("value", f"{kind.__module__}.{kind.__qualname__}", repr(value))
        elif name := public_name(value):
            return ("named", *name)
        else:
            return ("object", self._meet(value), *label(value))
        self._kept[token] = value
        return token

    def _value(self, token: Token) -> Any:
        """What a token stands for.  Raises KeyError where only another process knows."""
        match token:
            case ("object", number, *_):
                return self._objects[number]
            case ("named", module, name):
                return resolve(module, name)
            case ("list", *items):
                return [self._value(t) for t in items]
            case ("tuple", *items):
                return tuple(self._value(t) for t in items)
            case ("float", text):
                return float(text)
            case ("complex", text):
                return complex(text)
            case (kind, text) if kind in LITERAL_NAMES:
                return ast.literal_eval(text)
            case ("value", "DType", text):
                from warploom.ir.types import NAMED_DTYPES

                return next(d for d in NAMED_DTYPES.values() if repr(d) == text)
        return self._kept[token]

    def _meet(self, value: Any) -> int:
        """The number of an object, which is new where it was never met."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
            inner = function_of(value)
            if (
                inner is not value
            ):  # the translator asks the function behind a kernel or constexpr function
                self._numbers.setdefault(id(inner), number)
        return number

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            raise InternalError(f"a translation met {value!r} on a way that nothing recorded")
        return number

    # ---- the record as a key

    @property
    def text(self) -> str:
        """The record: equal texts after equal starts come from equal translations, in any process."""
        return json.dumps(list(self.answers.items()), separators=(",", ":"))

    @classmethod
    def again(cls, roots: Sequence[Any], text: str) -> Reads | None:
        """A record read once more, with the answers of now; None where one differs."""
        made = cls(*roots)
        try:
            entries = [(frozen(q), frozen(t)) for q, t in json.loads(text)]
        except (ValueError, TypeError):  # no record
            return None
        return made if made._gets(entries) else None

    def _gets(self, entries: Iterable[tuple[Question, Token]]) -> bool:
        """Asks the questions; whether the answers are these."""
        try:
            for question, token in entries:
                self._ask(question)
                if self.answers[question] != token:
                    return False
        except Exception:  # a constexpr function's, or no such object
            return False
        return True

    # ---- in the process

    @property
    def holds(self) -> Callable[[], bool]:
        """A quick test that says False as soon as an object that was read is another one."""
        if self._holds is None:
            self._holds = same(self._conditions)
        return self._holds

    def is_current(self, roots: Sequence[Any] | None = None) -> bool:
        """Whether a translation now, from `roots` where these are given, would read the same.  Takes over
        objects that became others of the same token."""
        roots = self.roots if roots is None else roots
        if all(map(alike, roots, self.roots)) and self.holds():
            return True
        fresh = Reads(*roots)
        later = {t: v for t, v in self._kept.items() if t not in self._of_roots}
        fresh._kept = later | fresh._kept
        if not fresh._gets(list(self.answers.items())):
            return False
        vars(self).update(vars(fresh))
        return True

    def _conditions_of(self, question: Question, value: Any) -> Iterator[Condition]:
        """What has to hold so that the answer stays this one."""
        what, number, *rest = question
        subject = self._objects[number]
        found: Condition | None = None
        match what:
            case "source":
                # of a script's method, which tools replace; a kernel is what it was when it was decorated
                if isinstance(subject, types.FunctionType) and subject is not self.roots[0]:
                    yield Condition("attribute", subject, "__code__", subject.__code__)
                return
            case "call":
                followed = follow(subject, self._arguments(question))
                if followed is not None:
                    yield from followed
                    return
            case "name":
                found = Condition.of_name(function_of(subject), rest[0], value)
            case "attribute" if value is not MISSING:
                found = Condition.of_attribute(subject, rest[0], value)
            case "field":
                found = Condition.of_item(vars(subject), rest[0], value)
            case "default":
                yield from self._same_default(function_of(subject), rest[0])
                if not changes(value):
                    return
        if found is not None:
            yield found
        inner = unwrapped(value)
        if inner is not value and not changes(inner):
            yield Condition("item", vars(value), "value", inner)
        elif found is None or changes(value):
            yield Condition("again", functools.partial(self._repeats, question))

    def _same_default(self, fn: Function, parameter: str) -> Iterator[Condition]:
        """Where a default stays the object that it is."""
        if not isinstance(fn, types.FunctionType):
            return
        yield Condition("attribute", fn, "__defaults__", fn.__defaults__)
        named = fn.__kwdefaults__
        yield Condition("attribute", fn, "__kwdefaults__", named)
        if named and parameter in named:
            yield Condition("item", named, parameter, named[parameter])

    def _arguments(self, question: Question) -> list[Any]:
        return [self._value(t) for t in (*question[2], *(t for _, t in question[3]))]

    def _repeats(self, question: Question) -> bool:
        """Whether a question still gets its answer."""
        return self._token(self._answer(question)) == self.answers[question]

    def described(self) -> Iterator[str]:
        """The record in words, a line a read."""
        for (what, number, *rest), token in self.answers.items():
            subject = label(self._objects[number])[1].replace("<locals>.", "")
            answer = in_words(token)
            match what:
                case "name":
                    if token[0] != "named":
                        yield f"{rest[0]}: {answer} (a name in {subject})"
                case "attribute" | "field" if token[0] not in ("named", "missing"):
                    owner = "self" if what == "field" else subject
                    yield f"{owner}.{rest[0]}: {answer}"
                case "source":
                    yield f"the text of {subject}: {token[1][1:-1]}"
                case "default":
                    yield f"{rest[0]}: {answer} (a default of {subject})"
                case "call":
                    given = [in_words(t) for t in rest[0]] + [
                        f"{n}={in_words(t)}" for n, t in rest[1]
                    ]
                    question = what, number, *rest
                    often = follow(self._objects[number], self._arguments(question)) is None
                    note = (
                        " (asked at every launch: it reads what can't be followed)" if often else ""
                    )
                    yield f"{subject}({', '.join(given)}): {answer}{note}"


class Variants(Generic[T]):
    """What was made for a key, and for what its translation read: the variant that is current now."""

    def __init__(self) -> None:
        self._made: dict[Any, list[tuple[Reads, T]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._made.values()))

    def find(self, key: Any, roots: Sequence[Any]) -> T | None:
        """The variant that a translation from these roots would make now; None where there is none."""
        made = self._made.get(key)
        if made is None:
            return None
        for reads, variant in made:
            if reads.is_current(roots):
                return variant
        return None

    def add(self, key: Any, reads: Reads, variant: T) -> None:
        self._made[key] = [(reads, variant), *self._made.get(key, ())][:VARIANTS_KEPT]
