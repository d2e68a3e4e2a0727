"""Modules with a kernel that reads integers in every way that kernels and constexpr functions know.

A module is text with a *slot* for each integer.  `text(values)` is the file; a slot's `edit` is what a user would type
to change its integer in a running process.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

HEAD = """\
import types
import warploom as wl
import warploom.language as tl
"""
TAIL = """
@wl.jit
def k(x, o):
    i = tl.arange(0, 32)
    tl.store(o + i, tl.load(x + i) + ({}))
"""
SCRIPT = """
class S(wl.Script):
    step = $0$

    def __init__(self):
        super().__init__()
        self.base = $1$

    def more(self, n=$2$):
        return n + {}

    def __call__(self, out: ~tl.int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        values = self.register_tensor(dtype=tl.int32, shape=[128], init=self.base + self.step + {})
        self.store_global(self.global_view(out, dtype=tl.int32, shape=[128]), values + self.more(), [0])

s = S()
"""
DEEPEST = 3


@dataclass
class Module:
    """definitions: texts in which `$0$` stands for slot 0's integer.  edits: one for each slot."""

    rng: random.Random
    definitions: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    names: int = 0

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def slot(self) -> str:
        self.edits.append("")
        return f"${len(self.edits) - 1}$"

    def define(self, text: str, edit: str = "") -> None:
        """A definition.  edit: what changes the slots that it is the first to hold; itself where not given."""
        self.definitions.append(text)
        for i, old in enumerate(self.edits):
            if not old and f"${i}$" in text:
                self.edits[i] = edit or text

    def text(self, values: Sequence[int]) -> str:
        return HEAD + filled("\n".join(self.definitions), values)

    def edit(self, slot: int, values: Sequence[int]) -> str:
        return filled(self.edits[slot], values)


def filled(text: str, values: Sequence[int]) -> str:
    for i, value in enumerate(values):
        text = text.replace(f"${i}$", str(value))
    return text


def random_module(seed: int) -> Module:
    m = Module(random.Random(seed))
    terms = [kernel_term(m, 0) for _ in range(m.rng.randint(1, 3))]
    m.definitions.append(TAIL.format(" + ".join(terms)))
    return m


def random_script(seed: int) -> Module:
    """The same with a script `s`.  Its own three integers come first; $2$ is a default, written with the class."""
    m = Module(random.Random(seed), edits=["S.step = $0$", "s.base = $1$", ""])
    first, second = kernel_term(m, 0), kernel_term(m, 0)
    m.define(SCRIPT.format(first, second))
    return m


def kernel_term(m: Module, depth: int) -> str:
    """An expression of kernels."""
    kinds = [number, constexpr_number, pair, items, module_attribute, passed_module, factory]
    deep = [helper, helper_in_tuple, helper_default, constexpr_call, constexpr_call]
    kind = m.rng.choice(deep if depth == 0 else kinds + deep if depth < DEEPEST else kinds)
    return kind(m, depth + 1)


def python_term(m: Module, depth: int) -> str:
    """An expression of functions that Python runs."""
    kinds = [number, constexpr_value, pair, items, module_attribute, class_attribute, entry]
    kinds += [instance_attribute, by_getattr, by_globals, local_import]
    deep = [plain_call, plain_default, constexpr_call, closure_call, in_lambda, static_method]
    kind = m.rng.choice(kinds + deep if depth < DEEPEST else kinds)
    return kind(m, depth + 1)


# ---- where an integer stands


def number(m: Module, depth: int) -> str:
    name = m.name("N")
    m.define(f"{name} = {m.slot()}")
    return name


def constexpr_number(m: Module, depth: int) -> str:
    name = m.name("N")
    own = m.rng.random() < 0.5
    text = f"{name} = tl.constexpr({m.slot()})"
    m.define(text, text.replace(" = tl.constexpr(", ".value = (") if own else "")
    return name


def constexpr_value(m: Module, depth: int) -> str:
    return constexpr_number(m, depth) + ".value"


def pair(m: Module, depth: int) -> str:
    name = m.name("P")
    m.define(f"{name} = (0, (1, {m.slot()}))")
    return f"{name}[1][1]"


def items(m: Module, depth: int) -> str:
    name, slot = m.name("L"), m.slot()
    m.define(f"{name} = [0, {slot}]", f"{name}[1] = {slot}")
    return f"{name}[1]"


def module_attribute(m: Module, depth: int) -> str:
    name, slot = m.name("m"), m.slot()
    m.define(f"{name} = types.ModuleType('m')\n{name}.B = {slot}", f"{name}.B = {slot}")
    return f"{name}.B"


def passed_module(m: Module, depth: int) -> str:
    name = module_attribute(m, depth).removesuffix(".B")
    helper = m.name("h")
    m.define(f"@wl.jit\ndef {helper}(a):\n    b = a\n    return b.B")
    return f"{helper}({name})"


def class_attribute(m: Module, depth: int) -> str:
    name, slot = m.name("C"), m.slot()
    m.define(f"class {name}:\n    B = {slot}", f"{name}.B = {slot}")
    return f"{name}.B"


def entry(m: Module, depth: int) -> str:
    name, slot = m.name("D"), m.slot()
    m.define(f"{name} = dict(a={slot})", f"{name}['a'] = {slot}")
    return f"{name}['a']"


def instance_attribute(m: Module, depth: int) -> str:
    name, slot = m.name("o"), m.slot()
    m.define(f"{name} = types.SimpleNamespace(B={slot})", f"{name}.B = {slot}")
    return f"{name}.B"


def by_getattr(m: Module, depth: int) -> str:
    return f"getattr({module_attribute(m, depth).removesuffix('.B')}, 'B')"


def by_globals(m: Module, depth: int) -> str:
    return f"globals()['{number(m, depth)}']"


def local_import(m: Module, depth: int) -> str:
    slot, name, key = m.slot(), m.name("f"), m.name("imported")
    m.define(
        f"import sys\nsys.modules.setdefault('{key}', types.ModuleType('{key}')).B = {slot}\n"
        f"def {name}():\n    import {key} as q\n    return q.B",
        f"sys.modules['{key}'].B = {slot}",
    )
    return f"{name}()"


# ---- what it goes through


def helper(m: Module, depth: int) -> str:
    name, inner = m.name("h"), kernel_term(m, depth)
    m.define(f"@wl.jit\ndef {name}(a):\n    return a + {inner} + {m.slot()}")
    return f"{name}(1)"


def helper_in_tuple(m: Module, depth: int) -> str:
    name, inner = m.name("h"), kernel_term(m, depth)
    m.define(f"@wl.jit\ndef {name}(a):\n    return a + {inner} + {m.slot()}\n{name}s = (0, {name})")
    return f"{name}s[1](2)"


def helper_default(m: Module, depth: int) -> str:
    name, inner = m.name("h"), kernel_term(m, depth)
    m.define(f"@wl.jit\ndef {name}(a, b={m.slot()}):\n    return a + {inner} + b")
    return f"{name}(3)"


def factory(m: Module, depth: int) -> str:
    return f"{_with_a_cell(m, '@wl.jit', 'n')}(4)"


def _with_a_cell(m: Module, decorator: str, result: str) -> str:
    """A function that reads a slot from its closure, and its setter beside it: the function's name."""
    name, slot = m.name("h"), m.slot()
    m.define(
        f"def make_{name}():\n    s = {slot}\n    {decorator}\n    def {name}(n):\n"
        f"        return {result} + s\n"
        f"    def set_{name}(v):\n        nonlocal s\n        s = v\n    return {name}, set_{name}\n"
        f"{name}, set_{name} = make_{name}()",
        f"set_{name}({slot})",
    )
    return name


def constexpr_call(m: Module, depth: int) -> str:
    name, inner = m.name("f"), python_term(m, depth)
    m.define(f"@tl.constexpr_function\ndef {name}(n):\n    return n + {inner} + {m.slot()}")
    return f"{name}(5)"


def plain_call(m: Module, depth: int) -> str:
    name, inner = m.name("p"), python_term(m, depth)
    m.define(f"def {name}(n):\n    return n + {inner} + {m.slot()}")
    return f"{name}(6)"


def plain_default(m: Module, depth: int) -> str:
    name, inner = m.name("p"), python_term(m, depth)
    m.define(f"def {name}(n, s={m.slot()}):\n    return n + {inner} + s")
    return f"{name}(7)"


def closure_call(m: Module, depth: int) -> str:
    return f"{_with_a_cell(m, '', f'n + {python_term(m, depth)}')}(8)"


def in_lambda(m: Module, depth: int) -> str:
    return f"(lambda z: z + {python_term(m, depth)})(9)"


def static_method(m: Module, depth: int) -> str:
    name, inner = m.name("C"), python_term(m, depth)
    m.define(
        f"class {name}:\n    @staticmethod\n    def f(n):\n        return n + {inner} + {m.slot()}"
    )
    return f"{name}.f(10)"
