"""What is suggested fits the loader, and nothing is suggested to one that keeps up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.verdicts import make_cause, make_verdict
from whyidle.model.findings import Activity, Forecast, Limit, Place, Prescription, Regime
from whyidle.model.remedies import make_settings
from whyidle.trial.candidates import (
    MAX_CANDIDATES,
    Situation,
    combinations,
    make_candidate,
    prescribed,
    suggest,
    with_suggestions,
)
from whyidle.trial.forecasts import to_change

USUAL = Situation(
    workers=2,
    prefetch=2,
    is_persistent=False,
    is_pinned=False,
    is_in_order=True,
    is_iterable=False,
    passes=1,
    allowed_cpus=4,
    machine_cpus=4,
    has_cuda=False,
)
STARVED = make_verdict(make_cause(Activity.SLEEP, Regime.HEAD_OF_LINE))


def _settings(situation: Situation, verdict: object = STARVED) -> list[dict[str, object]]:
    return [dict(one.settings) for one in suggest(situation, verdict)]  # type: ignore[arg-type]


def test_order_comes_first_where_order_holds_the_loop_up() -> None:
    """The regime decides what is most promising."""
    later = make_verdict(make_cause(Activity.SLEEP, Regime.FEW_WORKERS))

    assert _settings(USUAL)[0] == {"in_order": False}
    assert _settings(USUAL, later)[0] == {"num_workers": 4}


@pytest.mark.parametrize(
    ("change", "unwanted"),
    [
        ({"workers": 0}, {"prefetch_factor", "in_order", "persistent_workers"}),
        ({"is_iterable": True}, {"num_workers", "in_order"}),
        ({"workers": 1}, {"in_order"}),
        ({"is_in_order": False}, {"in_order"}),
        ({}, {"persistent_workers", "pin_memory", "cpus", "worker_threads"}),
    ],
)
def test_only_what_fits_is_suggested(change: dict[str, object], unwanted: set[str]) -> None:
    """No setting that the loader cannot take, or that is so already, or that nothing speaks for."""
    names = {name for one in _settings(replace(USUAL, **change)) for name in one}  # type: ignore[arg-type]

    assert names
    assert not names & unwanted


def test_suggestions_follow_what_was_seen() -> None:
    """A mask, several passes, a CUDA device and queueing workers each have their remedy."""
    queueing = make_verdict(make_cause(Activity.CPU_QUEUE, Regime.CONTENDED, 0.5))
    rich = replace(USUAL, allowed_cpus=2, passes=3, has_cuda=True)

    names = {name for one in _settings(rich, queueing) for name in one}

    assert {"cpus", "worker_threads"} <= names
    assert len(_settings(rich, queueing)) == MAX_CANDIDATES
    assert {"persistent_workers": True} in _settings(replace(USUAL, passes=3))
    assert {"pin_memory": True} in _settings(replace(USUAL, has_cuda=True))


def test_nothing_is_suggested_to_a_loader_that_keeps_up() -> None:
    """When the device is the limit, no loader setting could help."""
    assert suggest(USUAL, replace(STARVED, limit=Limit.DEVICE)) == ()


def test_prescriptions_come_with_their_forecasts() -> None:
    """Only automatic ones; nothing else is suggested for a setting that is prescribed."""
    forecast = Forecast(speedup=1.9, low=1.7, high=2.1, basis="event simulation")
    automatic = Prescription(
        remedy="out-of-order",
        where=Place(),
        title="",
        how="",
        automatic=True,
        forecast=forecast,
        settings=make_settings({"in_order": False}),
    )
    by_hand = replace(automatic, automatic=False, settings=())
    verdict = replace(STARVED, prescriptions=(automatic, by_hand))

    found = with_suggestions(prescribed(verdict), suggest(USUAL, verdict))

    assert [one.forecast for one in found if dict(one.settings) == {"in_order": False}] == [
        forecast
    ]
    assert len(prescribed(verdict)) == 1


def test_combinations_set_nothing_twice() -> None:
    """Four workers go with another order, not with eight workers."""
    singles = [
        make_candidate(make_settings(one), 2)
        for one in ({"num_workers": 4}, {"num_workers": 8}, {"in_order": False})
    ]

    joined = combinations(singles, 2)

    assert [dict(one.settings) for one in joined] == [
        {"num_workers": 4, "in_order": False},
        {"num_workers": 8, "in_order": False},
    ]
    assert joined[0].remedies == ("raise-workers", "out-of-order")


def test_settings_become_the_simulated_change() -> None:
    """Every setting that is simulated arrives there; a first worker brings torch's own prefetch."""
    change = to_change(
        make_settings(
            {
                "num_workers": 3,
                "persistent_workers": True,
                "pin_memory": False,
                "in_order": False,
                "worker_threads": 1,
                "cpus": "all",
            }
        ),
        workers=0,
        cpu_count=8,
    )

    assert change is not None
    assert (change.workers, change.prefetch, change.persistent) == (3, 2, True)
    assert (change.pinned, change.in_order) == (False, False)
    assert (change.threads_limited, change.cpus) == (True, 8)
    assert to_change(make_settings({"sharing_strategy": "file_system"}), 2, 8) is None


@pytest.mark.parametrize(
    "values", [{"no_such": 1}, {"num_workers": "4"}, {"in_order": 0}, {"num_workers": True}]
)
def test_settings_are_checked(values: dict[str, object]) -> None:
    """An unknown name or a value of the wrong type is an error of the caller."""
    with pytest.raises(ValueError, match="expected"):
        make_settings(values)  # type: ignore[arg-type]
