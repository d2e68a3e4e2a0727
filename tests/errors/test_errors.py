"""Every mistake of a user's gives one error: code, line, caret, text, advice."""

from __future__ import annotations

import ast
import contextlib
import inspect
import random
from pathlib import Path

import pytest

import warploom
import warploom.language as tl
from tests.errors import control, memory, unsupported, values  # noqa: F401  (they register CASES)
from tests.errors.bad import CASES, Case
from warploom.errors import CompileError
from warploom.frontend.coerce import Const, Emitter, translating
from warploom.frontend.refuse import ADVICE
from warploom.frontend.source import parse_function
from warploom.frontend.translate import translate
from warploom.frontend.vocabulary import UNSUPPORTED
from warploom.ir.core import RuleError, Value
from warploom.ir.types import DTYPES, Pointer, f16, i32

PACKAGE = Path(warploom.__file__).parent


def refused(case: Case) -> CompileError:
    with pytest.raises(CompileError) as caught:
        translate(case.fn, case.types, case.constexprs)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_mistake(case: Case) -> None:
    error = refused(case)
    assert error.loc is not None
    assert (error.code, error.loc.file, error.loc.line) == (case.code, case.file, case.line), str(
        error
    )
    assert case.text in error.message
    text = str(error)
    assert text.startswith(f"error[{case.code}]: ")
    assert f"\nhelp: {error.help}" in text and error.help
    line = Path(case.file).read_text().splitlines()[case.line - 1]
    code = line[: line.index("# error[")].rstrip()
    span = line[error.loc.col - 1 : error.loc.end_col - 1]
    assert span.strip() == span != "", "the caret starts and ends at the expression"
    assert error.loc.end_col - 1 <= len(code), "the caret does not reach into the comment"
    assert f"{line}\n" in text and "^" * len(span) in text


def test_helper_errors_show_the_call() -> None:
    case = next(c for c in CASES if c.fn.__name__ == "mistake_in_helper")
    error = refused(case)
    assert error.loc is not None and error.loc.caller is not None
    assert "tl.store(p, loads_number(n))" in str(error)
    assert "note: called from here" in str(error)


def test_shape_errors_say_where_the_operands_came_from() -> None:
    case = next(c for c in CASES if c.fn.__name__ == "dot_inner_size")
    text = str(refused(case))
    assert "note: other is tile<32x256xbf16>, made here" in text
    assert "b = tl.zeros((32, 256), tl.bfloat16)" in text


def test_type_changes_show_both_places() -> None:
    case = next(c for c in CASES if c.fn.__name__ == "type_change_in_loop")
    text = str(refused(case))
    assert "acc = 0\n" in text and "acc = acc + 0.5" in text


def test_misspellings_are_corrected() -> None:
    for name, better in (
        ("unknown_function", "store"),
        ("unknown_attribute", "shape"),
        ("unknown_keyword", "mask"),
        ("parameter_unknown", "BLOCK"),
    ):
        case = next(c for c in CASES if c.fn.__name__ == name)
        assert refused(case).help == f"did you mean {better}?"


# ---- every code has a case


def codes_in(path: Path) -> set[str]:
    """Codes that a file raises: first argument of refuse, CompileError; second of fail; code of _fit."""
    position = {"refuse": 0, "CompileError": 0, "fail": 1, "_fit": 2}
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        arguments = node.args[position[name] : position[name] + 1] if name in position else []
        arguments += [k.value for k in node.keywords if k.arg == "code"]
        found |= {
            a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)
        }
    return found


# Raised where there is no kernel text to mark; tested below.
WITHOUT_A_LINE = {"no-source", "not-a-function", "outside-kernel"}
# tests/unit/test_identity.py has these
TEXT_ONLY = {"decorated", "source-changed"}
DEEP = {"nesting"}  # tests/errors/test_deep.py has it
# tests/explicit/test_broken.py has these
SCRIPTS_ONLY = {
    "narrow-dtype",
    "in-flight",
    "wgmma-dtype",
    "wgmma-major",
    "wgmma-k",
    "wgmma-m",
    "wgmma-n",
    "wgmma-shape",
    "tma-shape",
}
# Codes of the ops' own rules that the frontend's checks and casts leave no way to reach.
RULES_ONLY = {
    "condition-type",
    "dot-operand",
    "reduce-operand",
    "store-type",
    "dtype-mismatch",
    "shape-mismatch",
}


def test_every_code_has_a_case() -> None:
    files = (PACKAGE / "frontend").rglob("*.py")
    raised = set().union(*map(codes_in, files))
    tested = {c.code for c in CASES} | WITHOUT_A_LINE | TEXT_ONLY | DEEP | SCRIPTS_ONLY
    assert len(raised) > 50, "the scan finds the raise sites"
    assert raised <= tested, f"no case for {sorted(raised - tested)}"
    assert set(ADVICE) <= tested | RULES_ONLY, f"no case for {sorted(set(ADVICE) - tested)}"


def test_every_unsupported_construct_has_a_case() -> None:
    used: set[type[ast.AST]] = set()
    for case in CASES:
        if case.code == "unsupported":
            used |= {type(n) for n in ast.walk(parse_function(case.fn).tree)}
    assert set(UNSUPPORTED) <= used, [t.__name__ for t in set(UNSUPPORTED) - used]


def test_no_source() -> None:
    namespace: dict[str, object] = {}
    exec("def k(p):\n    pass", namespace)
    with pytest.raises(CompileError, match=r"error\[no-source\]: the source of k is not available"):
        translate(namespace["k"], (Pointer(DTYPES["f16"]),), {})  # type: ignore[arg-type]


def test_a_lambda_is_no_kernel() -> None:
    with pytest.raises(CompileError, match=r"error\[not-a-function\]"):
        translate(lambda p: p, (Pointer(DTYPES["f16"]),), {})


def test_a_class_is_no_kernel() -> None:
    for thing in (dict, 3):
        with pytest.raises(CompileError, match=r"error\[not-a-function\]: jit takes a function"):
            warploom.jit(thing)  # type: ignore[call-overload]


def test_the_language_outside_of_a_kernel() -> None:
    with pytest.raises(CompileError, match=r"error\[outside-kernel\]") as caught:
        tl.arange(0, 64)
    assert caught.value.help and "@jit" in caught.value.help


def test_advice_that_names_what_was_meant() -> None:
    for name, advice in (
        ("numpy_in_a_kernel", "write tl.exp"),
        ("numpy_dtype", "pass tl.float32"),
        ("size_of_a_float", "pass an int"),
        ("dtype_that_is_none", "pass tl.float16 or the like"),
        ("pythons_sum", "tl.sum"),
        ("arange_of_run_time_size", "declare the parameter"),
    ):
        case = next(c for c in CASES if c.fn.__name__ == name)
        error = refused(case)
        assert error.help is not None and advice in error.help


def test_a_type_for_a_constexpr() -> None:
    def kernel(p, BLOCK: warploom.language.constexpr) -> None:  # type: ignore[no-untyped-def, name-defined]
        pass

    types = {"p": Pointer(DTYPES["f16"]), "BLOCK": Pointer(DTYPES["f16"])}
    with pytest.raises(
        CompileError, match=r"BLOCK is a tl.constexpr, but was given a run-time type"
    ):
        translate(kernel, types, {})


# ---- no traceback from inside


FUNCTIONS = sorted(
    n
    for n in tl.__all__
    if getattr(getattr(tl, n), "__warploom_builtin__", False) and n != "static_print"
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_odd_arguments_are_refused_with_a_message(name: str) -> None:
    """Whatever a kernel passes, a function of the language works or refuses; it never breaks."""
    fn = getattr(tl, name)
    signature = inspect.signature(fn)
    rng = random.Random(name)
    for _ in range(60):
        emitter = Emitter()
        pointer = Value(Pointer(f16), "p")
        with translating(emitter):
            view = tl.make_tensor_descriptor(pointer, (8, 8), (8, 1), (4, 4))
            tile = tl.zeros((4, 4), tl.float32)
            block = tl.make_block_ptr(pointer, (8, 8), (8, 1), (0, 0), (4, 4), (1, 0))
            pool = (
                None, True, 3, -1, 2.5, "text", (), (1, 2), (tile, None), tl.float16, Const(2, i32), pointer,
                tile, tl.arange(0, 4), emitter.binary("<", tl.arange(0, 4), 2), emitter.binary("+", pointer, tl.arange(0, 4)), view, block, tl.load,
            )  # fmt: skip
            required = [p for p in signature.parameters.values() if p.default is p.empty]
            several = any(p.kind is p.VAR_POSITIONAL for p in required)
            count = len(required) + (rng.randrange(3) if several else 0)
            args = [rng.choice(pool) for _ in range(count)]
            optional = [p.name for p in signature.parameters.values() if p.default is not p.empty]
            kwargs = {n: rng.choice(pool) for n in optional if rng.random() < 0.2}
            with contextlib.suppress(RuleError):
                fn(*args, **kwargs)
