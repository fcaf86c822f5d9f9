"""Captured calls are replayed in processes of their own: what is equal, what is not, and what cannot be told."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.conftest import SOURCE, Target
from whyidle.errors import WhyidleError
from whyidle.store.captures import (
    ENV_CAPTURE,
    FunctionName,
    find_capture,
    parse_function_name,
)
from whyidle.trial.proving import Replayed, Request, replay

if TYPE_CHECKING:
    from collections.abc import Callable

CAPTURING = f"""
import os, sys
sys.path.insert(0, {str(SOURCE)!r})
from whyidle_agent import capture
sys.path.pop(0)
"""
STARTING = """
capture.start(os.environ["WHYIDLE_RUN_DIR"]); capture.look()
"""


@dataclass
class Job:
    """A script whose function was captured."""

    folder: Path
    run_dir: Path
    old: str

    def replay(self, new: str, *, processes: int = 1, atol: float = 0.0) -> Replayed:
        """Check a replacement, and measure as shortly as can be."""
        name = parse_function_name(new)
        return replay(
            Request(
                capture=find_capture(self.run_dir, parse_function_name(self.old)),
                new=FunctionName(str(self.folder / name.file), name.function),
                processes=processes,
                rtol=0.0,
                atol=atol,
                seconds=1e-6,
            ),
            say=lambda _: None,
        )


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """Makes a job of a script: first what it defines, then what calls it."""

    def make(definitions: str, calls: str, old: str = "target.py:old", **files: str) -> Job:
        target = Target(sys.executable, tmp_path)
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        parts = [CAPTURING, textwrap.dedent(definitions), STARTING, textwrap.dedent(calls)]
        target.output("".join(parts), **{ENV_CAPTURE: old})
        return Job(tmp_path, target.run_dir, old)

    return make


def test_equal_function_is_found_equal(job: Callable[..., Job]) -> None:
    """In as many processes as asked for; the script, which has no main guard, is not run again."""
    made = job(
        """
        import random
        NOISE = [random.random() for _ in range(3)]
        FACTOR = 2
        class Pair:
            def __init__(self, a, b): self.a, self.b = a, b
        def old(values, scale=1): return Pair([v * FACTOR for v in values], {"n": len(values) * scale})
        def new(values, scale=1): return Pair([v + v for v in values], {"n": scale * len(values)})
        """,
        """
        for number in range(40): old([number, 0.5], scale=number)
        open("trained.txt", "a").write("once")
        """,
    )

    found = made.replay("target.py:new", processes=2)

    assert (found.capture.checked, found.different.count) == (40, 0)
    assert (found.not_reproduced.count, found.not_comparable.count) == (0, 0)
    assert found.timing is not None
    assert found.timing.processes == 2
    assert (made.folder / "trained.txt").read_text() == "once"


def test_difference_is_named_with_its_place(job: Callable[..., Job]) -> None:
    """The first calls that differ are shown with where they do; nothing is measured."""
    made = job(
        "def old(n): return {'a': [n, n + 0.5]}",
        "for number in range(9): old(number)",
        fast="def new(n): return {'a': [n, n + (0.5 if n != 7 else 0.625)]}",
    )

    found = made.replay("fast.py:new")

    assert found.different.count == 1
    assert found.different.examples == ("call 7: result['a'][1] is 7.625, expected 7.5",)
    assert found.timing is None
    assert made.replay("fast.py:new", atol=0.2).different.count == 0


def test_random_function_gets_its_numbers_again(job: Callable[..., Job]) -> None:
    """Global generators stand as before the call; drawing otherwise is a difference even if the result is the same."""
    made = job(
        """
        import random
        def old(n): return n + random.random()
        def same(n): return random.random() + n
        def more(n):
            result = n + random.random()
            random.random()
            return result
        """,
        "for number in range(5): old(number)",
    )

    same, more = made.replay("target.py:same"), made.replay("target.py:more")

    assert (same.capture.drew_random, same.not_reproduced.count) == (5, 0)
    assert same.different.count == 0
    assert more.different.count == 5
    assert "random generator of python" in more.different.examples[0]


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("count = [0]\ndef old(n):\n    count[0] += 1\n    return count[0]", "each time"),
        ("where = __name__\ndef old(n): return (n, where)", "more than its arguments"),
        ("import os\ndef old(n): return os.environ['WHYIDLE_RUN_DIR']", "raises KeyError"),
    ],
    ids=["state", "surroundings", "failure"],
)
def test_function_with_a_state_is_not_reproduced(
    definition: str, said: str, job: Callable[..., Job]
) -> None:
    """OLD is checked against its own recorded results first."""
    made = job(definition, "for number in range(5): old(number)")

    found = made.replay("target.py:old")

    assert found.not_reproduced.count >= 4
    assert said in found.not_reproduced.examples[0]


def test_change_of_arguments_is_compared(job: Callable[..., Job]) -> None:
    """What a function leaves in its arguments is part of what it does."""
    made = job(
        """
        def old(values): values.append(len(values)); return values[0]
        def pure(values): return values[0]
        """,
        "for number in range(5): old([number])",
    )

    found = made.replay("target.py:pure")

    assert found.capture.changed_arguments == 5
    assert found.different.count == 5
    assert (
        "argument 0 after the call has 1 items, expected 2" in found.different.examples[0]
    )


def test_method_of_the_script_is_replaced_by_a_function(job: Callable[..., Job]) -> None:
    """The object comes as first argument, of a class that only the script has."""
    made = job(
        """
        class Maps:
            size = 3
            def draw(self, n): return [n] * self.size
        """,
        "for number in range(5): Maps().draw(number)",
        old="target.py:Maps.draw",
        fast="def draw(self, n): return [n for _ in range(self.size)]",
    )

    found = made.replay("fast.py:draw")

    assert (found.capture.checked, found.different.count) == (5, 0)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("def other(n): return n", "NEW cannot be loaded: LookupError"),
        ("import no_such_module\ndef new(n): return n", "no_such_module"),
        ("import os\ndef new(n): os._exit(9)", "ended or hung, with status 9"),
        ("def new(n): exit('stop')", "SystemExit"),
    ],
    ids=["name", "import", "crash", "exit"],
)
def test_replacement_that_cannot_run_is_an_error(
    new: str, said: str, job: Callable[..., Job]
) -> None:
    """One message says what happened; no process is left."""
    made = job("def old(n): return n", "for number in range(3): old(number)", fast=new)

    with pytest.raises(WhyidleError, match="captured inputs") as caught:
        made.replay("fast.py:new")

    assert caught.value.slug == "replay-failed"
    assert said in caught.value.message


def test_capture_of_another_interpreter_is_replayed_there(
    interpreter: str, tmp_path: Path
) -> None:
    """Capturing and replaying both work under every supported version, without numpy and torch."""
    target = Target(interpreter, tmp_path)
    code = CAPTURING + "def old(n): return [n / 3, 'x']\n" + STARTING
    target.output(f"{code}for n in range(9): old(n)\n", **{ENV_CAPTURE: "target.py:old"})

    found = Job(tmp_path, target.run_dir, "target.py:old").replay("target.py:old")

    assert (found.capture.checked, found.different.count) == (9, 0)


def test_replacement_lies_anywhere(job: Callable[..., Job], tmp_path: Path) -> None:
    """In a folder that the training never saw, it imports what lies beside it, and the training's modules."""
    made = job(
        "import shared\ndef old(n): return n * shared.FACTOR",
        "for number in range(3): old(number)",
        shared="FACTOR = 3",
    )
    elsewhere = tmp_path / "drafts" / "first try"
    elsewhere.mkdir(parents=True)
    (elsewhere / "fast.py").write_text(
        "import beside, shared\ndef new(n): return beside.times(n, shared.FACTOR)"
    )
    (elsewhere / "beside.py").write_text("def times(a, b): return a * b")

    assert made.replay("drafts/first try/fast.py:new").different.count == 0
