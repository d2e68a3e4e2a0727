"""options.get: defaults, every variable, and refusals that name what is allowed."""

import dataclasses
from pathlib import Path

import pytest

from warploom import options
from warploom.errors import CompileError


def test_defaults() -> None:
    got = options.get({"XDG_CACHE_HOME": "/c", "HOME": "/h"})
    assert got == options.Options(None, True, False, None, Path("/c/warploom"), None)


def test_every_variable_is_read() -> None:
    env = {
        "WARPLOOM_DUMP": "all",
        "WARPLOOM_VERIFY": "0",
        "WARPLOOM_SIM": "1",
        "WARPLOOM_KEEP": "/k",
        "WARPLOOM_CACHE": "off",
        "WARPLOOM_TIMELINE": "/t.svg",
        "WARPLOOM_CHECK": "0",
        "WARPLOOM_TRACEBACK": "1",
        "WARPLOOM_CACHE_SIZE": "3m",
        "WARPLOOM_AS_TRITON": "1",
        "WARPLOOM_MAX_TRIPS": "7",
    }
    got = options.get(env)
    want = (
        "all",
        False,
        True,
        Path("/k"),
        None,
        Path("/t.svg"),
        options.Check.OFF,
        True,
        3 << 20,
        True,
        7,
    )
    assert dataclasses.astuple(got) == want
    assert len(env) == len(dataclasses.fields(options.Options))
    assert options.get(dict.fromkeys(env, "")) == options.get({})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("WARPLOOM_VERIFY", "yes", "expected 0 or 1"),
        ("WARPLOOM_CACHE_SIZE", "0", "a size such as 500M or 2G"),
        ("WARPLOOM_CACHE_SIZE", "2GB", "a size such as 500M or 2G"),
        ("WARPLOOM_SIM", "2", "expected 0 or 1"),
        ("WARPLOOM_MAX_TRIPS", "0", "expected a whole number from 1 on"),
        ("WARPLOOM_MAX_TRIPS", "1e6", "expected a whole number from 1 on"),
        ("WARPLOOM_CHECK", "2", "not a valid Check"),
        ("WARPLOOM_DUMPS", "all", "there is no option WARPLOOM_DUMPS"),
    ],
)
def test_refusals(name: str, value: str, says: str) -> None:
    with pytest.raises(CompileError, match=says) as e:
        options.get({name: value})
    assert e.value.code == "option"
