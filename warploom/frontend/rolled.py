"""Which loops of tl.static_range may be translated as loops.

Unrolled, each step's loads and dots are code of their own: no ring brings what the next step reads while this
one multiplies, and a compiler of tens of thousands of statements takes minutes.  Where nothing needs the
index while compiling, a loop computes the same.
"""

from __future__ import annotations

import ast

from warploom.frontend.scope import Scope, assigned_names, leaves
from warploom.ir.core import Value

MOST_WRITTEN = 16  # steps with dots in them that are unrolled as they are written


def may_roll(node: ast.For, function: ast.FunctionDef, scope: Scope) -> bool:
    """Does a loop's body only assign names: such as hold values before it, and others that nothing reads
    elsewhere in the function; and does it end where it ends?"""
    carried = {n for n in assigned_names(node.body) if n in scope}
    held = (x for n in carried for x in leaves(scope[n].value))
    inside = list(ast.walk(node))
    leaving = (ast.Return, ast.Break, ast.Continue, ast.Global, ast.Nonlocal)
    stored = (x for x in inside if isinstance(x, ast.Attribute | ast.Subscript))
    if not isinstance(node.target, ast.Name) or any(isinstance(x, leaving) for x in inside):
        return False
    if any(isinstance(x.ctx, ast.Store) for x in stored) or not all(
        isinstance(x, Value) for x in held
    ):
        return False
    own = {node.target.id, *assigned_names(node.body)} - carried
    here = set(inside)
    outside = (x for x in ast.walk(function) if isinstance(x, ast.Name) and x not in here)
    return own.isdisjoint(x.id for x in outside)
