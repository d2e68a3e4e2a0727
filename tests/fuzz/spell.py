"""A tree as the text of a module: what the compiler reads."""

from __future__ import annotations

from typing import Any

from tests.fuzz.numbers import FORMATS
from tests.fuzz.ops import COMBINERS, OPS, PAIRS
from tests.fuzz.tree import (
    Access,
    Array,
    Atomic,
    E,
    For,
    If,
    Kernel,
    Let,
    Load,
    Note,
    Return,
    Statement,
    Store,
    While,
    accesses,
    expressions,
    parts,
    statements,
)

HEADER = "import warploom as wl\nimport warploom.language as tl\nfrom warploom.triton.language.extra import libdevice\n"
_COMBINER_TEXT = {
    "max": "tl.maximum(a, b)", "min": "tl.minimum(a, b)", "mul": "a * b", "and": "a & b", "or": "a | b",
    "xor": "a ^ b", "sum": "a + b",
}  # fmt: skip


def module(kernel: Kernel) -> str:
    """The whole file: helpers, then `kernel`."""
    return _Text(kernel).module()


def arguments(kernel: Kernel) -> list[str]:
    """The names of the parameters, in order: arrays with their extents and strides, then numbers."""
    names = [n for a in kernel.arrays for n in (a.name, *_extents(a), *_strides(a))]
    return [*names, *kernel.numbers]


def _extents(a: Array) -> list[str]:
    return [f"{a.name}_n{i}" for i in range(len(a.shape))]


def _strides(a: Array) -> list[str]:
    return [f"{a.name}_s{i}" for i in range(len(a.shape))]


class _Text:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.depth = 1
        self.top: dict[str, str] = {}  # descriptors made at the start: text -> name
        self.helpers: dict[str, str] = {}
        self.walkers: dict[int, str] = {}  # of the accesses whose pointers a loop moves
        self.made = 0

    def module(self) -> str:
        self.block(self.kernel.body)
        if not self.lines:
            self.line("pass")
        used = {
            e.attrs["fn"]
            for s in statements(self.kernel.body)
            for top in expressions(s)
            for e in parts(top)
            if e.op in ("reduce", "scan", "reduce_pair", "scan_pair")
        }
        combiners = [
            f"@wl.jit\ndef {COMBINERS[fn]}(a, b):\n    return {_COMBINER_TEXT[fn]}\n"
            for fn in sorted(used & COMBINERS.keys())
        ]
        combiners += [
            f"@wl.jit\ndef combine_{fn}(a, b, c, d):\n    return {PAIRS[fn][0]}\n"
            for fn in sorted(used & PAIRS.keys())
        ]
        head = f"@wl.jit\ndef kernel({', '.join(arguments(self.kernel))}):\n"
        top = [f"    {name} = {text}" for text, name in self.top.items()]
        body = head + "\n".join([*top, *self.lines]) + "\n"
        return "\n\n".join([HEADER, *combiners, *self.helpers.values(), body])

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.made += 1
        return f"{stem}_{self.made}"

    # ---- expressions

    def expr(self, e: E) -> str:
        if e.op == "var":
            return str(e.attrs["name"])
        args = [self.expr(a) for a in e.args]
        if e.op == "call":
            self.helper(e)
            return f"{e.attrs['name']}({', '.join(args)})"
        return OPS[e.op].spell(e, args)

    def helper(self, e: E) -> None:
        """Writes the helper's definition: `if test: return value`, one after the other, and a last return."""
        name = e.attrs["name"]
        *tests, last = (self.expr(b) for b in e.attrs["bodies"])
        lines = [f"@wl.jit\ndef {name}({', '.join(f'x{i}' for i in range(len(e.args)))}):"]
        for test, then in zip(tests[::2], tests[1::2], strict=True):
            lines += [f"    if {test}:", f"        return {then}"]
        self.helpers[name] = "\n".join([*lines, f"    return {last}"]) + "\n"

    # ---- memory

    def index(self, a: Access, axis: int) -> str:
        """The places along an axis, as a tile of rank 1 (or of the block's rank, where an index says them)."""
        array = self.kernel.array(a.array)
        if axis in a.index:
            text = self.expr(a.index[axis])
        elif a.sizes:
            text = f"{self.expr(a.at[axis])} + tl.arange(0, {a.sizes[axis]})".removeprefix("0 + ")
        else:
            text = self.expr(a.at[axis])
        if axis in a.wrap:
            text = f"({text}) % {self.extents(a, array)[axis]}"
        rank = len(a.sizes)
        if rank < 2 or (axis in a.index and len(a.index[axis].t.shape) > 1):
            return f"({text})"
        return f"({text})[{', '.join(':' if i == axis else 'None' for i in range(rank))}]"

    def extents(self, a: Access, array: Array) -> list[str]:
        return _extents(array)[0 if a.lead is None else 1 :]

    def strides(self, a: Access, array: Array) -> list[str]:
        return _strides(array)[0 if a.lead is None else 1 :]

    def base(self, a: Access) -> str:
        array = self.kernel.array(a.array)
        name = array.name
        if a.hint == "address":
            name = f"{name}.to(tl.int64).to(tl.pointer_type({FORMATS[array.dtype].tl}))"
        if a.lead is None:
            return name
        return f"{name} + {self.expr(a.lead)} * {_strides(array)[0]}"

    def pointers(self, a: Access) -> str:
        array = self.kernel.array(a.array)
        steps = self.strides(a, array)
        return self.base(a) + "".join(f" + {self.index(a, i)} * {s}" for i, s in enumerate(steps))

    def mask(self, a: Access) -> str:
        array = self.kernel.array(a.array)
        extents = self.extents(a, array)
        terms = [f"({self.index(a, i)} < {extents[i]})" for i in a.bounded]
        if a.mask is not None:
            terms.append(self.expr(a.mask))
        return " & ".join(terms)

    def options(self, a: Access) -> str:
        """mask= and other= of an access by pointers."""
        mask = self.mask(a)
        if not mask:
            return ""
        other = "" if a.other is None else f", other={a.other}"
        return f", mask={mask}{other}"

    def block_pointer(self, a: Access) -> str:
        array = self.kernel.array(a.array)
        order = (
            (0, 1)
            if array.order == "c" and len(a.sizes) == 2
            else tuple(reversed(range(len(a.sizes))))
        )
        extents, strides = ", ".join(self.extents(a, array)), ", ".join(self.strides(a, array))
        at = ", ".join(self.expr(e) for e in a.at)
        comma = "," if len(a.sizes) == 1 else ""
        return (
            f"tl.make_block_ptr({self.base(a)}, ({extents}{comma}), ({strides}{comma}), ({at}{comma}), "
            f"{a.sizes}, {order})"
        )

    def descriptor(self, a: Access) -> tuple[str, str, bool]:
        """(the descriptor, the offsets, whether the block lies the other way round in memory)."""
        array = self.kernel.array(a.array)
        extents, strides = self.extents(a, array), self.strides(a, array)
        at, sizes = [self.expr(e) for e in a.at], list(a.sizes)
        transposed = array.order == "c" and len(sizes) == 2
        if transposed:
            extents, strides, at, sizes = (list(reversed(x)) for x in (extents, strides, at, sizes))
        strides[-1] = "1"
        if a.lead is not None and a.hint == "batch":
            extents.insert(0, _extents(array)[0])
            strides.insert(0, _strides(array)[0])
            at.insert(0, self.expr(a.lead))
            sizes.insert(0, 1)
            base = array.name
        else:
            base = self.base(a)
        text = (
            f"tl.make_tensor_descriptor({base}, [{', '.join(extents)}], [{', '.join(strides)}], "
            f"[{', '.join(map(str, sizes))}])"
        )
        if base == array.name:
            text = self.top.setdefault(text, f"desc_{len(self.top)}")
        return text, f"[{', '.join(at)}]", transposed

    def load(self, s: Load) -> None:
        a = s.access
        hint = {"volatile": ", volatile=True", "first": ', eviction_policy="evict_first"'}.get(
            a.hint, ""
        )
        if a.way == "ptr":
            where = f"{self.walkers[id(a)]}" if id(a) in self.walkers else self.pointers(a)
            self.line(f"{s.name} = tl.load({where}{self.options(a)}{hint})")
        elif a.way == "block":
            pointer = self.walkers.get(id(a)) or self.block_pointer(a)
            padding = ', padding_option="nan"' if a.hint == "nan" else ""
            self.line(f"{s.name} = tl.load({pointer}, boundary_check={tuple(a.bounded)}{padding})")
        else:
            text, at, transposed = self.descriptor(a)
            box = f"{text}.load({at})"
            if a.lead is not None and a.hint == "batch":
                sizes = tuple(reversed(a.sizes)) if transposed else a.sizes
                box = f"tl.reshape({box}, {sizes})"
            self.line(f"{s.name} = {f'tl.trans({box})' if transposed else box}")

    def store(self, s: Store) -> None:
        a, value = s.access, self.expr(s.value)
        if a.way == "ptr":
            self.line(f"tl.store({self.pointers(a)}, {value}{self.options(a)})")
        elif a.way == "block":
            self.line(
                f"tl.store({self.block_pointer(a)}, {value}, boundary_check={tuple(a.bounded)})"
            )
        else:
            text, at, transposed = self.descriptor(a)
            value = f"tl.trans({value})" if transposed else value
            if a.lead is not None and a.hint == "batch":
                sizes = tuple(reversed(a.sizes)) if transposed else a.sizes
                value = f"tl.reshape({value}, {(1, *sizes)})"
            self.line(f"{text}.store({at}, {value})")

    def atomic(self, s: Atomic) -> None:
        a = s.access
        compare = "" if s.compare is None else f"{self.expr(s.compare)}, "
        sem = f', sem="{s.sem}"' if s.sem else ""
        options = self.options(a)
        call = f"tl.atomic_{s.fn}({self.pointers(a)}, {compare}{self.expr(s.value)}{options}{sem})"
        self.line(f"{s.name} = {call}" if s.name else call)

    # ---- statements

    def block(self, body: tuple[Statement, ...]) -> None:
        for s in body:
            self.statement(s)

    def inside(self, body: tuple[Statement, ...]) -> None:
        self.depth += 1
        if body:
            self.block(body)
        else:
            self.line("pass")
        self.depth -= 1

    def statement(self, s: Any) -> None:
        match s:
            case Let():
                self.line(f"{s.name} = {self.expr(s.value)}")
            case Load():
                self.load(s)
            case Store():
                self.store(s)
            case Atomic():
                self.atomic(s)
            case For():
                self.loop(s)
            case While():
                self.repeat(s)
            case If():
                self.line(f"if {self.expr(s.test)}:")
                self.inside(s.then)
                if s.other:
                    self.line("else:")
                    self.inside(s.other)
            case Return():
                self.line(f"if {self.expr(s.test)}:")
                self.line("    return")
            case Note():
                self.note(s)

    def loop(self, s: For) -> None:
        """A loop; what walks is set up before it, and moved at the end of an iteration."""
        walking = [a for x in statements(s.body) for a in accesses(x) if a.walk == s.var]
        moves: list[str] = []
        saved, self.walkers = self.walkers, dict(self.walkers)
        for a in walking:
            pointer = self.fresh("walk")
            axis = next(i for i, e in enumerate(a.at) if _slope(e, s.var))
            by = _slope(a.at[axis], s.var) * s.step
            self.line(f"{s.var} = {self.expr(s.lo)}")
            if a.way == "block":
                self.line(f"{pointer} = {self.block_pointer(a)}")
                steps = ", ".join(str(by if i == axis else 0) for i in range(len(a.sizes)))
                comma = "," if len(a.sizes) == 1 else ""
                moves.append(f"{pointer} = tl.advance({pointer}, ({steps}{comma}))")
            else:
                self.line(f"{pointer} = {self.pointers(a)}")
                moves.append(
                    f"{pointer} += {by} * {self.strides(a, self.kernel.array(a.array))[axis]}"
                )
            self.walkers[id(a)] = pointer
        hints = "".join(f", {k}={v}" for k, v in s.hints)
        step = f", {s.spelled or s.step}" if s.step != 1 or hints else ""
        self.line(f"for {s.var} in {s.kind}({self.expr(s.lo)}, {self.expr(s.hi)}{step}{hints}):")
        self.inside(s.body)
        self.depth += 1
        for text in moves:
            self.line(text)
        self.depth -= 1
        self.walkers = saved

    def repeat(self, s: While) -> None:
        limit = self.expr(s.limit)
        self.line(f"{s.var} = {limit}" if s.halve else f"{s.var} = 0")
        self.line(f"while {s.var} > 1:" if s.halve else f"while {s.var} < {limit}:")
        self.inside(s.body)
        self.line(f"    {s.var} = {s.var} // 2" if s.halve else f"    {s.var} += 1")

    def note(self, s: Note) -> None:
        value = self.expr(s.value)
        match s.kind:
            case "print":
                self.line(f'tl.device_print("fuzz", {value})')
            case "assert":
                self.line(f"tl.device_assert({value})")
            case "assume":
                self.line(f"tl.assume({value})")
            case "multiple_of":
                self.line(f"tl.multiple_of({value}, {s.by})")


def _slope(e: E, var: str) -> int:
    """The factor of a loop's variable in a place of the form `… + var * factor`; 0 where it has none."""
    if e.op == "var" and e.attrs["name"] == var:
        return 1
    if e.op == "mul" and e.args[0].op == "var" and e.args[0].attrs["name"] == var:
        return int(e.args[1].attrs["value"])
    if e.op == "add":
        return _slope(e.args[0], var) + _slope(e.args[1], var)
    return 0


def dtype_of(name: str) -> Any:
    return FORMATS[name].numpy
