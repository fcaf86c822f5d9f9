"""From records to prescriptions: what is listed, in which order, and what is said of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.recorded import SCRIPT, record_run
from tests.timelines import MS, SimulatedLoader
from whyidle.analysis.prescribe import describe_interaction
from whyidle.analysis.rules.case import Source
from whyidle.analysis.verdict import judge
from whyidle.model.findings import Forecast, Limit
from whyidle.store.rundir import load_tables

if TYPE_CHECKING:
    from pathlib import Path

    from whyidle.model.findings import Prescription, Verdict

LOOP = "\n" * 31 + "def offset_map(points):\n    return [x * x for x in points]\n"


def _judge(
    folder: Path, work: np.ndarray, step_ms: float, workers: int = 2, **options
) -> Verdict:
    step = np.full(len(work), step_ms * MS)
    loader = SimulatedLoader(work[:, None] * MS, step, workers, 2)
    tables = load_tables(record_run(folder / "run", loader, **options))
    return judge(tables, lambda file: Source(LOOP if file == SCRIPT else None))


def _find(verdict: Verdict, remedy: str) -> Prescription:
    return next(one for one in verdict.prescriptions if one.remedy == remedy)


@pytest.fixture(scope="module")
def saturated(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """80 ms of computing on two workers for a step of 10 ms, on a machine of eight CPUs."""
    return _judge(tmp_path_factory.mktemp("saturated"), np.full(120, 80.0), 10)


def test_prescriptions_are_sorted_by_gain_and_all_gain(saturated: Verdict) -> None:
    """None is listed whose interval includes no gain, and none gains more than free batches."""
    gains = [one.forecast for one in saturated.prescriptions]

    assert gains
    assert [one.speedup for one in gains] == sorted(
        (one.speedup for one in gains), reverse=True
    )
    assert all(1.0 < one.low <= one.speedup <= one.high for one in gains)
    assert saturated.ceiling is not None
    assert max(one.speedup for one in gains) <= saturated.ceiling.speedup


def test_forecasts_are_those_of_the_recurrence(saturated: Verdict) -> None:
    """Two workers take 40 ms a step; a tenth of the work, or eight workers, leave the loop's own 10 ms."""
    assert _find(saturated, "vectorise-loop").forecast.speedup == pytest.approx(
        4.0, rel=0.03
    )
    assert _find(saturated, "raise-workers").forecast.speedup == pytest.approx(
        4.0, rel=0.03
    )
    assert _find(saturated, "raise-workers").settings == (("num_workers", 8),)


def test_deeper_queue_of_a_saturated_loader_is_named_as_vain(saturated: Verdict) -> None:
    """With its figure, and why."""
    vain = {one.remedy: one for one in saturated.would_not_help}

    assert vain["raise-prefetch"].forecast is not None
    assert vain["raise-prefetch"].forecast.speedup == pytest.approx(1.0, abs=0.01)
    assert "never get ahead" in vain["raise-prefetch"].reason
    assert vain.keys().isdisjoint({one.remedy for one in saturated.prescriptions})


def test_best_two_are_forecast_together(saturated: Verdict) -> None:
    """Either leaves the loop's own step: with one made, the other gains nothing more, and that is said."""
    pair = saturated.pair

    assert pair is not None
    assert pair.forecast.speedup == pytest.approx(4.0, rel=0.03)
    assert pair.note == "with the first one made, the other gains nothing more"


def test_slow_sample_now_and_then_is_trimmed_or_overtaken(tmp_path: Path) -> None:
    """Most batches fit the step: what helps is not to wait for the slow one."""
    work = np.full(160, 15.0)
    work[::20] = 200.0

    verdict = _judge(tmp_path, work, 10)

    assert {"trim-tail", "out-of-order"} <= {one.remedy for one in verdict.prescriptions}
    assert _find(verdict, "out-of-order").automatic


@pytest.mark.parametrize("work_ms", [2.0, 15.0])
def test_fed_device_is_told_its_ceiling_and_nothing_else(
    tmp_path: Path, work_ms: float
) -> None:
    """No forecast above 1.05 where nothing is wrong."""
    verdict = _judge(tmp_path, np.full(100, work_ms), 20)

    (nothing,) = verdict.prescriptions
    assert verdict.limit is Limit.DEVICE
    assert (nothing.remedy, nothing.automatic) == ("none", False)
    assert nothing.forecast.speedup == 1.0
    assert verdict.ceiling is not None
    assert verdict.ceiling.speedup <= 1.05
    assert "would gain" in nothing.how
    assert (verdict.would_not_help, verdict.pair) == ((), None)


def test_run_too_short_for_a_forecast_still_names_what_fits(tmp_path: Path) -> None:
    """With the reason why nobody can say what it gains; nothing is prescribed."""
    verdict = _judge(tmp_path, np.full(20, 80.0), 10)

    assert verdict.limit is Limit.INPUT
    assert verdict.prescriptions == ()
    assert verdict.ceiling is None
    (aside,) = [one for one in verdict.may_help if one.remedy == "vectorise-loop"]
    assert aside.forecast is None
    assert "a forecast needs" in aside.reason


@pytest.mark.parametrize(
    ("speedups", "word"),
    [
        ((1.5, 1.4, 2.1), "do not get in each other's way"),
        ((1.5, 1.4, 1.8), "less than their product"),
        ((1.5, 1.2, 2.2), "more than one after the other"),
        ((1.1, 1.05, 1.6), "balanced: one alone gains little"),
        ((2.0, 1.5, 2.0), "gains nothing more"),
    ],
    ids=["independent", "overlapping", "releasing", "balanced", "covered"],
)
def test_two_changes_are_said_to_act_on_each_other(
    speedups: tuple[float, float, float], word: str
) -> None:
    """First, second, both."""
    first, second, both = (
        Forecast(speedup=one, low=one, high=one, basis="") for one in speedups
    )

    assert word in describe_interaction(first, second, both)
