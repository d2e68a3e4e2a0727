"""What a tuner is given: configs, and what a user has called around timed launches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal


class Given(dict[str, Any]):
    """A dict that gives itself when it is called: in Triton `config.all_kwargs()` is a method."""

    def __call__(self) -> Given:
        return self


@dataclass
class Config:
    """One candidate: values of meta-parameters, and knobs (`Knobs` says what each means; docs/knobs.md).

    pre_hook: called with all arguments by name before each launch with this config, and once before it is
    compiled for timing: it may give host descriptors the config's block shape, or clear an output.  Timed
    launches run on copies of the arguments, in another process, without it.
    """

    kwargs: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    num_consumer_groups: int | None = None
    num_buffers_warp_spec: int | None = None
    reg_dec_producer: int | None = None
    reg_inc_consumer: int | None = None
    ctas_per_sm: int | None = None
    consumer_stages: int | None = None
    ping_pong: bool | Literal["tiles"] | None = None
    stagger_epilogues: bool | None = None
    mma_wait_position: int | None = None
    store_buffers: int | None = None
    store_whole: bool | None = None
    store_task: bool | None = None
    skip_idle: bool | Literal["masked"] | None = None
    matrix_unit: Literal["wgmma", "mma.sync"] | None = None
    tma: bool = True
    pre_hook: Callable[[dict[str, Any]], object] | None = None
    ir_override: None = None  # Triton's; there is nothing of the kind

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.forget()

    def __hash__(self) -> int:
        return hash((*self.all_kwargs.items(), self.pre_hook))

    def forget(self) -> None:
        """Has `all_kwargs` computed again: pruning functions may change what `kwargs` holds."""
        vars(self).pop("all_kwargs", None)

    @functools.cached_property
    def all_kwargs(self) -> Given:
        """What is passed to the kernel: meta-parameters, and the knobs that differ from the default."""
        knobs = {
            f: getattr(self, f) for f in KNOBS_OF_CONFIGS if getattr(self, f) != KNOBS_OF_CONFIGS[f]
        }
        return Given({**self.kwargs, **knobs})

    def __str__(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.all_kwargs.items()) or "default"


KNOBS_OF_CONFIGS = {
    name: f.default
    for name, f in Config.__dataclass_fields__.items()
    if name not in ("kwargs", "pre_hook", "ir_override")
}


@dataclass(frozen=True)
class Hooks:
    """What a user has called around timed launches, and how they are timed.

    do_bench(launch, quantiles=(0.5, 0.2, 0.8)) gives milliseconds, the median first: it times launches in
    this process instead of the worker.  pre_hook(arguments by name, reset_only=False) and
    post_hook(arguments, exception=None) are called around each of its launches; where the worker times,
    pre_hook is called once, afterwards, with reset_only=True.
    """

    pre_hook: Callable[..., object] | None = None
    post_hook: Callable[..., object] | None = None
    do_bench: Callable[..., Any] | None = None

    @contextmanager
    def around(self, arguments: dict[str, Any]) -> Iterator[None]:
        """One timed launch with these arguments."""
        failed: Exception | None = None
        if self.pre_hook is not None:
            self.pre_hook(arguments)
        try:
            yield
        except Exception as error:
            failed = error
            raise
        finally:
            if self.post_hook is not None:
                self.post_hook(arguments, exception=failed)
