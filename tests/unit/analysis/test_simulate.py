"""The simulated loader against closed forms, against the recurrence of `SimulatedLoader`, and against conservation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.timelines import MS, SimulatedLoader
from whyidle.analysis.simulate import simulate
from whyidle.analysis.work import Host, Kind, PassStart, Settings, Work

COUNT, FIRST = 400, 50
"""Batches, and the first one behind the filling of the queue."""


def make_work(
    making: float = 10 * MS,
    own: float = 1 * MS,
    *,
    kind: Kind = Kind.CPU,
    count: int = COUNT,
    **changes: Any,
) -> Work:
    """Equal batches, in ns, whose making is of one kind; everything else costs nothing."""
    nothing, free = [0.0] * count, [()] * count
    plain = Work(
        phases=[((kind, float(making)),)] * count,
        width=[1.0] * count,
        handoff_ns=nothing,
        handoff_held_ns=nothing,
        receive=free,
        receive_fresh=free,
        receive_held_ns=nothing,
        pin_ns=nothing,
        deliver=free,
        step=[((Kind.WAIT, float(own)),)] * count,
    )
    return replace(plain, **changes)


def mean_step_ms(work: Work, host: Host | None = None, **arguments) -> float:
    """Mean step once the queue has filled."""
    return simulate(work, Settings(**arguments), host or Host()).mean_step_ns(FIRST) / MS


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (2, 2), (3, 4), (8, 2)])
def test_repeats_the_recurrence_of_the_loader(workers: int, prefetch: int) -> None:
    """Without contention every answer comes when `SimulatedLoader` says, whatever the variance."""
    random = np.random.default_rng(workers)
    phases = random.exponential(workers * MS, (COUNT, 3))
    step_ns = random.exponential(3 * MS, COUNT)
    truth = SimulatedLoader(phases, step_ns, workers, prefetch).times()["got"]
    work = make_work(
        phases=[tuple((Kind.CPU, float(one)) for one in row) for row in phases],
        step=[((Kind.WAIT, float(one)),) for one in step_ns],
    )

    found = simulate(work, Settings(workers=workers, prefetch=prefetch), Host()).got_ns

    assert found == pytest.approx(truth, abs=1)


@pytest.mark.parametrize(
    ("arguments", "host", "step_ms", "expected_ms"),
    [
        ({"workers": 0}, Host(), 1, 11),
        ({"workers": 2}, Host(), 1, 5),
        ({"workers": 2, "prefetch": 16}, Host(), 1, 5),
        ({"workers": 8}, Host(), 3, 3),
        ({"workers": 8}, Host(cpus=2), 1, 5),
        ({"workers": 4}, Host(cpus=4, quota_cpus=0.5), 1, 20),
        ({"workers": 2}, Host(cpus=2, rivals=2.0), 1, 10),
    ],
    ids=["no workers", "saturated", "saturated, deep queue", "step", "cores", "quota", "rivals"],
)  # fmt: skip
def test_limits_follow_closed_forms(arguments, host, step_ms, expected_ms) -> None:
    """10 ms of computing a batch: work over workers, the step, work over cores, over a quota, over a fair share."""
    found = mean_step_ms(make_work(own=step_ms * MS), host, **arguments)

    assert found == pytest.approx(expected_ms, rel=0.02)


@pytest.mark.parametrize("kind", [Kind.LOCKED_CPU, Kind.LOCKED_WAIT])
def test_a_shared_lock_lets_one_worker_on_at_a_time(kind: Kind) -> None:
    """Four workers, one lock held for all of 10 ms: 10 ms a step."""
    assert mean_step_ms(make_work(kind=kind), workers=4) == pytest.approx(10, rel=0.01)


def test_storage_serves_as_many_as_it_can() -> None:
    """Eight workers that read for 10 ms, three at a time."""
    work = make_work(kind=Kind.STORAGE)

    assert mean_step_ms(work, Host(storage_slots=3), workers=8) == pytest.approx(10 / 3, rel=0.01)  # fmt: skip
    assert mean_step_ms(work, workers=8) == pytest.approx(10 / 8, rel=0.01)


def test_receiving_is_serial_and_a_pin_thread_takes_it_off_the_loop() -> None:
    """4 ms to receive, 3 ms of step: one after the other in the loop, side by side with a pin thread."""
    receive = [((Kind.CPU, 4.0 * MS),)] * COUNT
    work = make_work(own=3 * MS, receive=receive, receive_fresh=receive)

    assert mean_step_ms(work, workers=8) == pytest.approx(7, rel=0.01)
    assert mean_step_ms(work, workers=8, pinned=True) == pytest.approx(4, rel=0.01)


def test_order_costs_something_only_where_batches_differ() -> None:
    """One batch in ten is slow: handing over what is there first beats waiting for it in turn."""
    slow = [((Kind.WAIT, 100.0 * MS if at % 10 == 3 else 5.0 * MS),) for at in range(COUNT)]
    uneven, even = make_work(own=5 * MS, phases=slow), make_work(own=5 * MS)

    in_turn = mean_step_ms(uneven, workers=4)
    assert mean_step_ms(uneven, workers=4, in_order=False) < 0.8 * in_turn
    assert mean_step_ms(even, workers=4, in_order=False) == pytest.approx(5, rel=0.01)
    assert mean_step_ms(even, workers=4) == pytest.approx(5, rel=0.01)


def test_a_deeper_queue_helps_only_where_batches_differ() -> None:
    """The same slow batches, hidden behind a queue that holds longer than they take."""
    slow = [((Kind.WAIT, 60.0 * MS if at % 20 == 3 else 5.0 * MS),) for at in range(COUNT)]
    uneven = make_work(own=5 * MS, phases=slow)

    assert mean_step_ms(uneven, workers=4, prefetch=8) < 0.95 * mean_step_ms(uneven, workers=4, prefetch=1)  # fmt: skip


def test_a_pass_begins_with_an_empty_queue() -> None:
    """Between two passes: the gap, the workers' start, and the first batch's making."""
    start = PassStart(gap_ns=7.0 * MS, ready_ns=20.0 * MS)
    work = make_work(making=10 * MS, own=5 * MS, starts={200: start})

    found = simulate(work, Settings(workers=4), Host())

    pause_ns = found.got_ns[200] - found.got_ns[199]
    assert pause_ns == pytest.approx((5 + 7 + 20 + 10) * MS)


def test_a_worker_without_data_is_given_no_more() -> None:
    """Of three workers of an iterable data set one has all the data: the others' tasks come back empty."""
    found = simulate(make_work(shares=(COUNT, 0, 0)), Settings(workers=3), Host())

    assert len(found.got_ns) == COUNT
    assert found.mean_step_ns(FIRST) / MS == pytest.approx(10, rel=0.01)


def test_the_device_runs_beside_the_loop_unless_it_is_waited_for() -> None:
    """6 ms on the device, 4 ms in the loop: the longer of both, or their sum."""
    launch, own = (Kind.LAUNCH, 6.0 * MS), (Kind.WAIT, 4.0 * MS)
    ahead = make_work(making=1 * MS, step=[(launch, own)] * COUNT)
    behind = replace(ahead, step=[(launch, (Kind.SYNC, 0.0), own)] * COUNT)

    assert mean_step_ms(ahead, workers=4) == pytest.approx(6, rel=0.01)
    assert mean_step_ms(behind, workers=4) == pytest.approx(10, rel=0.01)


def test_a_receipt_waits_for_a_computing_sender_no_longer_than_it_computes() -> None:
    """One worker that computes all the time holds the receipt up; with nothing else to make it does not."""
    held = make_work(making=10 * MS, own=1 * MS, receive_held_ns=[4.0 * MS] * COUNT)
    idle = replace(held, phases=[((Kind.CPU, 1.0),)] * COUNT, step=[((Kind.WAIT, 9.0 * MS),)] * COUNT)  # fmt: skip

    got = simulate(held, Settings(workers=1), Host()).got_ns
    assert got[5] - got[4] == pytest.approx(10 * MS, rel=0.01)
    assert got[0] == pytest.approx(14 * MS)
    assert mean_step_ms(idle, workers=1) == pytest.approx(9, rel=0.01)


def test_a_long_queue_is_emptied_by_steps_that_take_no_time() -> None:
    """A thousand batches in store behind one slow one, and a loop that does nothing with them."""
    phases = [((Kind.WAIT, 1e9 if at == 0 else 1.0),) for at in range(1000)]
    work = make_work(own=0, count=1000, phases=phases, step=[()] * 1000)

    assert simulate(work, Settings(workers=8, prefetch=125), Host()).end_ns == pytest.approx(1e9, rel=1e-3)  # fmt: skip


@st.composite
def _loaders(draw):
    count = draw(st.integers(5, 40))
    amounts = st.floats(0, 20 * MS)
    rows = draw(
        st.lists(st.tuples(amounts, amounts, amounts), min_size=count, max_size=count)
    )
    work = make_work(
        count=count,
        phases=[((Kind.CPU, cpu), (Kind.STORAGE, wait)) for cpu, wait, _ in rows],
        step=[
            ((Kind.BUSY, own / 2), (Kind.LAUNCH, own), (Kind.SYNC, 0.0)) for *_, own in rows
        ],
    )
    arguments = Settings(
        workers=draw(st.integers(0, 5)), prefetch=draw(st.integers(1, 3)), in_order=draw(st.booleans())
    )  # fmt: skip
    host = Host(
        cpus=draw(st.floats(0.5, 8)), rivals=draw(st.floats(0, 3)),
        quota_cpus=draw(st.none() | st.floats(0.2, 4)), storage_slots=draw(st.none() | st.integers(1, 4)),
    )  # fmt: skip
    return work, arguments, host, rows


@settings(max_examples=60, deadline=None)
@given(_loaders())
def test_work_is_conserved_and_no_loader_beats_its_bounds(loader) -> None:
    """All CPU and device work is done, every batch handed over once, and never faster than a bound allows."""
    work, arguments, host, rows = loader

    found = simulate(work, arguments, host)

    cpu = sum(cpu + own / 2 for cpu, _, own in rows)
    device = sum(own for *_, own in rows)
    assert len(found.got_ns) == len(rows)
    assert np.all(found.got_ns >= found.ask_ns - 1)
    assert found.device_busy_ns == pytest.approx(device)
    if arguments.workers:
        assert found.cpu_ns == pytest.approx(cpu, rel=1e-6, abs=10)
    slack = 1e-6 * found.end_ns + 10
    assert found.end_ns >= sum(1.5 * own for *_, own in rows) - slack
    if host.quota_cpus is None and arguments.workers:
        assert found.end_ns >= sum(cpu for cpu, _, _ in rows) / host.cpus - slack


@settings(max_examples=40, deadline=None)
@given(_loaders())
def test_more_cores_never_cost_more_than_one_batch(loader) -> None:
    """Sharing fairly may once favour the wrong batch; beyond that more CPUs are no slower."""
    work, arguments, host, rows = loader

    few = simulate(work, arguments, host).end_ns
    many = simulate(work, arguments, replace(host, cpus=2 * host.cpus)).end_ns

    assert many <= few + max(sum(row) for row in rows) * (1 + host.rivals) + 10
