"""The screen of a try: what to keep, forecast beside measurement, and every doubt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.trial.reports import make_report, make_result
from whyidle.model.trial import LossState, Outcome, TrialReport, TrialState
from whyidle.views.trial import headline, render_trials

FOLDER = Path("whyidle-runs/trial-20260131-093000-1")


def _text(report: TrialReport, width: int = 80) -> str:
    return render_trials(report, width=width, color=False, folder=FOLDER)


def test_proven_change_is_shown_with_what_to_write() -> None:
    """Forecast, measurement, hit, losses, place and arguments."""
    text = _text(make_report(make_result(num_workers=4, in_order=False)))

    assert "Proven: 2.00 times as fast with num_workers=4, in_order=False" in text
    assert "forecast 1.90 [1.70, 2.10]  measured 2.00 [1.80, 2.20]  hit; 3 pairs" in text
    assert "losses of 50 steps the same, bit by bit" in text
    assert (
        "/job/train.py:71\n          DataLoader(..., num_workers=4, in_order=False)" in text
    )
    assert "unchanged runs in a row differ by 1.2 %" in text
    assert f"whyidle fix {FOLDER}  shows it as a patch" in " ".join(text.split("\n"))


def test_miss_is_shown_as_such() -> None:
    """A forecast that does not agree with the measurement is called a miss."""
    result = make_result(proven=False, num_workers=4)

    assert "  miss; " in _text(make_report(result))


def test_change_of_the_losses_is_marked_and_the_next_best_offered() -> None:
    """The fastest may change the training: then the best that does not stands beside it."""
    fastest = make_result(losses=LossState.CHANGED, in_order=False)
    calm = make_result(prefetch_factor=4)

    text = _text(make_report(fastest, calm))

    assert "It changes the losses." in " ".join(text.replace("▌", "").split())
    assert "or        with losses as they are:" in text
    assert "DataLoader(..., prefetch_factor=4)" in text


def test_change_without_forecast_says_why() -> None:
    """A forecast may be withheld."""
    text = _text(make_report(make_result(forecast=None, num_workers=4)))

    assert "no forecast: the replay misses by 9 %" in " ".join(text.split())


def test_settings_outside_of_the_loader_are_told_in_words() -> None:
    """A CPU mask is no argument of a DataLoader."""
    text = _text(make_report(make_result(cpus="all")))

    assert "without the CPU mask" in " ".join(text.split())
    assert "DataLoader(" not in text


def test_disturbances_are_never_silent() -> None:
    """Pairs that did not count are counted."""
    result = replace(make_result(num_workers=4), disturbed_pairs=2)

    assert "2 pairs disturbed by others" in " ".join(_text(make_report(result)).split())


def test_machine_that_is_never_even_is_said() -> None:
    """Runs were made, and none of them counts."""
    result = replace(
        make_result(num_workers=4),
        measured=None,
        disturbed_pairs=4,
        outcome=Outcome.UNPROVEN,
    )

    assert "others disturbed every pair" in headline(make_report(result))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (TrialState.INTERRUPTED, "interrupted"),
        (TrialState.OUT_OF_TIME, "the time was over"),
        (TrialState.FAILED, "the unchanged training failed"),
    ],
)
def test_early_end_is_said(state: TrialState, said: str) -> None:
    """What is shown is what was known by then."""
    assert said in " ".join(
        _text(make_report(make_result(num_workers=4), state=state)).split()
    )


def test_nothing_to_try_says_why() -> None:
    """Without any trial the reason is the headline."""
    report = make_report(state=TrialState.NOTHING_TO_TRY, note="the device is the limit")

    assert headline(report) == "Nothing proven: the device is the limit."
    assert "the device is the limit" in _text(report)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    """Whatever has to be said."""
    long = make_result(
        num_workers=16, prefetch_factor=8, persistent_workers=True, pin_memory=True,
        in_order=False, sharing_strategy="file_system", worker_threads=1, cpus="all",
    )  # fmt: skip
    failed = replace(long, outcome=Outcome.FAILED, reason="exit status 1: " + "x" * 300)
    report = make_report(long, failed, replace(long, measured=None, step_ns=None))

    assert max(map(len, _text(report, width).splitlines())) <= width
