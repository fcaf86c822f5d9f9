"""What a training gains from one faster function: all below it counts; what was measured widens the forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.timelines import make_timeline
from tests.unit.analysis.test_forecast import SCRIPT, _loader, _step_ns, _with_stacks
from tests.unit.views.test_proof import PROOF
from whyidle.analysis.loader_model import Withheld
from whyidle.analysis.replacement import MIN_SAMPLES, forecast_replacement
from whyidle.model.findings import Forecast
from whyidle.model.timeline import Frame, Timeline

TENFOLD = replace(PROOF.timing, speedup=10.0, low=10.0, high=10.0)


def record() -> Timeline:
    """Workers that spend 24 ms a batch in decode and 16 ms in what heat_map calls."""
    rank = _with_stacks(_loader("saturated"))
    decode, heat = rank.stacks
    inner = (*heat, Frame(SCRIPT, "inner", 77))
    return make_timeline(
        replace(rank, stacks=(decode, inner)), allowed_count=64, cpu_count=64
    )


def test_replaced_function_gains_what_it_really_gains() -> None:
    """Its callees go with it: the samples lie in a function that it calls."""
    loader = _loader("saturated")
    faster = loader.phases * np.array([1.0, 0.1])
    expected = _step_ns(loader) / _step_ns(replace(loader, phases=faster))

    found = forecast_replacement(record(), {SCRIPT}, "heat_map", TENFOLD)

    assert isinstance(found, Forecast)
    assert found.speedup == pytest.approx(expected, rel=0.05)


def test_interval_of_the_measurement_widens_the_forecast() -> None:
    """A speedup between 2 and 50 gains less surely than one of 10."""
    unsure = replace(TENFOLD, low=2.0, high=50.0)

    sure = forecast_replacement(record(), {SCRIPT}, "heat_map", TENFOLD)
    found = forecast_replacement(record(), {SCRIPT}, "heat_map", unsure)

    assert isinstance(sure, Forecast)
    assert isinstance(found, Forecast)
    assert found.speedup == sure.speedup
    assert found.low < sure.low
    assert found.high > sure.high


@pytest.mark.parametrize(
    ("files", "function"), [({SCRIPT}, "absent"), (set(), "heat_map")], ids=["name", "file"]
)
def test_function_that_was_not_sampled_has_no_forecast(
    files: set[str], function: str
) -> None:
    """Its share of the training is unknown, and the reason names the number that is needed."""
    found = forecast_replacement(record(), files, function, TENFOLD)

    assert isinstance(found, Withheld)
    assert found.slug == "few-samples"
    assert f"at least {MIN_SAMPLES}" in found.reason


def test_run_without_steps_has_no_forecast() -> None:
    """There is nothing to forecast."""
    found = forecast_replacement(make_timeline(), {SCRIPT}, "heat_map", TENFOLD)

    assert isinstance(found, Withheld)
    assert found.slug == "no-steps"
