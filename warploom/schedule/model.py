"""The schedule: every decision about specialization, as data.

Choosing (heuristic, autotuner, user) and applying (passes) are apart: a pass reads a schedule and decides
nothing.  A schedule names ops by their stable ids and carries the hash of the TILE text it was made
for.  Every choice records its reason; `explain()` prints them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal


def _knob(
    default: Any, means: str, *, of_tasks: bool = False, numbers: range = range(1 << 31)
) -> Any:
    """A field of Knobs.  means: for the command line and docs/knobs.md.  of_tasks: is it about what only
    specialized kernels have?  numbers: that it may be."""
    return field(
        default=default, metadata={"means": means, "of_tasks": of_tasks, "numbers": numbers}
    )


@dataclass(frozen=True)
class Knobs:
    """What a launch or wl.Config asks for.  None: the chooser decides.  docs/knobs.md lists them."""

    num_warps: int = _knob(
        4,
        "warps of a uniform program (fewer where it hardly does more than loads and stores, of less than 16 "
        "bytes a thread), or of each consumer group (then a multiple of 4)",
    )
    num_stages: int = _knob(
        3,
        "slots of a uniform kernel's rings: iterations that its loads run ahead, plus one; three may be more "
        "where shared memory is left",
    )
    num_ctas: int = _knob(
        1, "CTAs of a program: a cluster; grid, program_id and BLOCK_* are the cluster's"
    )
    split_k: int | Literal["last_wave"] | None = _knob(
        None,
        "split-K: CTAs of a cluster that divide the iterations of the loop with the dots (1, 2, 4, 8); "
        "last_wave: CTAs divide those of the programs of a wave that does not fill the chip (Stream-K); "
        "None: what pays where the grid leaves multiprocessors idle",
    )
    maxnreg: int | None = _knob(None, "the most registers that a thread is launched with")
    num_consumer_groups: int | None = _knob(
        None,
        "warp groups that compute, beside a producer; 0: a uniform kernel, without tasks",
        of_tasks=True,
    )
    num_buffers_warp_spec: int | None = _knob(
        None,
        "slots of the rings between producer and consumers; None: as many as fit",
        of_tasks=True,
    )
    reg_dec_producer: int | None = _knob(
        None, "registers of a producer's thread (setmaxnreg), a multiple of 8", of_tasks=True
    )
    reg_inc_consumer: int | None = _knob(
        None, "registers of a consumer's thread (setmaxnreg), a multiple of 8", of_tasks=True
    )
    strict: bool = _knob(False, "what can't be had as asked is an error instead of a warning")
    default_dot_input_precision: Literal["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"] = _knob(
        "tf32", "how dots that don't say (`input_precision`) multiply float32"
    )
    enable_fp_fusion: bool = _knob(True, "a·b + c may be one instruction, rounded once")
    ctas_per_sm: int | None = _knob(
        None,
        "occupancy: co-resident CTAs of a multiprocessor; each is compiled for 1/n of its registers and "
        "shared memory",
        of_tasks=True,
        numbers=range(1, 9),
    )
    consumer_stages: int | None = _knob(
        None,
        "1: a consumer's iterations don't overlap; 2: asked for, with a warning where they can't",
        of_tasks=True,
        numbers=range(1, 3),
    )
    ping_pong: bool | Literal["tiles"] | None = _knob(
        None,
        "consumer warp groups issue dots in turn; tiles: they process alternate output tiles",
        of_tasks=True,
    )
    stagger_epilogues: bool | None = _knob(
        None,
        "one consumer group's epilogue runs under the other's main loop, instead of both at once",
        of_tasks=True,
    )
    mma_wait_position: int | None = _knob(
        None,
        "where iterations overlap: how many eighths of the arithmetic come before the wait for the dots",
        of_tasks=True,
        numbers=range(9),
    )
    store_buffers: int | None = _knob(
        None, "chunks of staging for a group's store by TMA (1, 2, 4); 0: stores go directly"
    )
    store_whole: bool | None = _knob(
        None, "a group's tile is staged whole and stored after one barrier, not chunk by chunk"
    )
    store_task: bool | None = _knob(
        None, "a task of its own issues the stores of a loop over tiles; None: no", of_tasks=True
    )
    skip_idle: bool | Literal["masked"] | None = _knob(
        None,
        "a consumer group skips iterations that cannot affect its output. True: its rows are out of bounds; "
        "masked: also those in which the mask is false for all its rows (assumes finite inputs); None: no",
        of_tasks=True,
    )
    matrix_unit: Literal["wgmma", "mma.sync"] | None = _knob(
        None, "the instruction of all dots; None: the preferred one that takes each, else the next"
    )
    tma: bool = _knob(
        True, "boxes go by TMA where it takes them; False: by cp.async or through registers"
    )
    pdl: bool = _knob(True, "the launch may overlap with the end of the kernel before it")
    debug: bool | Literal["asserts"] = _knob(
        False,
        "every wait is bounded and traps with its name; device asserts are on; asserts: only those",
    )

    @property
    def ask_for_tasks(self) -> bool:
        """Does a knob ask for what only specialized kernels have, or say that there shall be none?"""
        given = (getattr(self, name) for name in _OF_TASKS)
        return any(value is not None and value is not False for value in given)

    def uniform(self) -> Knobs:
        """The same for a kernel without tasks."""
        silent: dict[str, Any] = dict.fromkeys(_OF_TASKS)
        return dataclasses.replace(self, **{**silent, "num_consumer_groups": 0})


_OF_TASKS = tuple(f.name for f in dataclasses.fields(Knobs) if f.metadata["of_tasks"])


SPLITS = (2, 4, 8)  # CTAs of a cluster that may share the iterations of a loop
LAST_WAVE: Literal["last_wave"] = "last_wave"  # in their place: those of the last wave's programs
Parts = int | Literal["last_wave"]
MANY_WAVES = 4  # programs of one multiprocessor: where there are more, it's as if there were these


# A loop whose iterations CTAs may share, and rows (programs, ((steps, CTAs), …)): a launch goes by the first
# row of as many programs as it has, or more, and there by the last pair of as many steps, or fewer.
SplitK = tuple[str, tuple[tuple[int, tuple[tuple[int, Parts], ...]], ...]]


@dataclass(frozen=True)
class Launch:
    """What is known of the launches that a kernel is compiled for, as far as it decides on its form.

    waves: programs (of clusters CTAs) that a multiprocessor gets, rounded up, at most MANY_WAVES; 0 where
    the grid is not known.  short: the main loop has fewer steps than `Schedule.short` says, or as many as
    `Schedule.single_trip_loop`.  split_k: how CTAs share the iterations of the main loop
    (`Schedule.split_k`).  axes: those of the grid that have more than one program, a bit each; None
    where it is not known.
    """

    waves: int = 0
    short: bool = False
    split_k: Parts = 1
    axes: int | None = None

    def less(self, waves: bool, axes: bool) -> Launch:
        """What is known without the `waves` or the `axes` of the grid, unless these are asked for."""
        return replace(self, waves=self.waves if waves else 0, axes=self.axes if axes else None)


@dataclass(frozen=True)
class TaskPlan:
    """One task: its role, warps a replica, replicas (groups that share a tile, by the data split, or that
    take tiles in turn, see Schedule.ping_pong_loop), registers a thread (needed: how many it was estimated to
    take).

    A "transpose" task stands between producer and consumers: it moves items from the slots where they land to
    others, where they lie as their readers need them.
    "store" tasks, one a consumer's replica, issue its stores; "spare" warps fill up their warp group.
    An "inline" task is a producer of a uniform kernel: it has no warps of its own (warps 0), its code is
    fused into the "main" task, some iterations ahead of it.
    """

    name: str
    role: str  # "producer" | "consumer" | "transpose" | "main" (uniform) | "inline"
    warps: int
    replicas: int
    registers: int | None
    needed: int | None = None


@dataclass(frozen=True)
class ChannelPlan:
    """One ring.  `items` are the ids of the ops whose results it carries, `via` how each is filled.  What
    transpose warps hand on of load i has the id forwarded(i).

    multicast[i]: the axis of item i that the CTAs of the cluster divide, each loading its part for all; None
    where every CTA loads its own.  also: items of loops that follow, brought into the same slots."""

    name: str
    items: tuple[str, ...]
    via: tuple[str, ...]  # "tma" | "cp_async" | "registers"
    producer: str
    consumers: tuple[str, ...]
    depth: int
    multicast: tuple[int | None, ...] = ()
    also: tuple[tuple[str, ...], ...] = ()

    @property
    def sites(self) -> tuple[tuple[str, ...], ...]:
        """The items of each loop that steps the ring, in order."""
        return (self.items, *self.also)

    @property
    def all_items(self) -> tuple[str, ...]:
        return tuple(i for site in self.sites for i in site)


def forwarded(load: str) -> str:
    """The id of what transpose warps make of the item that `load` brings."""
    return f"{load}.forwarded"


@dataclass(frozen=True)
class ClusterPlan:
    """The CTAs of a program: how many, and the axis ("M" or "N") of the dots' results that they divide; "K":
    the iterations of the loop that adds these up.  LAST_WAVE: CTAs that are no cluster divide those."""

    axis: str | None = None
    ctas: int = 1
    because: str = ""


@dataclass(frozen=True)
class SplitPlan:
    """The data split of the consumer task: `axis` of the dots' M×N result, `count` replicas."""

    axis: str | None  # "M" | "N" | None
    count: int


@dataclass(frozen=True)
class StorePlan:
    """How one store leaves: 'tma' through `buffers` staging chunks of `chunk` shape, or 'direct'.

    reuses: the item, loaded once, whose bytes it will have without more barriers, which the depths of rings
    count on.  by_task: a task of its own issues it, and waits.  across: the chunks of the replicas are rows
    of one box, like their parts of the tile, and of operands cut alike.
    """

    op: str
    via: str
    chunk: tuple[int, ...] = ()
    buffers: int = 0
    by_task: bool = False
    across: bool = False
    reuses: str = ""

    @property
    def staging(self) -> str:
        """The name of its staging."""
        return f"store_{self.op.replace('/', '_')}"


@dataclass(frozen=True)
class PipelinePlan:
    """A software-pipelined loop.  stages: (op, stage) of the ops that decide: stage n of an iteration runs
    together with stage 0 of the n-th iteration after it.

    In a consumer these are dots, those of stage 1 in flight together with those of stage 0 of the next
    iteration; what depends on them goes with them.  In a kernel without dots these are all ops of the
    loop's block, and what loads of stage 0 bring waits in registers.

    eighths: how much of the arithmetic that late dots hide is done before they are waited for.
    ping_pong: groups take turns at issuing dots.
    split: an `if` that goes one way up to some iteration and the other way from there on, as where only
    the last blocks are masked: the loop is cut there into two without the branch.  Or a `select` whose mask
    lets all through in one of the two.  Empty: none.
    beside_rings: loads of stage 0 wait in registers in a loop of dots, which rings feed as well.
    """

    loop: str
    stages: tuple[tuple[str, int], ...]
    eighths: int = 0
    ping_pong: bool = False
    split: str = ""
    beside_rings: bool = False

    def in_stage(self, n: int) -> tuple[str, ...]:
        return tuple(op for op, stage in self.stages if stage == n)

    @property
    def distance(self) -> int:
        """The last stage: how many iterations are begun before the first one is over."""
        return max(stage for _, stage in self.stages)


@dataclass(frozen=True)
class IdlePlan:
    """A loop of the consumer of whose iterations a group computes only those that are of use to it; of the
    others it takes and gives back what comes.

    stores: (id, axis) of those that write all that becomes of the loop, which is of no use to a group whose
    part of each lies, along the axis, after the end of what the store writes to.  Empty: not looked at.
    mask: a `select` that makes an iteration one without effect where its condition is false everywhere;
    branch: the `if` that it stands in, which changes its way once; positive: parameters that have to be
    positive for it.  Empty: none."""

    loop: str
    stores: tuple[tuple[str, int], ...] = ()
    mask: str = ""
    branch: str = ""
    positive: tuple[int, ...] = ()


@dataclass(frozen=True)
class PromotionPlan:
    """A dot whose partial sums are added up in f32: so many columns at a time, one piece after the other, so
    that a piece and the totals fit a thread's registers."""

    dot: str
    columns: int


@dataclass(frozen=True)
class Reason:
    """Why: `subject` is an op id, a task or channel name, or 'kernel'.

    `warn`: the decision goes against what the user asked for, who has to be told.
    """

    subject: str
    decision: str
    because: str
    warn: bool = False


@dataclass(frozen=True)
class Schedule:
    """See the module's docstring.  `assign`: op id -> names of the tasks that run it.

    The TILE text is that of one CTA: after partition_ctas has applied `cluster`."""

    tile_hash: str
    specialized: bool
    tasks: tuple[TaskPlan, ...]
    assign: dict[str, tuple[str, ...]]
    split: SplitPlan
    channels: tuple[ChannelPlan, ...]
    stores: tuple[StorePlan, ...]
    dots_in_flight: int  # 1: late release; 0: drain each step
    reasons: tuple[Reason, ...] = field(default=())
    cluster: ClusterPlan = field(default_factory=ClusterPlan)
    pipelines: tuple[PipelinePlan, ...] = ()
    delayed_reductions: tuple[str, ...] = ()  # row sums whose lanes are added up after the loop
    ctas_per_sm: int = 1  # occupancy: each has its part of the registers
    short: tuple[str, int] | None = None  # a loop, and steps below which a uniform kernel is faster
    split_k: SplitK | None = None  # launches that take another one (`Launch.split_k`)
    by_waves: bool = False  # would it be another one for other `Launch.waves`?
    by_axes: bool = False  # … for other `Launch.axes`?
    fused_dots: tuple[tuple[str, ...], ...] = ()  # on one left operand: each becomes one wider dot
    promotions: tuple[PromotionPlan, ...] = ()
    staggered_loops: tuple[str, ...] = ()  # main loops whose epilogues consumer groups stagger
    forwards: tuple[str, ...] = ()  # loads whose items go through transpose warps
    ping_pong_loop: str = ""  # the consumer's replicas take its iterations in turn, each its own
    idle: tuple[IdlePlan, ...] = ()
    hoisted_loads: tuple[str, ...] = ()  # loads issued before the first wait of their block
    # Of a uniform kernel's loops: (loop, iterations that the loads of its rings run ahead).
    prefetched: tuple[tuple[str, int], ...] = ()
    held_loads: tuple[str, ...] = ()  # wide ones that registers bring, as slots have no room
    streamed_loads: tuple[str, ...] = ()  # the L2 gives up first what they bring
    hoisted_operands: tuple[str, ...] = ()  # loops before which dots' fixed operands are loaded
    few_registers: bool = False  # ptxas spilled: slots are read anew, ops ordered by what they hold
    single_trip_loop: str = ""  # launches that run it exactly once take a variant without it

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Schedule:
        """Inverse of to_json.  Raises ValueError on malformed text."""
        try:
            fields = {k: _tupled(v) for k, v in json.loads(text).items()}
            for name, plan in _PLANS.items():
                fields[name] = tuple(plan(**p) for p in fields[name])
            fields["split"] = SplitPlan(**fields["split"])
            fields["cluster"] = ClusterPlan(**fields["cluster"])
            return Schedule(**fields)
        except (AttributeError, KeyError, TypeError) as e:
            raise ValueError(f"no schedule: {e}") from e


# Fields that hold plans, one for each op, task, loop or ring.
_PLANS: dict[str, Callable[..., Any]] = {
    "tasks": TaskPlan,
    "channels": ChannelPlan,
    "stores": StorePlan,
    "reasons": Reason,
    "pipelines": PipelinePlan,
    "promotions": PromotionPlan,
    "idle": IdlePlan,
}


def _tupled(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    if isinstance(value, dict):
        return {k: _tupled(v) for k, v in value.items()}
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
