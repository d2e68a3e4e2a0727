"""A chip is data: what knows its name, and what names its instructions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import warploom
from warploom.errors import CompileError
from warploom.target import DEFAULT, TARGETS, for_device, named, supported
from warploom.target.sm_90a import MMA_SYNC, SM_90A, WGMMA

ROOT = Path(warploom.__file__).parent
CHIPS = re.compile(r"\bsm_\d|\b(hopper|blackwell|h100|h200)\b", re.IGNORECASE)
# Folders that ask a target for capabilities, and never for its name.
WITHOUT_CHIPS = ("schedule", "analysis", "passes", "sim", "explicit", "check", "layout")
INSTRUCTIONS = re.compile(r"wgmma|setmaxnreg|cp_async|tma_|ldmatrix|stmatrix", re.IGNORECASE)
# Places where code (no comment, no docstring) names an instruction: they may only become fewer.
NAMED_AT_MOST = {
    "schedule": 11, "analysis": 3, "passes": 20, "sim": 78, "explicit": 65, "check": 5,
}  # fmt: skip


@pytest.mark.parametrize("folder", WITHOUT_CHIPS)
def test_no_chip_is_named(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{i}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if CHIPS.search(line)
    ]
    assert not found, "ask the target for what the chip can do:\n" + "\n".join(found)


def test_the_pattern_finds_chips() -> None:
    for text in ("sm_90a", "if sm_100:", "on Hopper", "an H200 does", '"blackwell"'):
        assert CHIPS.search(text), text
    for text in ("smem_90", "shopper", "0xH2000"):
        assert not CHIPS.search(text), text


def names_of_instructions(source: str) -> int:
    """Names, attributes and texts of code that contain an instruction's name; docstrings don't count."""
    tree = ast.parse(source)
    documents = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)
        and n.body
        and isinstance(n.body[0], ast.Expr)
    }
    count = 0
    for n in ast.walk(tree):
        text = ""
        if isinstance(n, ast.Name):
            text = n.id
        elif isinstance(n, ast.Attribute):
            text = n.attr
        elif isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in documents:
            text = n.value
        count += bool(INSTRUCTIONS.search(text))
    return count


@pytest.mark.parametrize("folder", NAMED_AT_MOST)
def test_code_names_ever_fewer_instructions(folder: str) -> None:
    """An instruction is named where it is declared, chosen and spelled."""
    count = sum(
        names_of_instructions(p.read_text(encoding="utf-8")) for p in (ROOT / folder).rglob("*.py")
    )
    most = NAMED_AT_MOST[folder]
    assert count <= most, f"{folder} names instructions {count} times, {most} before"


def test_docstrings_and_comments_may_name_instructions() -> None:
    text = '"""wgmma"""\ndef f():\n    "TMA: tma_load"\n    # wgmma\n    return 1\n'
    assert names_of_instructions(text) == 0
    assert names_of_instructions("x = mma.wgmma\ny = 'wgmma-m'\nwgmma(1)") == 3


def test_targets_are_found_by_name_and_by_device() -> None:
    assert all(named(name) is target for name, target in TARGETS.items())
    assert for_device((9, 0)) is SM_90A and for_device((7, 0)) is None
    assert DEFAULT.name in supported()
    with pytest.raises(CompileError, match="there is no target 'sm_1'") as caught:
        named("sm_1")
    assert caught.value.help is not None and DEFAULT.name in caught.value.help


def test_the_preferred_unit_is_the_one_for_the_operands() -> None:
    assert SM_90A.matrix_unit("bf16", "bf16", "f32") is WGMMA
    assert SM_90A.matrix_unit("u8", "i8", "i32") is WGMMA
    assert SM_90A.unit_of("mma.sync") is MMA_SYNC and SM_90A.unit_of("mfma") is None
    assert WGMMA.is_async and not MMA_SYNC.is_async
    assert WGMMA.accumulator_registers(256) == 128 and MMA_SYNC.accumulator_registers(8) == 4
    assert [WGMMA.k_step(bits) for bits in (32, 16, 8)] == [8, 16, 32]
    assert WGMMA.takes_columns(248) and not WGMMA.takes_columns(252)
    assert not WGMMA.takes_columns(264)


def test_a_part_of_a_chip_is_smaller_in_everything_that_ctas_share() -> None:
    half = SM_90A.part(2)
    assert half.registers.per_sm * 2 == SM_90A.registers.per_sm
    assert half.shared.per_sm * 2 == SM_90A.shared.per_sm
    assert half.shared_bytes == half.shared.per_sm - SM_90A.shared.reserved < SM_90A.shared_bytes
    assert half.grid.threads_per_sm * 2 == SM_90A.grid.threads_per_sm
    assert half.entry_registers(256) == 128 and SM_90A.entry_registers(256) == 248
    assert SM_90A.limited(100).entry_registers(256) == 96
