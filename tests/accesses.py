"""Accesses to global memory in emitted CUDA, read out of the text, each with the op of PLACED that its line is for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from warploom.codegen.emit import Emitted
from warploom.codegen.host import TensorMapParam
from warploom.ir.analysis import uses
from warploom.ir.core import Effect, Func, Op, OpKind, Value, walk
from warploom.ir.ops import smem, tile, tma, unaligned

# What an instruction does to global memory, and the ops that may do so.
KINDS: dict[str, frozenset[OpKind]] = {
    "load": frozenset(
        {tile.load, tile.load_box, unaligned.load_unaligned, unaligned.load_unaligned_ahead}
    ),
    "store": frozenset({tile.store, tile.store_box}),
    "atomic": frozenset({tile.atomic}),
    "copy": frozenset({smem.cp_async}),
    "TMA load": frozenset({tma.tma_load}),
    "TMA store": frozenset({tma.tma_store}),
    "prefetch": frozenset({unaligned.prefetch_box}),
}
ACCESSES = frozenset().union(*KINDS.values())

_INSTRUCTION = re.compile(r"\b(?:ld|st|atom|red|cp|prefetch|prefetchu|multimem)\.[\w.:]+")
# Instructions of these names that touch no global memory.
_ELSEWHERE = re.compile(
    r"(?:ld|st|red|atom)(?:\.\w+)*\.shared(?!.*\.global)|cp\.async\.(?:commit_group|wait_group|wait_all)"
    r"|cp\.async\.bulk\.(?:commit_group|wait_group)|cp\.async\.mbarrier|prefetch\.tensormap"
)
_WHAT = (
    (r"cp\.async\.bulk\.tensor.*\.shared::\w+\.global", "TMA load"),
    (r"cp\.(?:reduce\.)?async\.bulk\.tensor.*\.global\.shared", "TMA store"),
    (r"cp\.async\.c[ag]\.shared\.global", "copy"),
    (r"prefetch\.global", "prefetch"),
    (r"ld(?:\.\w+)*\.global", "load"),
    (r"st(?:\.\w+)*\.global", "store"),
    (r"(?:atom|red)(?:\.\w+)*\.global", "atomic"),
)
_BUILTIN = re.compile(r"\batomic[A-Z]\w*\(")  # CUDA's own


@dataclass(frozen=True)
class Access:
    """what: a key of KINDS.  op: of PLACED, None where the line is for none."""

    line: str
    what: str
    op: Op | None


def accesses(emitted: Emitted) -> list[Access]:
    """Every access to global memory of an emitted kernel, in the order of its lines.  Raises ValueError at an
    instruction that it can't tell."""
    head, kernel = _divided(emitted)
    does = _functions(head)
    scopes: list[dict[str, bool]] = [{}]  # names: is it a pointer to global memory?
    found = []
    for text, op in kernel:
        whats = {
            w for name, ws in does.items() for w in ws if re.search(rf"\b{name}(?:<|\()", text)
        }
        whats |= set(_instructions(text))
        if _BUILTIN.search(text):
            whats.add("atomic")
        if _dereferences(text, scopes):
            raise ValueError(f"a dereference: {text}")
        found += [Access(text.strip(), what, op) for what in sorted(whats)]
    return found


def _divided(emitted: Emitted) -> tuple[str, list[tuple[str, Op | None]]]:
    """The text in front of the kernel, and its own lines."""
    lines = [(x.text, x.op) for x in emitted.lines]
    at = next(i for i, (text, _) in enumerate(lines) if text.startswith('extern "C" __global__'))
    return "\n".join(text for text, _ in lines[:at]), lines[at:]


def _functions(text: str) -> dict[str, set[str]]:
    """What each device function does to global memory, by itself or through others."""
    bodies: dict[str, str] = {}
    for part in re.split(r"\n(?=DEV |template )", text):
        if named := re.search(r"DEV [\w ]+?[ *&]+(\w+)\(", part):
            bodies[named[1]] = bodies.get(named[1], "") + part
    does = {name: set(_instructions(body)) for name, body in bodies.items()}
    for name, body in bodies.items():
        if _BUILTIN.search(body):
            does[name].add("atomic")
    while True:
        more = {
            name: does[name].union(
                *(does[x] for x in bodies if x != name and re.search(rf"\b{x}(?:<[^;]*>)?\(", body))
            )
            for name, body in bodies.items()
        }
        if more == does:
            return {name: ws for name, ws in does.items() if ws}
        does = more


def _instructions(text: str) -> Iterator[str]:
    """What the PTX in a text does to global memory."""
    for asm in re.findall(r'"((?:[^"\\]|\\.)*)"', text):
        for instruction in _INSTRUCTION.findall(asm):
            if _ELSEWHERE.match(instruction):
                continue
            what = next((w for pattern, w in _WHAT if re.match(pattern, instruction)), None)
            if what is None:
                raise ValueError(f"an instruction that is not known: {instruction}")
            yield what


_POINTER = re.compile(
    r"\b(?:[ui](?:8|16|32|64)|int|short|signed char|float|double|bool)\* (?:const )?(\w+)\b(?!\[)"
)
_ARRAY = re.compile(r"^\s*(?:const )?[\w ]+?[ *](\w+)\[\d*\](?: =|;)")


def _dereferences(text: str, scopes: list[dict[str, bool]]) -> bool:
    """Does C itself read or write global memory in a line?  Declarations and braces go into the scopes."""
    code = text.partition("//")[0]
    if code.strip().startswith("}"):
        scopes.pop()
    scopes[-1].update(dict.fromkeys(_POINTER.findall(code), True))
    scopes[-1].update(dict.fromkeys(_ARRAY.findall(code), False))
    known = {name: is_pointer for scope in scopes for name, is_pointer in scope.items()}
    if code.count("{") + code.strip().startswith("}") > code.count("}"):
        scopes.append({})
    names = "|".join(name for name, is_pointer in known.items() if is_pointer)
    access = rf"(?<![\w)] )(?<![\w)])\*\s*\(?(?:{names})\b|\b(?:{names})\["
    return bool(names) and re.search(access, code) is not None


def unspelled(func: Func, found: list[Access]) -> list[Op]:
    """Ops that access global memory, are needed, and have no line."""
    spelled = {a.op for a in found}
    live = _live(func)
    return [o for o in walk(func.body) if o.kind in ACCESSES and o in live and o not in spelled]


def _live(func: Func) -> set[Op]:
    """Ops with an effect beside reading, and those whose results such ops need."""
    by_value = uses(func.body)
    yielding = {o: parent for parent in walk(func.body) for r in parent.regions for o in r.ops[-1:]}

    def needed(v: Value, seen: set[Value]) -> bool:
        if v in seen:
            return False
        seen.add(v)
        for o in by_value.get(v, ()):
            if o in yielding:
                parent = yielding[o]
                carried = (*parent.results, *(p for r in parent.regions for p in r.params))
                if not carried or any(needed(x, seen) for x in carried):
                    return True
            elif (
                o.kind.effect & (Effect.WRITE | Effect.SYNC)
                or o.regions
                or any(needed(x, seen) for x in o.results)
            ):
                return True
        return False

    return {
        o
        for o in walk(func.body)
        if not o.results
        or o.kind.effect & (Effect.WRITE | Effect.SYNC)
        or any(needed(v, set()) for v in o.results)
    }


def faults(func: Func, emitted: Emitted) -> list[str]:
    """Why accesses of the text and ops of the function are not each other's; none where they are."""
    found = accesses(emitted)
    said = [
        f"{a.what} for {a.op.kind.name if a.op else 'no op'}: {a.line}"
        for a in found
        if a.op is None or a.op.kind not in KINDS[a.what]
    ]
    inside = set(walk(func.body))
    said += [
        f"{a.line}: its op is not in the function" for a in found if a.op and a.op not in inside
    ]
    said += [f"no access for {o.kind.name} {o.id}" for o in unspelled(func, found)]
    maps = sum(isinstance(p, TensorMapParam) for p in emitted.params)
    if emitted.source.count("prefetch_map(&") != maps:
        said.append("prefetches of tensor maps are not one a map")
    return said
