"""The deadline: loops are asked first, signals follow only when they do not end."""

from __future__ import annotations

import signal
import struct
from typing import TYPE_CHECKING

import pytest

from whyidle.observe import bounds
from whyidle.observe.bounds import EXTRA_STEPS, GRACE_NS, Deadline
from whyidle.store import live
from whyidle.store.appender import JournalAppender
from whyidle.units import NS_PER_S
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

PID = 4_000_000
END_NS = 100 * NS_PER_S


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that would have been sent to the target."""
    numbers: list[int] = []
    monkeypatch.setattr(bounds.os, "kill", lambda pid, number: numbers.append(number))
    return numbers


def _run_dir(folder: Path, *steps: int) -> Path:
    live.prepare_run_dir(folder)
    for pid, step_count in enumerate(steps, start=1):
        (folder / "booted" / str(pid)).touch()
        path = folder / "journals" / f"agent-{pid}-1.journal"
        JournalAppender(path, {"role": "agent", "pid": pid}).close()
        with path.open("r+b") as file:
            file.seek(wire.PROGRESS_OFFSET)
            file.write(struct.pack("<q", step_count))
    return folder


def _stop_at(folder: Path) -> int:
    return int(struct.unpack_from("<q", (folder / wire.CONTROL_FILE).read_bytes())[0])


def test_ranks_are_asked_to_stop_beyond_the_farthest(
    tmp_path: Path, sent: list[int]
) -> None:
    """At the deadline the step to stop at is that of the farthest rank plus a margin; no signal is sent."""
    folder = _run_dir(tmp_path, 40, 41)
    deadline = Deadline(folder, PID, 0, END_NS, lambda _: None)

    deadline.poll(0)
    deadline.poll(END_NS - 1)
    before = (_stop_at(folder), deadline.was_reached)
    deadline.poll(END_NS)

    assert before == (0, False)
    assert (_stop_at(folder), deadline.was_reached, sent) == (41 + EXTRA_STEPS, True, [])


def test_loop_that_goes_on_is_ended_with_growing_force(
    tmp_path: Path, sent: list[int]
) -> None:
    """After the grace, five mean steps included, come SIGINT, SIGTERM and SIGKILL, and it is said."""
    said: list[str] = []
    deadline = Deadline(_run_dir(tmp_path, 50), PID, 0, END_NS, said.append)
    deadline.poll(0)
    deadline.poll(END_NS)
    first_ns = END_NS + GRACE_NS + 5 * (END_NS // 50)

    deadline.poll(first_ns - 1)
    in_grace = list(sent)
    for extra in range(3):
        deadline.poll(first_ns + extra * GRACE_NS)

    assert in_grace == []
    assert sent == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    assert len(said) == 3
    assert deadline.ended_with is signal.SIGKILL


@pytest.mark.parametrize("has_folder", [True, False])
def test_without_an_agent_the_signal_comes_at_once(
    tmp_path: Path, sent: list[int], has_folder: bool
) -> None:
    """Where nobody could hear the request there is nothing to wait for."""
    deadline = Deadline(
        _run_dir(tmp_path) if has_folder else None, PID, 0, END_NS, lambda _: None
    )

    deadline.poll(END_NS)

    assert (sent, deadline.was_reached) == ([signal.SIGINT], True)


def test_no_deadline_does_nothing(tmp_path: Path, sent: list[int]) -> None:
    """Without a bound no time is late."""
    deadline = Deadline(_run_dir(tmp_path, 1), PID, 0, None, lambda _: None)

    deadline.poll(1 << 62)

    assert (sent, deadline.was_reached, _stop_at(tmp_path)) == ([], False, 0)


def test_time_begins_with_the_first_step(tmp_path: Path, sent: list[int]) -> None:
    """Imports and start-up are not counted: the bound is how long the loop runs."""
    folder = _run_dir(tmp_path, 1)
    deadline = Deadline(folder, PID, 0, END_NS, lambda _: None)

    deadline.poll(7 * NS_PER_S)
    deadline.poll(END_NS)
    early = deadline.was_reached
    deadline.poll(END_NS + 7 * NS_PER_S)

    assert (early, deadline.was_reached, sent) == (False, True, [])


def test_training_that_never_steps_is_ended_after_a_while(
    tmp_path: Path, sent: list[int]
) -> None:
    """A Python without a loop is waited for, then asked, then interrupted."""
    folder = _run_dir(tmp_path, 0)
    deadline = Deadline(folder, PID, 0, END_NS, lambda _: None)

    reached = []
    for now_ns in (END_NS, 2 * END_NS - 1, 2 * END_NS, 2 * END_NS + GRACE_NS):
        deadline.poll(now_ns)
        reached.append(deadline.was_reached)

    assert (reached, sent) == ([False, False, True, True], [signal.SIGINT])
