"""The simulated accelerator tells the truth about its own time."""

from __future__ import annotations

import pytest

from whyidle import testing
from whyidle.testing import SimulatedAccelerator


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.mono_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        """The time now."""
        return self.mono_ns

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.mono_ns += max(1, round(seconds * 1e9))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """A clock under the accelerator, moved by hand."""
    fake = FakeTime()
    monkeypatch.setattr(testing, "time", fake)
    return fake


def test_launch_when_device_is_free(clock: FakeTime) -> None:
    """A launch returns at once and keeps the device busy for its length."""
    accelerator = SimulatedAccelerator()

    accelerator.launch(0.010)

    assert clock.mono_ns == 1_000_000_000
    assert (accelerator.busy_ns(), accelerator.pending_ns()) == (0, 10_000_000)
    clock.mono_ns += 4_000_000
    assert (accelerator.busy_ns(), accelerator.pending_ns()) == (4_000_000, 6_000_000)


def test_busy_when_device_was_idle_between(clock: FakeTime) -> None:
    """Idle time between two pieces of work is not busy time."""
    accelerator = SimulatedAccelerator()

    accelerator.launch(0.010)
    clock.mono_ns += 30_000_000
    accelerator.launch(0.005)
    accelerator.launch(0.005)
    clock.mono_ns += 7_000_000

    assert (accelerator.busy_ns(), accelerator.pending_ns()) == (17_000_000, 3_000_000)


def test_synchronize_when_work_is_queued(clock: FakeTime) -> None:
    """Synchronize waits exactly until the queue is empty."""
    accelerator = SimulatedAccelerator()
    accelerator.launch(0.010)
    accelerator.launch(0.020)

    accelerator.synchronize()

    assert clock.mono_ns == 1_030_000_000
    assert (accelerator.busy_ns(), accelerator.pending_ns()) == (30_000_000, 0)


def test_launch_when_queue_is_full(clock: FakeTime) -> None:
    """With the queue full a launch waits for the oldest piece."""
    accelerator = SimulatedAccelerator(max_queued=2)
    for _ in range(2):
        accelerator.launch(0.010)

    accelerator.launch(0.010)

    assert clock.mono_ns == 1_010_000_000
    assert accelerator.pending_ns() == 20_000_000


def test_observers_when_work_is_launched(
    clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Observers learn of each piece when it was launched, begins and ends."""
    seen = []
    monkeypatch.setattr(
        testing, "_launch_observers", [lambda *event: seen.append(event[1:])]
    )
    accelerator = SimulatedAccelerator()

    accelerator.launch(0.010)
    clock.mono_ns += 1_000_000
    accelerator.launch(0.001)

    start = 1_000_000_000
    assert seen == [
        (start, start, start + 10_000_000),
        (start + 1_000_000, start + 10_000_000, start + 11_000_000),
    ]


@pytest.mark.parametrize("seconds", [-0.001, float("nan"), float("inf")])
def test_launch_when_length_is_impossible(seconds: float) -> None:
    """Work of no possible length is refused."""
    with pytest.raises((ValueError, OverflowError)):
        SimulatedAccelerator().launch(seconds)


def test_accelerator_when_queue_has_no_room() -> None:
    """A queue must have room for one piece."""
    with pytest.raises(ValueError, match="max_queued is 0"):
        SimulatedAccelerator(max_queued=0)
