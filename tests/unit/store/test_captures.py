"""Captured functions in a run folder: found by the name that a person types, with what was counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from whyidle.errors import RunFolderError, UsageError
from whyidle.store.captures import (
    FunctionName,
    find_capture,
    load_captures,
    parse_function_name,
    write_captures,
)

if TYPE_CHECKING:
    from pathlib import Path


def add_slot(run_dir: Path, folder: str, calls: int, records: int, **more: Any) -> None:
    """Write what a process leaves."""
    slot = run_dir / "capture" / folder
    slot.mkdir(parents=True)
    summary = {
        "version": 1,
        "file": "/job/data/maps.py",
        "function": "draw",
        "module": "data.maps",
        "target": {"folder": "/job"},
        "calls": calls,
        "wall_ns": calls * 1000,
        "cpu_ns": calls * 900,
        "raised": 0,
        "refused": {},
    }
    (slot / "summary.json").write_text(json.dumps(summary | more))
    for number in range(records):
        (slot / f"{number:012d}.pickle").touch()


@pytest.mark.parametrize(
    "text",
    ["draw", "maps.py", "maps.py:", "maps:draw", "maps.py:draw()", "maps.py:a..b", ":x"],
)
def test_wrong_function_name_is_refused(text: str) -> None:
    """The message says what form is expected."""
    with pytest.raises(UsageError, match=r"file\.py:function") as caught:
        parse_function_name(text)

    assert caught.value.slug == "bad-function-name"


def test_function_is_found_by_the_end_of_its_path(tmp_path: Path) -> None:
    """All slots of it count, and what could not be kept is added up over them."""
    add_slot(tmp_path, "0-draw/0", 10, 3, refused={"too large": 1})
    add_slot(tmp_path, "0-draw/1", 20, 4, refused={"too large": 2}, raised=5)

    found = find_capture(tmp_path, parse_function_name("data/maps.py:draw"))

    assert (found.calls, len(found.records), found.slots) == (30, 7, 2)
    assert (found.refused, found.raised) == ({"too large": 3}, 5)
    assert found.mean_wall_ns == 1000
    assert found.name == FunctionName("/job/data/maps.py", "draw")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("data/other.py:draw", "it kept calls of /job/data/maps.py:draw"),
        ("aps.py:draw", "it kept calls of"),
        ("maps.py:paint", "it kept calls of"),
    ],
)
def test_function_that_was_not_captured_is_named(
    name: str, said: str, tmp_path: Path
) -> None:
    """The message says which functions the run holds."""
    add_slot(tmp_path, "0-draw/0", 10, 3)

    with pytest.raises(RunFolderError, match="no call") as caught:
        find_capture(tmp_path, parse_function_name(name))

    assert caught.value.slug == "nothing-captured"
    assert said in caught.value.message


def test_function_none_of_whose_calls_was_kept_says_why(tmp_path: Path) -> None:
    """The reasons stand in the message."""
    add_slot(tmp_path, "0-draw/0", 10, 0, refused={"arguments: a lambda": 10})

    with pytest.raises(RunFolderError, match=r"arguments: a lambda \(10\)"):
        find_capture(tmp_path, parse_function_name("maps.py:draw"))


def test_damaged_slot_is_left_out(tmp_path: Path) -> None:
    """A process that was killed before its first summary, or another version's, costs only its own calls."""
    add_slot(tmp_path, "0-draw/0", 10, 3)
    add_slot(tmp_path, "0-draw/1", 10, 3, version=99)
    (tmp_path / "capture" / "1-paint" / "0").mkdir(parents=True)

    (found,) = load_captures(tmp_path)

    assert (found.calls, found.slots) == (10, 1)


def test_names_reach_the_agent_in_full_where_the_file_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other may be anywhere on the training's path, and is found there by its end."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.py").touch()
    names = [FunctionName("here.py", "a"), FunctionName("pkg/there.py", "C.b")]

    assert write_captures(names) == f"{tmp_path}/here.py:a\npkg/there.py:C.b"
