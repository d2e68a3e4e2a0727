"""options.get: defaults, every variable, and refusals that name what is allowed."""

import dataclasses
from pathlib import Path

import pytest

from warploom import options
from warploom.errors import CompileError


def test_defaults() -> None:
    got = options.get({"XDG_CACHE_HOME": "/c", "HOME": "/h"})
    assert got == options.Options(None, None, 1, False, None, Path("/c/warploom"), "warning", None)


def test_every_variable_is_read() -> None:
    env = {
        "WARPLOOM_DUMP": "all",
        "WARPLOOM_STOP_AFTER": "canonicalize",
        "WARPLOOM_VERIFY": "2",
        "WARPLOOM_SIM": "1",
        "WARPLOOM_KEEP": "/k",
        "WARPLOOM_CACHE": "off",
        "WARPLOOM_LOG": "DEBUG",
        "WARPLOOM_TIMELINE": "/t.svg",
        "WARPLOOM_CHECK": "0",
        "WARPLOOM_TRACEBACK": "1",
    }
    got = options.get(env)
    want = ("all", "canonicalize", 2, True, Path("/k"), None, "debug", Path("/t.svg"), False, True)
    assert dataclasses.astuple(got) == want
    assert len(env) == len(dataclasses.fields(options.Options))
    assert options.get(dict.fromkeys(env, "")) == options.get({})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("WARPLOOM_VERIFY", "yes", "expected one of 0, 1, 2"),
        ("WARPLOOM_SIM", "2", "expected one of 0, 1"),
        ("WARPLOOM_LOG", "loud", "debug, info, warning, error"),
        ("WARPLOOM_DUMPS", "all", "there is no option WARPLOOM_DUMPS"),
    ],
)
def test_refusals(name: str, value: str, says: str) -> None:
    with pytest.raises(CompileError, match=says) as e:
        options.get({name: value})
    assert e.value.code == "option"
