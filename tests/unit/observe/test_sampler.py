"""What is missing is said, and the observer keeps to its budget of time and space."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from whyidle.observe import sampler
from whyidle.observe.sampler import (
    COST_LIMIT_RATIO,
    GROWTH_BYTES,
    MAX_SLOWDOWN,
    Observer,
    probe_signals,
)
from whyidle.observe.threads import MAX_TARGETS, TargetNames
from whyidle.store import live
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def observer(tmp_path: Path) -> Iterator[Observer]:
    """An observer of this process that is not started."""
    live.prepare_run_dir(tmp_path)
    observer = Observer.for_run(tmp_path, os.getpid(), 20.0)
    yield observer
    observer._end()


def test_nothing_is_missing_for_a_process_of_ours() -> None:
    """What can be read here is not reported; a process that is gone is no reason either."""
    assert probe_signals(os.getpid()) == []
    assert probe_signals(4_100_000) == []


def test_closed_signal_is_reported_with_its_consequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that may not be read is named, with why and what follows."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)

    missing = probe_signals(os.getpid())

    assert [one.slug for one in missing] == ["no-schedstat", "no-syscall", "no-process-io"]
    assert "Permission denied; what threads are blocked on is unknown" in missing[1].reason


def test_target_names_are_bounded() -> None:
    """Beyond the limit only folders are named, then nothing: a journal does not grow with the data set."""
    names = TargetNames()
    first = [names.name(f"/data/{index}.png") for index in range(MAX_TARGETS)]

    assert first[-1] == f"/data/{MAX_TARGETS - 1}.png"
    assert names.name("/data/more.png") == "/data/"
    assert names.name("/data/0.png") == "/data/0.png"
    assert names.name("queue2") == ""


def test_costly_observer_looks_less_often(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit it slows down step by step to a bound; far below it recovers."""
    cpu_ns = [0]
    monkeypatch.setattr(time, "thread_time_ns", lambda: cpu_ns[0])
    now_ns = 10 * NS_PER_S
    observer._cost_mark = (now_ns, 0)
    seen = []

    for ratio in [COST_LIMIT_RATIO * 2] * 8 + [0.0] * 8:
        now_ns += 5 * NS_PER_S
        cpu_ns[0] += int(ratio * 5 * NS_PER_S)
        observer._settle_cost(now_ns)
        seen.append(observer._slowdown)

    assert seen[0] == 1.5
    assert max(seen) == MAX_SLOWDOWN
    assert seen[-1] == 1.0


def test_long_journal_grows_ever_slower(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the journal has grown by so much, the time between looks doubles."""
    factors = []
    for size in (0, GROWTH_BYTES, 3 * GROWTH_BYTES, 100 * GROWTH_BYTES):
        monkeypatch.setattr(type(observer._appender), "size_bytes", size)
        factors.append(observer._growth_factor())

    assert factors == [1, 2, 8, 1024]


def test_failing_look_ends_the_observer_only(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A surprise in a look is reported; the journal is closed in order."""

    def fail(_: int) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr(observer, "_tick", fail)
    observer.start()
    observer.stop(5)

    (missed,) = [one for one in observer.not_observed if one.slug == "observer-stopped"]
    assert "surprise" in missed.reason


def test_hung_look_does_not_hold_up_the_end(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that does not return, say at a dead mount, is left behind and reported."""
    entered, released = sampler.threading.Event(), sampler.threading.Event()

    def hang(_: int) -> None:
        entered.set()
        released.wait()

    monkeypatch.setattr(observer, "_tick", hang)
    observer.start()
    entered.wait()
    observer.stop(0.01)
    released.set()
    observer._thread.join()

    assert "observer-hung" in [one.slug for one in observer.not_observed]
