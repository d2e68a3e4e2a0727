"""How the consumer groups divide the dots' work: parts of each tile, or ping-pong over tiles, and what that
leaves in the registers of a thread.

Rows, else columns, of the dots' results go to the groups (analysis/data_split.py says what can be cut), as
many groups as were asked for, or as their registers need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from warploom.analysis.data_split import AXES, RefusalError, Split
from warploom.analysis.liveness import Peak, peak
from warploom.analysis.matrix_units import takes_batches, unit_of, units_for
from warploom.analysis.shared_loops import loop_over_tiles, why_not_alternate
from warploom.errors import CompileError
from warploom.ir.core import Op, Value
from warploom.ir.ops import tile
from warploom.ir.types import dtype_of, shape_of
from warploom.layout import mma_acc, warp_grid
from warploom.schedule import rings
from warploom.schedule.context import Context
from warploom.schedule.hints import ids, spelled
from warploom.schedule.resources import WORK, budgets
from warploom.schedule.roles import Roles
from warploom.target import MatrixUnit, Target

MAX_GROUPS = 4  # tried where fewer can't hold a dot's result
SWIZZLED_ROWS = 8  # after so many rows the swizzle of a slot begins again
MIN_COLUMNS = 32  # columns that a group is left with where N is split


@dataclass(eq=False)
class ConsumerPartition:
    """The split, and the registers that it needs; `divide` fills it in."""

    context: Context
    roles: Roles
    cramped: str = ""  # why the first split that registers forbade needs too many
    reserve: int = field(init=False)  # registers a thread of a consumer beside its tiles
    warps: int = field(init=False)  # of a group
    any_unit: bool = False  # may dots go to other units than those preferred for their operands?
    alone: bool = False  # count what the largest result of a dot takes, not all tiles together
    need: int = 0  # registers a thread of a consumer, with the split that was chosen
    needs: str = ""  # what takes them
    pieces: int = 1  # of the columns of promoting dots, with that split
    cut: tuple[dict[Value, int], int] = field(default_factory=lambda: ({}, 1))  # as Split.forward
    ping_pong_loop: str = ""  # groups take its iterations in turn; empty where they share tiles
    axis: str | None = None  # of the dots' results, along which groups share tiles
    replicas: int = 1  # groups that run the dots
    _splits: dict[tuple[str, int], Split | RefusalError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reserve = self.context.target.registers.reserve
        self.warps = self.target.warps_together(self.context.knobs.num_warps)

    @property
    def target(self) -> Target:
        return self.context.target

    @property
    def is_lone(self) -> bool:
        """Does one warp run all?  It is a uniform kernel then."""
        return self.warps * self.replicas == 1

    def ways(self) -> tuple[tuple[int, bool], ...]:
        """Registers left beside the tiles, and whether only the largest result of a dot counts: what is
        surely enough, then what may be just enough, at last what holds each result alone.
        The assembler will tell."""
        r = self.target.registers
        return (r.reserve, False), (r.least_reserve, False), (r.least_reserve, True)

    def parts(self, dot: Op) -> tuple[int, int]:
        """Into how many parts M and N of a dot are cut by the split that was chosen."""
        return self._parts(dot, self.cut[0].get(dot.result), self.cut[1])

    @staticmethod
    def _parts(dot: Op, cut: int | None, count: int) -> tuple[int, int]:
        rank = len(shape_of(dot.result.type))
        return (count if cut == rank - 2 else 1), (count if cut == rank - 1 else 1)

    def unit(self, dot: Op) -> MatrixUnit:
        """The matrix unit that does a dot, after the split that was chosen."""
        found = unit_of(dot, self.target, self.warps, self.parts(dot))
        return found or self.context.unit(dot)

    def threads(self, groups: int) -> int:
        """Threads of the program, where so many groups run the dots."""
        if self.roles.specialized:
            return self.roles.warp_groups(groups) * self.target.group_threads
        return groups * self.warps * self.target.warp_size

    def partial(self, pieces: int) -> int:
        """Registers a thread of a partial sum before it is promoted."""
        return max(
            (m * n // pieces // self.target.group_threads for m, n in self.promoted()), default=0
        )

    def promoted(self) -> list[tuple[int, int]]:
        """Shapes of the promoting dots' results, after the split that `cut` says."""
        found = []
        for o in self.context.dots:
            if o.attrs.get("max_imprecise") and self.unit(o).is_async:
                (_, m, n, _), (rows, columns) = tile.dot_sizes(o), self.parts(o)
                found.append((m // rows, n // columns))
        return found

    def work(self, loads: list[Op]) -> str:
        """The heaviest of what filling the rings asks of threads, after the split that `cut` says."""
        vias = (
            rings.choose_via(self.context.accesses, o, self.parts, o in self.roles.forwards)
            for o in loads
        )
        found = (_work(o, via) for o, (via, _) in zip(loads, vias, strict=True))
        return max(found, key=WORK.index, default=WORK[0])

    # ---- ping-pong over tiles

    def choose_ping_pong(self) -> str:
        """The loop whose iterations the consumer groups take in turn; empty where they share tiles."""
        if self.context.knobs.ping_pong != "tiles":
            return ""
        loop = loop_over_tiles(self.context.structure, self.context.dots)
        why = self.why_not_ping_pong(loop)
        if why or loop is None:
            self.context.unmet(
                loop or self.context.dots[0], "groups share a tile, against ping_pong='tiles'", why
            )
            return ""
        self.context.because(
            loop.id,
            f"{self.ping_pong_groups()} groups take its iterations in turn, each a tile of its own",
            "its iterations need nothing of each other: one group's epilogue runs under another's dots",
        )
        return loop.id

    def why_not_ping_pong(self, loop: Op | None) -> str:
        if not self.roles.specialized:
            return "the kernel is uniform"
        if not self.target.sync.named_barriers:
            return "the target has no named barriers"
        if loop is None:
            return "its dots stand in no loop over tiles"
        if self.ping_pong_groups() < 2:
            return "there is one group"
        if self.context.knobs.num_ctas > 1:
            return "not yet in clusters, whose CTAs release each other's slots"
        why: str | None = why_not_alternate(
            loop, self.context.accesses, self.roles.demand, self.roles.mine
        )
        if why:
            return why
        ways = self.ways()
        for self.reserve, self.alone in ways:
            why = self.try_split("M", 1, self.ping_pong_groups())
            if why is None:
                return ""
        return str(why)

    def ping_pong_groups(self) -> int:
        """Consumer groups where each takes tiles of its own."""
        return self.context.knobs.num_consumer_groups or self.asked_groups() or 2

    def asked_groups(self) -> int | None:
        """Consumer groups by the dots' tl.async_task: as many as it has numbers, from two on."""
        named = next((o for o in self.context.dots if ids(o)), None)
        n, given = len(self.context.hints.main), self.context.knobs.num_consumer_groups
        if named is None or n < 2:
            return None
        if given and given != n:
            why = f"num_consumer_groups={given} comes first"
            self.context.because(named.id, f"not {n} groups, against {spelled(ids(named))}", why)
        return n

    # ---- parts of a tile

    def split(self) -> tuple[str | None, int]:
        """The axis along which consumer groups share the dots (None where one has all), and how many."""
        warps, of_group = self.context.knobs.num_warps, self.warps
        each = warps // of_group
        asked = self.asked_groups()
        groups = self.context.knobs.num_consumer_groups or asked
        wanted = each
        if self.roles.specialized:
            wanted = groups * each if groups else max(2, each)
        refusals: list[str] = []
        counts = (*range(wanted, 0, -1), *range(wanted + 1, MAX_GROUPS + 1))
        if warps < self.target.warp_group:
            counts = counts[:wanted]
        together = 1 << warps.bit_length() - 1  # the most that share tiles as one group
        ways = self.ways()
        if self.context.ctas_per_sm > 1:  # if it doesn't fit, it shares with none
            ways = ways[:1]
        batched = any(len(shape_of(o.result.type)) > 2 for o in self.context.dots)
        axes = tuple(AXES)[not batched :]
        for self.any_unit in (False, True):
            splits = [(n, x, of_group) for n in counts for x in (axes if n > 1 else axes[:1])]
            if self.any_unit and each > 1 and not self.roles.specialized:
                splits.insert(len(axes), (1, axes[0], together))
            for self.reserve, self.alone in ways:
                for count, name, self.warps in splits:
                    why = self.try_split(name, count)
                    if why is None:
                        self.explain_split(name if count > 1 else None, count, wanted, refusals)
                        return (name if count > 1 else None), count
                    refusals.append(f"{name} / {count}: {why}")
        raise self.dot_error()

    def explain_split(self, axis: str | None, count: int, wanted: int, refusals: list[str]) -> None:
        """Records the split; one that was not asked for is a warning, or an error where strict."""
        asked = self.context.knobs.num_consumer_groups
        given = asked is not None or self.context.knobs.num_warps != self.target.warp_group
        usual = self.target.warps_together(self.context.knobs.num_warps)
        warn = given and count * self.warps != wanted * usual
        reason = (
            "; ".join(dict.fromkeys(refusals[:2]))
            or "each part fills whole instructions of the matrix unit"
        )
        if warn and self.context.knobs.strict:
            code, knob, have = "no-specialization", f"num_consumer_groups={asked}", f"{count}"
            if not asked:
                code, knob = "num-warps", f"num_warps={self.context.knobs.num_warps}"
                have = f"{count * self.warps} warps"
            raise CompileError(
                code,
                f"{knob} was asked for, but {reason}",
                self.context.dots[0].loc,
                help=f"use blocks that {wanted} groups can share, or drop strict=True for {have}",
            )
        decision = f"{axis} split over {count} groups" if axis else "one consumer group"
        if warn:
            own, other = (f" of {n}" * (self.warps != usual) for n in (self.warps, usual))
            decision += f"{own}{' warps' * bool(own)} instead of {wanted}{other}"
        self.context.because(self.context.dots[0].id if warn else "kernel", decision, reason, warn)

    def try_split(self, axis: str, count: int, groups: int = 0) -> str | None:
        """None where the dots' axis of that name can be cut into `count` parts, else why not.  groups: where
        each has a tile of its own, how many there are."""
        mine = self.roles.mine
        items = frozenset(o.result for o in self.roles.loads)
        split = self._split(items, axis, count)
        if isinstance(split, RefusalError):
            return f"{split.op.id}: {split}"
        meet = not self.roles.specialized  # tasks of their own are not to wait for each other
        apart = split.out_of_order(self.context.accesses.reached(), meet)
        if apart is not None:
            return f"{apart.id} accesses what another group writes, and groups keep no order"
        for o in self.context.dots:
            _, m, n, _ = tile.dot_sizes(o)
            parts = self._parts(o, split.forward.get(o.result), count)
            rows, columns = m // parts[0], n // parts[1]
            if (why := self.why_no_unit(o, rows, columns, parts)) is not None:
                return why
            if parts[1] > 1 and columns < MIN_COLUMNS:
                return f"{o.id} would be left with {columns} columns, fewer than {MIN_COLUMNS}"
        before, self.cut = self.cut, (split.forward, count)

        held = {shape_of(o.result.type): self.held(o) for o in self.context.dots}

        def registers(v: Value) -> int:
            shape, bits = shape_of(v.type), dtype_of(v.type).bits
            elements = max(prod(shape), held.get(shape, 0))
            whole = -(-elements * bits // (32 * self.warps * self.target.warp_size))
            versions = split.versions.get(v) or {split.forward.get(v)}
            return sum(whole if cut is None else -(-whole // count) for cut in versions)

        if self.alone:
            worst = max((o.result for o in self.context.dots), key=registers)
            tiles = Peak(registers(worst), (worst,))
        else:
            tiles = peak(self.context.structure, mine, items, registers)
        why = self.why_cramped(tiles, groups or count, whole_tiles=groups > 0)
        if why is not None:
            self.cut, self.cramped = before, self.cramped or why
        return why

    def _split(self, items: frozenset[Value], axis: str, count: int) -> Split | RefusalError:
        """The split, or why there is none: asked for again with other units and registers."""
        if (axis, count) not in self._splits:
            try:
                found: Split | RefusalError = Split(
                    self.context.structure,
                    self.roles.mine,
                    items,
                    axis,
                    count,
                    broadcasts=self.context.accesses.in_workspace,
                )
            except RefusalError as refusal:
                found = refusal
            self._splits[axis, count] = found
        return self._splits[axis, count]

    def held(self, o: Op) -> int:
        """Elements of a dot's result that all threads hold, where it fills instructions in part: some of them
        several times."""
        shape, unit = shape_of(o.result.type), self.unit(o)
        if unit.is_async or self.parts(o) != (1, 1) or unit.fills(*shape[-2:]):
            return 0
        layout = mma_acc(shape, warp_grid(shape, self.warps, False), self.warps)
        return layout.registers * layout.threads

    def why_no_unit(self, o: Op, rows: int, columns: int, parts: tuple[int, int]) -> str | None:
        """None where a matrix unit takes what a group is left with of a dot, else why none does."""
        for what, size, count in (("rows", rows, parts[0]), ("columns", columns, parts[1])):
            if count > 1 and size % SWIZZLED_ROWS:
                return f"{o.id} would be left with {size} {what}, slots are cut by {SWIZZLED_ROWS}"
        found = unit_of(o, self.target, self.warps, parts)
        units = units_for(o, self.target)
        if found is not None and (self.any_unit or found is units[0]):
            return None
        unit = units[-1 if self.any_unit else 0]
        if not takes_batches(unit, o):
            return f"{o.id} multiplies a batch, {unit.instruction} one pair of matrices"
        if not unit.is_shared_by(self.warps * self.target.warp_size):
            return f"{o.id} is shared by {self.warps} warps, {unit.instruction} takes {unit.threads} threads"
        if rows % unit.m:
            return f"{o.id} would be left with {rows} rows, {unit.rows}"
        return f"{o.id} would be left with {columns} columns, {unit.columns}"

    def why_cramped(self, tiles: Peak, count: int, whole_tiles: bool) -> str | None:
        """None where the registers of `count` groups hold what the dots keep there, else why not.
        whole_tiles: each has tiles of its own."""
        specialized = self.roles.specialized
        groups = self.roles.warp_groups(count)
        transpose = self.roles.transpose_registers(self.context.headroom, self.target)
        if groups * self.target.warp_group > self.target.grid.warps:
            return None  # no CTA has so many warps: `plan_tasks` says that
        r, threads = self.target.registers, self.threads(count)
        entry = self.target.entry_registers(threads)
        for o in self.context.dots:
            columns = shape_of(o.result.type)[-1] // self.parts(o)[1]
            unit = self.unit(o)
            one = unit.accumulator_registers(min(columns, unit.n_max))
            one = one * dtype_of(o.result.type).bits // 32
            if one + r.instruction_reserve > entry and groups > 1:
                return (
                    f"{o.id}: an instruction of {columns} columns needs {one} registers a thread for its "
                    f"result and {r.instruction_reserve} more, {groups} warp groups are launched with {entry}"
                )
        reserve = (
            self.reserve
            + self.context.headroom.consumer
            + (r.reserve_of_ping_pong if whole_tiles else 0)
        )
        work = self.work(self.roles.loads)
        if not specialized and work in ("holds", "loads") and self.reserve == r.reserve:
            reserve += r.reserve_of_pieces
        have = 0
        names = ", ".join(dict.fromkeys(self.naming(v) for v in tiles.values))
        for pieces in piece_counts([n for _, n in self.promoted()]):
            need = tiles.registers + self.partial(pieces) + reserve
            have = entry
            if not specialized:  # under a limit that it was given it may spill: that is told
                have = self.target.limited(None).entry_registers(threads)
            else:
                found = budgets(count, work, self.target, need, self.context.headroom, transpose)
                most = budgets(count, work, self.target, 0, self.context.headroom, transpose)
                have = self.context.knobs.reg_inc_consumer or (found or most or (0, entry))[1]
            if need <= have:
                self.need, self.pieces = need, pieces
                partial = self.partial(pieces)
                parts = f" and {partial} of a partial sum" if partial else ""
                self.needs = f"{tiles.registers} of {names}{parts} together, {reserve} for the rest"
                return None
        return (
            f"{names} {'need' if len(tiles.values) > 1 else 'needs'} {tiles.registers} registers a thread, "
            f"of the {have} that a thread has {reserve} are for the rest"
        )

    def naming(self, v: Value) -> str:
        """The op that a tile comes from, or the name of one that a loop carries."""
        o = self.context.structure.maker(v)
        return o.id if o is not None and o.id else v.hint or "a tile"

    def dot_error(self) -> CompileError:
        """For dots that no split makes legal."""
        for o in self.context.dots:
            (_, m, n, _), units = tile.dot_sizes(o), units_for(o, self.target)
            unit, first = units[-1], units[0]
            if not takes_batches(unit, o):
                return CompileError(
                    "dot-rank",
                    f"dot of a batch: {unit.instruction} multiplies one pair of matrices",
                    o.loc,
                    help="leave matrix_unit= out, or multiply one batch a program",
                )
            if m % unit.m and (unit.is_async or m > unit.m):
                return CompileError(
                    unit.code("m"),
                    f"dot of {m} rows: {unit.rows}",
                    o.loc,
                    help=f"use a BLOCK_M that is a multiple of {unit.m}, or one of {first.n_step} "
                    f"up to {first.n_max} with a BLOCK_N that is a multiple of "
                    f"{first.m}: then the product is made as its transpose",
                )
            if not unit.takes_columns(n) and (unit.is_async or n > unit.n_step):
                return CompileError(
                    unit.code("n"),
                    f"dot of {n} columns: {unit.columns}",
                    o.loc,
                    help=f"use a BLOCK_N that is a multiple of {unit.n_step}, or split a wider one among "
                    "more groups",
                )
        return CompileError(
            "registers",
            self.cramped,
            self.context.dots[0].loc,
            help="use smaller blocks, more consumer groups, or (uniform) num_warps=8",
        )


def partition_consumer(context: Context, roles: Roles) -> ConsumerPartition:
    """How consumer groups, or the groups of a uniform kernel, share the work.

    Raises CompileError for dots that no split makes legal."""
    found = ConsumerPartition(context, roles)
    found.ping_pong_loop = found.choose_ping_pong()
    if found.ping_pong_loop:
        found.replicas = found.ping_pong_groups()
    else:
        found.axis, found.replicas = found.split()
    for o in context.dots:
        unit, first = found.unit(o), context.unit(o)
        if unit is not first:
            takes = f"{first.m} rows and up to {first.n_max} columns"
            why = f"{first.instruction} takes {first.threads} threads, {takes}"
            context.because(o.id, f"by {unit.instruction}, from registers", why)
        _, *sizes, _ = tile.dot_sizes(o)
        if not unit.is_async and not unit.fills(*sizes):
            whole, own = (unit.m, unit.n_step), unit.part(*sizes)
            size, some, each = ("×".join(map(str, x)) for x in (sizes, own, whole))
            what = f"fills {some} of the {each} of each {unit.instruction}"
            context.because(o.id, what, f"a product of {size} has no more")
    return found


def piece_counts(columns: list[int]) -> list[int]:
    """Into how many pieces all of these columns can be cut, fewest first: wide products are the fastest."""
    counts = range(1, max(columns, default=0) // MIN_COLUMNS + 1)
    return [p for p in counts if all(n % (8 * p) == 0 for n in columns)] or [1]


def _work(o: Op, via: str) -> str:
    """What filling by load o asks of a producer's threads."""
    if via != "registers":
        return "issues" if via == "tma" else "copies"
    return "holds" if o.kind is tile.load_box else "loads"
