"""The namespaces of `self`: what scripts are written in, beside the methods of `wl.Script` and `wl.Class`.

Names and semantics are Tilus's; where an instruction has more to say, it takes more keywords.
Every function of theirs runs while a script is translated and emits IR (ir/ops says what each op
stands for).  "The group" is the threads that run the statement together.
"""

from __future__ import annotations

from typing import Any, NoReturn, get_type_hints

from warploom.explicit.barriers import Fence, Mbarrier, NamedBarrier
from warploom.explicit.clusters import Cluster
from warploom.explicit.copies import CpAsync, Tma
from warploom.explicit.layouts import Cuda, Utils
from warploom.explicit.memory import Atomic
from warploom.explicit.operands import not_yet
from warploom.explicit.products import Wgmma
from warploom.frontend.language.core import builtin


def _later(what: str, names: str) -> type:
    """A namespace whose instructions parse, and stop with an error that names their line."""

    def made(name: str) -> Any:
        def fn(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
            not_yet(f"{what}.{name}", _REASONS[what])

        fn.__name__, fn.__doc__ = name, f"{what}.{name} of Tilus; not supported yet."
        return builtin(fn)

    return type(what, (), {name: made(name) for name in names.split()})


_REASONS = {
    "tcgen05": "tensor cores that no target of this version has (use self.wgmma)",
    "clc": "cluster launch control, which no target of this version has",
}
Tcgen05 = _later(
    "tcgen05",
    "alloc dealloc slice view load wait_load store wait_store copy mma commit relinquish_alloc_permit",
)
Clc = _later("clc", "try_cancel query_response")


class Namespaces:
    """What `self` has of them."""

    mbarrier: Mbarrier
    tma: Tma
    wgmma: Wgmma
    fence: Fence
    named_barrier: NamedBarrier
    cp_async: CpAsync
    cluster: Cluster
    atomic: Atomic
    cuda: Cuda = Cuda()
    utils: Utils = Utils()
    tcgen05: Any
    clc: Any


NAMESPACES: dict[str, type] = get_type_hints(Namespaces) | {"tcgen05": Tcgen05, "clc": Clc}
