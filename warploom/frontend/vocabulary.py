"""Which of Python and of Triton kernels may use: operators, what is refused and how it is called."""

from __future__ import annotations

import ast

from warploom.ir.ops import arith, tile

# What Python offers and kernels can't: the word for it and the way out.
UNSUPPORTED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lambda: ("a lambda", "define a function with @wl.jit and call it"),
    ast.ListComp: ("a list comprehension", "write a tl.static_range loop"),
    ast.SetComp: ("a set comprehension", "write a tl.static_range loop"),
    ast.DictComp: ("a dict comprehension", "write a tl.static_range loop"),
    ast.GeneratorExp: ("a generator expression", "write a tl.static_range loop"),
    ast.Dict: ("a dict", "use separate variables or a tuple"),
    ast.Set: ("a set", "use a tuple"),
    ast.Yield: ("yield", "store results through a pointer"),
    ast.YieldFrom: ("yield from", "store results through a pointer"),
    ast.Starred: ("a starred expression", "write the elements out"),
    ast.NamedExpr: ("an assignment expression (:=)", "assign in a statement of its own"),
    ast.Try: ("try", "kernels raise nothing; use masks or tl.device_assert"),
    ast.Raise: ("raise", "use tl.static_assert or tl.device_assert"),
    ast.Global: ("global", "pass the value as an argument"),
    ast.Nonlocal: ("nonlocal", "return the value from the helper instead"),
    ast.Delete: ("del", "leave the variable; unused values cost nothing"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.ClassDef: ("a class", "define it outside of the kernel"),
    ast.FunctionDef: ("a nested function", "define it outside with @wl.jit and call it"),
    ast.Match: ("match", "use if and elif"),
    ast.Break: ("break", "let the loop's bounds or a while condition end it"),
    ast.Continue: ("continue", "put the rest of the body under an if"),
    ast.TryStar: ("try", "kernels raise nothing; use masks or tl.device_assert"),
}

# Of Python's functions those that kernels are often written with, and what to write instead.
REPLACED = {
    "enumerate": "write for i in tl.static_range(len(xs)), and xs[i]",
    "zip": "write for i in tl.static_range(len(xs)), and xs[i], ys[i]",
    "sum": "write tl.sum, or a loop",
    "pow": "multiply, or use tl.exp2",
    "round": "write tl.floor(x + 0.5)",
}

# Of Triton's language, but not here (yet), and what to write instead.
_RANDOM = "generate the numbers before the launch, and load them"
_SORT = "sort before or after the kernel; for the largest few repeat tl.max, tl.argmax and tl.where"
NOT_YET = {
    "cat": "store both tiles, one after the other; tl.reshape(tl.join(a, b), …) alternates them",
    "dot_scaled": "multiply the operands by their scales, in bf16 or f32, and write tl.dot",
    "flip": "load it the other way around: ptr + (N - 1 - tl.arange(0, N))",
    "histogram": "count with tl.atomic_add(counts + x, 1), or with a sum of comparisons for each bin",
    "inline_asm_elementwise": "write it with the functions of tl, such as tl.fma, tl.rcp and tl.exp2",
    "map_elementwise": "write the function on whole tiles, its branches with tl.where",
    "philox": _RANDOM,
    "rand": _RANDOM,
    "randint": _RANDOM,
    "randint4x": _RANDOM,
    "randn": _RANDOM,
    "sort": _SORT,
    "topk": _SORT,
    "umulhi": "multiply in 64 bits: ((x.to(tl.int64) * y) >> 32).to(tl.int32)",
}

# Ops cheap enough, and without effects, to be computed for both arms of a ternary; a division is not, since
# the condition may be what keeps its divisor from being 0.
SPECULATED = (arith.ELEMENTWISE - {arith.idiv, arith.rem}) | {
    arith.const,
    tile.program_id,
    tile.num_programs,
    tile.splat,
    tile.arange,
    tile.expand_dims,
    tile.broadcast,
}

PYTHON_BUILTINS = frozenset(
    {"range", "min", "max", "abs", "len", "int", "float", "bool", "print", "isinstance"}
    | {"True", "False", "None", "str"}
)
