"""Whether values fit a variant: a launch picks the variant by its arguments, `simulate` is given both."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter
from typing import Any

from warploom.errors import LaunchError
from warploom.ir.core import Func
from warploom.runtime.args import Field, Spec, TensorDescriptor, fields_of, is_passed, spec_of
from warploom.runtime.array import Bytes
from warploom.runtime.dtypes import ITEM_BYTES
from warploom.runtime.plan import make_meeting


def fields_for(func: Func, specs: Sequence[Spec], args: Sequence[Any]) -> list[Field]:
    """The parameters of `func`, compiled for `specs`, as run-time arguments give them; workspaces, which are
    parameters after those of the caller, may be given as well.

    Raises LaunchError `variant-argument` where a value contradicts what the variant was compiled for."""
    args = flat(args)
    names = [p.hint for p in func.params]
    starts = [0]
    for spec in specs:
        starts.append(starts[-1] + 1 + 2 * len(spec.block))
    own = [names[at] for at in starts[:-1]]
    if len(args) not in (len(specs), len(specs) + len(names) - starts[-1]):
        raise LaunchError(
            "variant-argument",
            f"{len(args)} arguments for the {len(specs)} of this variant of {func.name}: {', '.join(own)}",
            help="pass the run-time arguments in order, without tl.constexprs",
        )
    from warploom.analysis.facts import least_of

    least = least_of(func)
    out: list[Field] = []
    for spec, name, value in zip(specs, own, args, strict=False):
        fields = fields_of(name, value)
        why = contradiction(spec, value, fields)
        for i, f in enumerate(fields, len(out)):
            if not why and f.array is None and f.value < least.get(i, f.value):
                why = (
                    f"{f.name} is {f.value}, and this variant takes it for no less than {least[i]}"
                )
        if why:
            raise LaunchError(
                "variant-argument",
                f"{name} of {func.name}: {why}",
                help=f"{func.name}.compile_for(…) with these arguments is the variant that a launch takes",
            )
        out += fields
    for i, j in func.attrs.get("one_array", ()):
        if out[i].launched != out[j].launched:
            raise LaunchError(
                "variant-argument",
                f"{names[i]} and {names[j]} of {func.name} are two arrays, for this variant they are one",
                help=f"{func.name}.compile_for(…) with these arguments is the variant that a launch takes",
            )
    if pair := first_overlap(func.attrs.get("disjoint", ()), lambda i: out[i].bytes):
        x, y = (names[i] for i in pair)
        raise LaunchError(
            "variant-argument",
            f"{x} and {y} of {func.name} share memory, and this variant loads ahead of its stores",
            help=f"{func.name}.compile_for(…) with these arguments is the variant that a launch takes",
        )
    _refuse_small_strides(func, names, [f.value for f in out])
    return out + [f for value in args[len(specs) :] for f in fields_of("", value)]


def _refuse_small_strides(func: Func, names: Sequence[str], values: Sequence[Any]) -> None:
    """Raises LaunchError where iterations of a loop may store to common places."""
    from warploom.runtime.signature import spaced_of

    spaced = spaced_of(func)
    if (found := make_meeting(spaced)(values)) is None:
        return
    need, axis, fewest = found
    stride = re.sub(r"\((\d+)\)", r"\1", spaced[need][axis][0].removeprefix("("))
    stride = re.sub(r"a\[(\d+)\]", lambda m: names[int(m[1])], stride.removesuffix(")"))
    raise LaunchError(
        "variant-argument",
        f"{stride} of {func.name} is less than {fewest}, and this variant keeps no order of what iterations "
        "of a loop store so close to each other",
        help=f"{func.name}.compile_for(…) with these arguments is the variant that a launch takes",
    )


def first_overlap(
    pairs: Iterable[tuple[int, int]], bytes_of: Callable[[int], Bytes | None]
) -> tuple[int, int] | None:
    """The first of these pairs of arguments that share memory.  bytes_of: of an array, by the argument's
    position; None of a number."""
    for i, j in pairs:
        x, y = bytes_of(i), bytes_of(j)
        if i != j and x and y and x.meets(y):
            return i, j
    return None


def completed(request: Any, args: Sequence[Any]) -> Sequence[Any]:
    """The run-time arguments of a variant, with the defaults of those that are left out at the end."""
    from warploom.frontend.source import parameters

    missing = len(request.specs) - len(flat(args))
    if missing <= 0:
        return args
    fixed = dict(request.constexprs)
    rest = [p.default for p in parameters(request.fn) if p.name not in fixed and not p.constexpr]
    left_out = rest[-missing:]
    return args if Parameter.empty in left_out else (*args, *left_out)


def flat(args: Iterable[Any]) -> list[Any]:
    """Arguments, with what a tuple among them passes in its place."""
    found: list[Any] = []
    for value in args:
        if isinstance(value, tuple | list):
            found += [v for v in flat(value) if is_passed(v)]
        else:
            found.append(value)
    return found


def contradiction(spec: Spec, value: Any, fields: Sequence[Field]) -> str:
    """In words: how a value contradicts what a variant knows of it; "" where it doesn't."""
    if spec.kind == "scalar":
        return _of_number(spec, value, fields[0])
    wanted = f"this variant takes {_kind(spec)}"
    array = fields[0].array
    if array is None or (spec.kind == "descriptor") != isinstance(value, TensorDescriptor):
        return f"a {type(value).__name__}, {wanted}"
    if array.dtype != spec.dtype:
        return f"{'a descriptor' if spec.kind == 'descriptor' else 'an array'} of {array.dtype}, {wanted}"
    if array.pointer % spec.fact.divisible and 0 not in array.shape:
        return f"its address is no multiple of {spec.fact.divisible} bytes, as this variant takes for granted"
    if spec.kind == "pointer":
        return ""
    given = spec_of(value, array, "")
    if (given.block, given.padding) != (spec.block, spec.padding):
        return f"{_kind(given)}, {wanted}"
    if any(n % d for n, d in zip(value.strides, spec.strides, strict=False)):
        return f"strides {tuple(value.strides)}, this variant takes multiples of {spec.strides}"
    if value.shape[-1] % spec.row:
        return f"rows of {value.shape[-1]} elements, this variant takes multiples of {spec.row}"
    return ""


def _of_number(spec: Spec, value: Any, field: Field) -> str:
    wanted = f"this variant takes {_kind(spec)}"
    if field.array is not None or isinstance(value, TensorDescriptor):
        return f"an array, {wanted}"
    if spec.dtype[0] not in "iu" or spec.dtype == "i1":
        try:
            float(value)
        except (TypeError, ValueError):
            return f"a {type(value).__name__}, {wanted}"
        return ""
    try:
        n = operator.index(value)
    except TypeError:
        return f"a {type(value).__name__}, {wanted}"
    bits, signed = 8 * ITEM_BYTES[spec.dtype], spec.dtype[0] == "i"
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
    if not low <= n < high:
        return f"{n} is no {spec.dtype}, which this variant takes"
    if spec.fact.value is not None and n != spec.fact.value:
        return f"{n}, and this variant is compiled for {spec.fact.value}"
    if n % spec.fact.divisible:
        return f"{n}, and this variant is compiled for multiples of {spec.fact.divisible}"
    return ""


def _kind(spec: Spec) -> str:
    if spec.kind == "descriptor":
        block = "x".join(map(str, spec.block))
        return f"descriptors of {spec.dtype} with blocks of {block}, padding {spec.padding}"
    return f"arrays of {spec.dtype}" if spec.kind == "pointer" else f"{spec.dtype} numbers"
