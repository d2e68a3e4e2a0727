"""Machine code that overwrites what a wgmma is still reading: found in listings, and in what ptxas makes."""

from __future__ import annotations

import pytest

from tests import compilers, sass
from tests.register_operands import (
    Overwritten,
    _overwritten,
    operands_overwritten,
    register_products,
)
from warploom.runtime.nvrtc import compile_cuda, compiler_version
from warploom.target import SM_90A

needs_nvdisasm = pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")

WIDTH = 120


def listing(*code: str) -> list[str]:
    """As `nvdisasm -c -plr` has it: `text | registers written`."""
    out = [" " * WIDTH + "// | " + "  # " + " ".join(map(str, range(40))) + " |"]
    starts = {r: out[0].index("# ") + 2 + sum(len(str(i)) + 1 for i in range(r)) for r in range(40)}
    for i, line in enumerate(code):
        text, _, written = line.partition(" | ")
        if text.endswith(":"):
            out.append(text)
            continue
        row = list(
            f"        /*{16 * i:04x}*/                   {text} ;".ljust(max(starts.values()) + 3)
        )
        for r in map(int, written.split()):
            row[starts[r]] = "^"
        out.append("".join(row))
    return out


def found(*code: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(o.instruction, o.registers) for o in _overwritten(listing(*code))]


PRODUCT = "HGMMA.64x8x16.F32.BF16 R8, R24, gdesc[UR4], R8, gsb0 | 8 9 10 11"
OTHER = PRODUCT.replace("R24", "R28")
OPEN = PRODUCT.replace(", gsb0", "")


def wait(pending: int) -> str:
    return f"WARPGROUP.DEPBAR.LE gsb0, {pending:#x}"


def test_writes_before_the_wait_are_found() -> None:
    assert found(PRODUCT, "MOV R25, R1 | 25", wait(0)) == [("MOV R25, R1", (25,))]
    assert found(PRODUCT, "LDS.128 R24, [R1] | 24 25 26 27", wait(0))[0][1] == (24, 25, 26, 27)
    assert found(PRODUCT, "@P0 MOV R27, R1 | 27", wait(0)) == [("MOV R27, R1", (27,))]
    assert found(PRODUCT, "MOV R28, R1 | 28", wait(0), "MOV R24, R1 | 24") == []
    assert (
        found("QGMMA.64x8x32.F32.E4M3.E4M3 R8, R24, gdesc[UR4], R8, gsb0", "MOV R24, R1 | 24") != []
    )


def test_a_wait_covers_the_groups_that_it_says() -> None:
    late = "MOV R24, R1 | 24"
    assert found(PRODUCT, OTHER, wait(1), late) == []
    assert found(PRODUCT, OTHER, wait(2), late) == [("MOV R24, R1", (24,))]
    assert found(PRODUCT, OTHER, wait(1), "MOV R28, R1 | 28") == [("MOV R28, R1", (28,))]
    assert found(OPEN, OTHER, wait(0), late) == []  # one group
    assert found(OPEN, wait(0), late) == [("MOV R24, R1", (24,))]  # in no group yet


def test_all_paths_count() -> None:
    """Over a loop's end, past a branch, and where threads meet again."""
    loop = (".L_x_1:", "MOV R24, R1 | 24", PRODUCT)
    assert found(*loop, wait(1), "@P0 BRA `(.L_x_1)", "EXIT") == [("MOV R24, R1", (24,))]
    assert found(*loop, wait(0), "@P0 BRA `(.L_x_1)", "EXIT") == []
    past = (PRODUCT, "@P0 BRA `(.L_x_2)", wait(0), ".L_x_2:", "MOV R24, R1 | 24")
    assert found(*past) == [("MOV R24, R1", (24,))]
    over = (PRODUCT, "BRA `(.L_x_2)", "MOV R24, R1 | 24", ".L_x_2:", wait(0))
    assert found(*over) == []
    room = ("BSSY B0, `(.L_x_3)", PRODUCT, "BSYNC B0", wait(0), ".L_x_3:", "MOV R24, R1 | 24")
    assert found(*room) == [("MOV R24, R1", (24,))]


def test_it_is_told_in_words() -> None:
    told = str(Overwritten("01e0", "MOV R25, R1", (25,)))
    assert told == "01e0: MOV R25, R1 writes R25, which a wgmma may still be reading"


@needs_nvdisasm
def test_the_witness_with_the_installed_compiler() -> None:
    source = compilers.witness()
    cubin = compile_cuda(source.cuda, name=source.name, target=SM_90A).cubin
    version = compilers.number(compiler_version().split()[1])
    assert register_products(cubin) == 4
    assert (operands_overwritten(cubin) == ()) == (version >= compilers.FIXED)


@needs_nvdisasm
@pytest.mark.slow
@pytest.mark.parametrize(
    "version", compilers.versions() or [pytest.param("", marks=pytest.mark.skip("no other NVRTC"))]
)
def test_every_compiler_keeps_the_operands_of_attention(version: str) -> None:
    """What warploom emits is right with each; the witness shows that the old ones have the fault."""
    made = compilers.compile_with(
        version, {"witness": compilers.witness(), **compilers.attention_sources()}
    )
    witness = made.pop("witness")
    assert (operands_overwritten(witness.cubin) == ()) == (
        compilers.number(version) >= compilers.FIXED
    )
    assert len(made) >= 20
    for name, kernel in made.items():
        assert kernel.problems == (), name
        assert register_products(kernel.cubin) >= 8, name
        assert operands_overwritten(kernel.cubin) == (), name


@pytest.mark.parametrize("most", [1, pytest.param(None, marks=pytest.mark.thorough)])
def test_the_emitted_source_uses_operands_behind_their_wait(most: int | None) -> None:
    """Each wait for a product of the probabilities is followed by their use, which old compilers need."""
    sources = compilers.attention_sources(most)
    for name, source in sources.items():
        lines = [x.strip() for x in source.cuda.splitlines()]
        uses = [i for i, x in enumerate(lines) if x.startswith("keep<")]
        issued = sum("_rn_x" in x and not x.startswith("DEV") for x in lines)
        assert len(uses) == issued >= 2, name
        for i in uses:
            assert any(x.startswith("wgmma_wait<0>") for x in lines[i - 3 : i]), name
