"""Which of Python and of Triton kernels may use: operators, what is refused and how it is called."""

from __future__ import annotations

import ast

from warploom.ir.ops import arith, tile

# What Python offers and kernels can't: the word for it and the way out.
UNSUPPORTED: dict[type[ast.AST], tuple[str, str]] = {
    ast.SetComp: ("a set comprehension", "write a tl.static_range loop"),
    ast.DictComp: ("a dict comprehension", "write a tl.static_range loop"),
    ast.Set: ("a set", "use a tuple"),
    ast.Yield: ("yield", "store results through a pointer"),
    ast.YieldFrom: ("yield from", "store results through a pointer"),
    ast.Starred: ("a starred target", "name each variable"),
    ast.Try: ("try", "kernels raise nothing; use masks or tl.device_assert"),
    ast.Raise: ("raise", "use tl.static_assert or tl.device_assert"),
    ast.Global: ("global", "pass the value as an argument"),
    ast.Nonlocal: ("nonlocal", "return the value from the helper instead"),
    ast.Delete: ("del", "leave the variable; unused values cost nothing"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.ClassDef: ("a class", "define it outside of the kernel"),
    ast.Match: ("match", "use if and elif"),
    ast.Break: ("break", "let the loop's bounds or a while condition end it"),
    ast.Continue: ("continue", "put the rest of the body under an if"),
    ast.TryStar: ("try", "kernels raise nothing; use masks or tl.device_assert"),
}

INDEX_ENDS = "a loop's index is known inside its loop only"

# Of Python's functions those that kernels are often written with, and what to write instead.
REPLACED = {
    "sum": "write tl.sum, or a loop",
    "pow": "multiply, or use tl.exp2",
    "round": "write tl.floor(x + 0.5)",
}

# Of Triton's language, but not here (yet), and what to write instead.
NOT_YET = {
    "block_type": "x.type gives the type of a tile; types are not made by hand",
    **dict.fromkeys(
        ("constexpr_type", "str_to_ty", "tensor_descriptor_type", "tuple_type"),
        "types are not made by hand",
    ),
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
    | {"True", "False", "None", "str", "list", "tuple", "dict", "enumerate", "zip", "reversed"}
    | {"getattr", "hasattr", "all", "any", "slice"}
)
