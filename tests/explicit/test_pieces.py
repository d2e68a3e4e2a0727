"""How many bytes a cp.async of a script copies at once: as many as are known to be aligned."""

from __future__ import annotations

from typing import Any

import pytest

from warploom import Script
from warploom.errors import CompileError
from warploom.ir.core import walk
from warploom.ir.ops import smem
from warploom.language import bfloat16, int32


class Copy(Script):
    """y = x, of blocks of 64 × 64."""

    def __init__(
        self, pieces: int | None = None, transposed: bool = False, start: int = 64
    ) -> None:
        super().__init__()
        self.pieces, self.transposed, self.start = pieces, transposed, start

    def __call__(self, x_ptr: ~bfloat16, y_ptr: ~bfloat16, n: int32, m: int32):  # type: ignore[valid-type,operator]
        self.attrs.blocks = 1
        self.attrs.warps = 4
        shape = [n, m]
        strides = [1, n] if self.transposed else [m, 1]
        x = self.global_view(x_ptr, dtype=bfloat16, shape=shape, strides=strides)
        y = self.global_view(y_ptr, dtype=bfloat16, shape=shape, strides=strides)
        s = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        for at in range(0, m, self.start):
            self.cp_async.load(x, s, [0, at], bytes=self.pieces)
            self.cp_async.wait_all()
            self.sync()
            self.store_global(y, self.load_shared(s), [0, at])
            self.sync()


def made(divisible: int, base: int = 16, **how: Any) -> Any:
    number = f"i32:{divisible}" if divisible > 1 else "i32"
    return Copy(**how).compile([f"*bf16:{base}"] * 2 + [number] * 2)


def pieces(kernel: Any) -> set[int]:
    return {o.attrs["bytes"] for o in walk(kernel.placed.body) if o.kind is smem.cp_async}


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("how", "found"),
    [
        ({"divisible": 16}, 16),
        ({"divisible": 8}, 16),
        ({"divisible": 4}, 8),
        ({"divisible": 2}, 4),
        ({"divisible": 16, "base": 8}, 8),
        ({"divisible": 16, "start": 4}, 8),
        ({"divisible": 16, "pieces": 4}, 4),
        ({"divisible": 2, "transposed": True}, 4),
    ],
)
def test_pieces_are_as_wide_as_alignment_allows(how: dict[str, Any], found: int) -> None:
    kernel = made(**how)
    assert pieces(kernel) == {found}
    assert kernel.check().ok


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"divisible": 1}, "cp.async of rows not known to be aligned"),
        ({"divisible": 16, "start": 1}, "cp.async of rows not known to be aligned"),
        (
            {"divisible": 4, "pieces": 16},
            "in pieces of 16 bytes, of which 8 are known to be aligned",
        ),
    ],
)
def test_what_is_not_aligned_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message) as refused:
        made(**how)
    assert refused.value.code == "cp-async-pieces" and refused.value.loc is not None


@pytest.mark.usefixtures("without_nvrtc")
def test_a_slot_lies_as_the_rows_of_the_view() -> None:
    (alloc,) = (
        o for o in walk(made(16, transposed=True).placed.body) if o.kind is smem.shared_alloc
    )
    assert alloc.attrs["inner"] == 0
