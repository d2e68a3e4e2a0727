"""What a kernel is called with: arguments and signatures, read against its parameters."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect as python_inspect
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warploom.errors import CompileError, LaunchError, format_message
from warploom.frontend.packed import RUN_TIME, Packed
from warploom.frontend.source import Parameter, parameters
from warploom.frontend.tokens import unwrapped
from warploom.ir.core import Fact
from warploom.runtime.args import (
    NOTHING,
    Field,
    Spec,
    fields_of,
    is_passed,
    parse_spec,
    probe_of,
    spec_of,
)
from warploom.runtime.dtypes import DTYPE_NAMES
from warploom.runtime.mistakes import warn
from warploom.runtime.request import Request
from warploom.schedule.model import Knobs, Schedule

KNOBS = {f.name: f for f in dataclasses.fields(Knobs)}

# What launches of Triton's may say, and what a launch here does anyway or does without.
OF_TRITON = {
    "launch_pdl": "launches overlap where the kernel allows it (the knob pdl)",
    "launch_cooperative_grid": "programs that wait for each other have to fit on the GPU together, as ever",
    "warp_size": "it is 32",
    "sanitize_overflow": "oracle and simulator refuse addresses that overflow",
    "enable_reflect_ftz": "functions keep subnormal numbers as their documentation says",
    "ptx_version": "NVRTC chooses it",
    "arch": "it is the device's",
    "waves_per_eu": "AMD's",
    "matrix_instr_nonkdim": "AMD's",
    "kpack": "AMD's",
    "extern_libs": "libdevice's functions are CUDA's own",
    "backend_name": "it is the device's",
    "supported_fp8_dtypes": "they are the target's",
    "allowed_dot_input_precisions": "they are the target's",
}
# Of these a launch warns, once each, where they ask for something.
UNHEARD = {
    "ptx_options": "NVRTC makes machine code of CUDA C++ in one step",
    "ir_override": "a kernel's IR is its own; a script says each instruction (compiled.eject())",
    "instrumentation_mode": "compiled.timeline(…, measured=True) shows where a launch's time goes",
    "max_num_imprecise_acc_default": "say it to each tl.dot, as max_num_imprecise_acc",
}


@dataclass(frozen=True)
class Call:
    """A call's arguments by what they are for.

    specs: one for each run-time argument.  fields: one for each parameter of the compiled function.
    """

    specs: tuple[Spec, ...]
    fields: tuple[Field, ...]
    constexprs: tuple[tuple[str, Any], ...]
    knobs: Knobs

    def values(self) -> tuple[Any, ...]:
        """What a launch plan computes with: numbers, and addresses for arrays."""
        return tuple([f.launched for f in self.fields])


class Callee:
    """A kernel as its callers see it: its parameters, and what calls and signatures say of them."""

    def __init__(
        self,
        fn: Callable[..., Any],
        do_not_specialize: Sequence[str | int] = (),
        do_not_specialize_on_alignment: Sequence[str | int] = (),
        debug: bool | None = None,
    ) -> None:
        self.fn = fn
        self.debug = debug
        self.unspecialized = self._named(do_not_specialize)
        self.unaligned = self._named(do_not_specialize_on_alignment)

    def _named(self, listed: Sequence[str | int]) -> tuple[str | int, ...]:
        """Parameters listed by name or position.  Raises CompileError on what is none."""
        given = tuple(listed) if isinstance(listed, list | tuple | set | frozenset) else (None,)
        for one in given:
            known: Container[Any] = (
                range(len(self.arg_names)) if type(one) is int else self.arg_names
            )
            if one not in known:
                raise CompileError(
                    "do-not-specialize",
                    f"do_not_specialize of {self.fn.__name__} is {listed!r}, not a list of its parameters",
                    help=f"names or positions of {', '.join(self.arg_names)}",
                )
        return given

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return parameters(self.fn)

    @functools.cached_property
    def arg_names(self) -> tuple[str, ...]:
        """Names of all parameters, in order."""
        return tuple(p.name for p in self.parameters)

    @functools.cached_property
    def _defaults(self) -> dict[str, Any]:
        empty = python_inspect.Parameter.empty
        given = {p.name: p.default for p in self.parameters if p.default is not empty}
        return given | {p.name: () for p in self.parameters if p.many}

    def meta(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What a grid function gets: all arguments, constexprs and knobs by name."""
        named = zip(self.arg_names, self._gathered(args), strict=False)
        return {**self._defaults, **dict(named), **kwargs}

    def grid_of(self, grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A launch's grid: what a grid function gives.  Raises LaunchError where one doesn't take a dict."""
        if not callable(grid):
            return grid
        try:
            return grid(self.meta(args, kwargs))
        except TypeError as e:
            if e.__traceback__ is None or e.__traceback__.tb_next:  # of the function itself
                raise
            text = f"the grid function doesn't take one dict of meta-parameters: {e}"
            help = 'lambda meta: (wl.cdiv(n, meta["BLOCK"]),)'
            raise LaunchError("grid", text, help=help) from None

    def _gathered(self, args: Sequence[Any]) -> Sequence[Any]:
        """Arguments by position, those of *name as one tuple."""
        many = next((i for i, p in enumerate(self.parameters) if p.many), None)
        if many is None or len(args) < many:
            return args
        return *args[:many], tuple(args[many:])

    def _is_constexpr(self, name: str) -> bool:
        return any(p.name == name and p.constexpr for p in self.parameters)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Arguments to parameters.  Raises LaunchError on too many, missing, or unknown ones."""
        args = self._gathered(args)
        if len(args) > len(self.arg_names):
            raise LaunchError(
                "argument-count",
                f"{self.fn.__name__} takes {len(self.arg_names)} arguments "
                f"({', '.join(self.arg_names)}), got {len(args)}",
                help="knobs such as num_warps go by name",
            )
        given = dict(zip(self.arg_names, args, strict=False))
        knobs: dict[str, Any] = {} if self.debug is None else {"debug": bool(self.debug)}
        for name, value in kwargs.items():
            if name in given:
                raise LaunchError(
                    "argument-twice",
                    f"{self.fn.__name__} got argument {name} twice",
                    help="give it by position or by name",
                )
            if name in self.arg_names:
                given[name] = value
            elif name in KNOBS:
                knobs[name] = value
            elif name in UNHEARD:
                _tell_unheard(name, bool(value))
            elif name not in OF_TRITON:
                raise LaunchError("argument-name", no_parameter(name, self), help=_its(self))
        given = {**self._defaults, **given}
        missing = [n for n in self.arg_names if n not in given]
        if missing:
            raise LaunchError(
                "argument-missing",
                f"{self.fn.__name__} lacks {', '.join(missing)}",
                help=f"its parameters: {', '.join(self.arg_names)}",
            )
        specs: list[Spec] = []
        fields: list[Field] = []
        constexprs: list[tuple[str, Any]] = []
        for i, p in enumerate(self.parameters):
            value = _unwrapped(given[p.name])
            if value is None or p.constexpr:
                constexprs.append((p.name, self._constexpr(p.name, value)))
                continue
            values = [value]
            if isinstance(value, tuple | list):
                values = []
                constexprs.append((p.name, self._packed(p.name, value, values)))
            for n, one in enumerate(values):
                name = p.name if one is value else f"{p.name}_{n}"
                mine = fields_of(name, one)
                spec = spec_of(one, mine[0].array, name)
                specs.append(self._specialized(_as_annotated(spec, p.annotation), i, p.name))
                fields += mine
        return Call(tuple(specs), tuple(fields), tuple(constexprs), make_knobs(knobs))

    def _specialized(self, spec: Spec, position: int, name: str) -> Spec:
        """A spec without the facts that the parameter is not specialized for."""
        if position in self.unspecialized or name in self.unspecialized:
            return dataclasses.replace(spec, fact=NOTHING)
        if position in self.unaligned or name in self.unaligned:
            return dataclasses.replace(spec, fact=Fact(1, spec.fact.value))
        return spec

    def _packed(self, name: str, value: Sequence[Any], values: list[Any]) -> Packed:
        """A tuple argument; what is passed of it is added to `values`."""
        items: list[Any] = []
        for item in value:
            plain = _unwrapped(item)
            if isinstance(plain, tuple | list):
                items.append(self._packed(name, plain, values))
            elif plain is None or plain is not item or not is_passed(plain):
                items.append((self._constexpr(name, plain),))
            else:
                items.append(RUN_TIME)
                values.append(plain)
        fields = getattr(value, "_fields", ())
        return Packed(type(value) if fields else tuple, tuple(fields), tuple(items))

    def _constexpr(self, name: str, value: Any) -> Any:
        value = _plain(value)
        if value is not None and probe_of(type(value), value) is not None:
            raise LaunchError(
                "constexpr-array",
                f"{name} of {self.fn.__name__} is a tl.constexpr, got an array",
                help="remove the annotation, or pass a number",
            )
        if isinstance(value, list):
            value = tuple(value)
        try:
            hash(value)
        except (TypeError, ValueError):
            raise LaunchError(
                "constexpr-hash",
                f"constexpr {name} of {self.fn.__name__} is a {type(value).__name__}, which can't be "
                "part of a key",
                help="pass numbers, strings, dtypes, tuples or None",
            ) from None
        return value

    def requested(
        self,
        signature: Sequence[str] | Mapping[str, str],
        constexprs: Mapping[str, Any] | None,
        target: str,
        knobs: Mapping[str, Any],
    ) -> Request:
        """What `compile` is asked for.  Raises CompileError where signature, constexprs, knobs don't fit."""
        knobs = dict(knobs)
        schedule = knobs.pop("schedule", None)
        if not isinstance(schedule, Schedule | None):
            raise CompileError(
                "schedule",
                f"schedule= is a {type(schedule).__name__}, which is no Schedule",
                help="take compiled.schedule, or Schedule.from_json(text)",
            )
        if not isinstance(constexprs, Mapping | None):
            raise CompileError(
                "constexpr-name",
                f"constexprs is a {type(constexprs).__name__}, not a dict of name and value",
                help="pass constexprs={…}",
            )
        given = {**{k: v for k, v in self._defaults.items() if self._is_constexpr(k)}}
        given.update({name: _plain(_unwrapped(v)) for name, v in (constexprs or {}).items()})
        unknown = [name for name in given if name not in self.arg_names]
        if unknown:
            raise CompileError("constexpr-name", no_parameter(unknown[0], self), help=_its(self))
        missing = [p.name for p in self.parameters if p.constexpr and p.name not in given]
        if missing:
            raise CompileError(
                "constexpr-missing",
                f"{self.fn.__name__} needs a value for constexpr {', '.join(missing)}",
                help=f"pass constexprs={{{', '.join(f'{n!r}: …' for n in missing)}}}; on the command line "
                + " ".join(f"--constexpr {n}=…" for n in missing),
            )
        names = [n for n in self.arg_names if n not in given]
        # Arguments that are None unless given may be left out, as in a launch.
        optional = [n for n in names if n in self._defaults and self._defaults[n] is None]
        if isinstance(signature, Mapping):
            left_out = [n for n in optional if n not in signature]
        elif isinstance(signature, list | tuple):
            left_out = [n for n in names[len(signature) :] if n in optional]
        else:
            left_out = []
        given |= dict.fromkeys(left_out)
        names = [n for n in names if n not in given]
        specs = read_signature(self.fn.__name__, names, signature)
        ordered = tuple((n, given[n]) for n in self.arg_names if n in given)
        return Request(self.fn, specs, ordered, make_knobs(knobs), target, schedule=schedule)


def read_signature(
    callee: str, names: Sequence[str], signature: Sequence[str] | Mapping[str, str]
) -> tuple[Spec, ...]:
    """The entries for a callee's run-time parameters, given in order or by name.  Raises CompileError."""
    help = f'one entry for each of {", ".join(names)}, such as "*fp16:16" or "i32"'
    if isinstance(signature, Mapping):
        entries = {n: t for n, t in signature.items() if t != "constexpr"}  # as in Triton
        absent = [n for n in names if n not in entries]
        extra = [n for n in entries if n not in names]
        if absent or extra:
            what = f"lacks {', '.join(absent)}" if absent else f"has an entry for {extra[0]}"
            raise CompileError("signature", f"the signature of {callee} {what}", help=help)
        signature = [entries[n] for n in names]
    if not isinstance(signature, list | tuple) or not all(isinstance(x, str) for x in signature):
        raise CompileError(
            "signature",
            f"the signature of {callee} is no list of strings: {signature!r}",
            help=help,
        )
    if len(signature) != len(names):
        raise CompileError(
            "signature",
            f"{callee} takes {len(names)} run-time arguments ({', '.join(names)}), the signature has "
            f"{len(signature)}",
            help="constexprs are not part of the signature",
        )
    return tuple(map(parse_spec, signature))


def _as_annotated(spec: Spec, annotation: str) -> Spec:
    """A number's spec with the dtype that the parameter is annotated with, as in Triton: `n: tl.int64`."""
    dtype = DTYPE_NAMES.get(annotation.rpartition(".")[2]) if spec.kind == "scalar" else None
    if dtype is None or dtype == "i1" or spec.dtype == "i1":
        return spec
    if dtype[0] in "iu":
        return spec if spec.dtype[0] not in "iu" else dataclasses.replace(spec, dtype=dtype)
    return dataclasses.replace(spec, dtype=dtype, fact=NOTHING)


def _unwrapped(value: Any) -> Any:
    """tl.constexpr(x) as x; Triton's own, too."""
    return unwrapped(value.value if type(value).__name__ == "constexpr" else value)


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's number, which constexprs are."""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if is_scalar and not hasattr(value, "__setitem__") else value


def no_parameter(name: str, kernel: Callee) -> str:
    known = [*kernel.arg_names, *KNOBS]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{kernel.fn.__name__} has no parameter {name}{hint}"


def _its(kernel: Callee) -> str:
    return f"its parameters: {', '.join(kernel.arg_names)}; knobs: {', '.join(KNOBS)}"


@functools.cache
def _tell_unheard(name: str, asks: bool) -> None:
    """Warns, once, of an option of Triton's that changes nothing."""
    if asks:
        text = f"the option {name} of Triton's launches changes nothing"
        warn(format_message("warning", "not-as-asked", text, None, (), UNHEARD[name]))


def make_knobs(given: Mapping[str, Any]) -> Knobs:
    """Knobs from keywords.  Raises CompileError `knob` on an unknown one or a value of a wrong type."""
    given = {name: _plain(_unwrapped(value)) for name, value in given.items()}
    for name, value in given.items():
        if name not in KNOBS:
            near = difflib.get_close_matches(name, KNOBS, n=1)
            raise CompileError(
                "knob",
                f"there is no knob {name}" + (f"; did you mean {near[0]}?" if near else ""),
                help=f"knobs: {', '.join(KNOBS)}",
            )
        default = KNOBS[name].default
        kinds = str(
            KNOBS[name].type
        )  # annotations are text: "bool", "bool | Literal["tiles"] | None"
        is_flag, is_number = "bool" in kinds, "int" in kinds
        words = re.findall(r"'([\w.]+)'", kinds)
        numbers = KNOBS[name].metadata["numbers"]
        ok = is_flag and isinstance(value, bool)
        ok |= is_number and type(value) is int and value in numbers
        if not (ok or (value is None and default is None) or value in words):
            kind = " or ".join([*["True", "False"] * is_flag, *map(repr, words)])
            if is_number:
                few = len(numbers) < 10  # else whatever hardware and memory allow: said elsewhere
                kind = f"{numbers[0]} to {numbers[-1]}" if few else "a whole number"
            raise CompileError(
                "knob", f"{name} is {kind}, not {value!r}", help=f"the default is {default}"
            )
    return Knobs(**given)
