"""A verdict to JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.verdicts import make_cause, make_run, make_verdict, missing
from whyidle.model.findings import (
    Activity,
    Aside,
    Forecast,
    Pair,
    Place,
    Prescription,
    Regime,
)
from whyidle.model.verdict_json import parse_verdict

GAIN = Forecast(speedup=2.0, low=1.5, high=2.5, basis="event simulation")
ASIDE = Aside(
    remedy="pin-memory", where=Place(), title="t", how="", reason="no", forecast=GAIN
)
LATER = ("would_not_help", "may_help", "ceiling", "pair")
"""Fields that the first verdicts of this schema did not have."""
FULL = make_verdict(
    make_cause(
        Activity.STORAGE, Regime.HEAD_OF_LINE, 0.8, "a fact", file="a.py", line=3, rank=1
    ),
    run=make_run(device_name="V100", exit_status=None, workers=None),
    not_observed=(missing("no-x", "it is not there"),),
    prescriptions=(
        Prescription(
            remedy="trim-tail",
            where=Place(file="a.py"),
            title="t",
            how="h",
            automatic=False,
            forecast=GAIN,
            settings=(("num_workers", 4),),
        ),
    ),
    would_not_help=(ASIDE,),
    may_help=(replace(ASIDE, forecast=None),),
    ceiling=GAIN,
    pair=Pair(first="t", second="u", forecast=GAIN, note="n"),
)


@pytest.mark.parametrize(
    "verdict",
    [
        FULL,
        make_verdict(idle_ratio=None, step_median_ns=None, step_p90_ns=None, workers=()),
    ],
    ids=["full", "sparse"],
)
def test_verdict_survives_json(verdict: Any) -> None:
    """What was written is read, to the last field."""
    assert parse_verdict(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_added_fields_are_left_out() -> None:
    """A later version of the same schema only adds: its verdicts can be read."""
    data = FULL.to_json()
    for part in (data, data["run"], data["causes"][0], data["causes"][0]["where"]):
        part["added"] = 1

    assert parse_verdict(data) == FULL


@pytest.mark.parametrize("name", sorted(FULL.to_json()))
@pytest.mark.parametrize("value", [object(), "text", {}], ids=["object", "text", "dict"])
def test_damaged_verdict_is_refused_or_read(name: str, value: object) -> None:
    """Whatever stands in a field, the only error is ValueError."""
    data = FULL.to_json() | {name: value}

    try:
        parsed = parse_verdict(data)
    except ValueError:
        return
    assert name in (
        "sentence",
        "causes",
        "prescriptions",
        "not_observed",
        "workers",
        "idle_series",
        *LATER,
    )
    assert parsed.limit is FULL.limit


def test_early_verdict_of_the_schema_is_read() -> None:
    """One without the fields that came later has nothing in them."""
    data = {name: value for name, value in FULL.to_json().items() if name not in LATER}

    parsed = parse_verdict(data)

    assert (parsed.would_not_help, parsed.ceiling, parsed.pair) == ((), None, None)


@pytest.mark.parametrize("name", sorted({*FULL.to_json()} - {*LATER}))
def test_incomplete_verdict_is_refused(name: str) -> None:
    """A verdict without one of its fields is none."""
    data = FULL.to_json()
    del data[name]

    with pytest.raises(ValueError, match="verdict"):
        parse_verdict(data)


def test_number_that_is_none_is_refused() -> None:
    """A status has to be a whole number or null."""
    data = FULL.to_json()
    data["run"]["exit_status"] = "0"

    with pytest.raises(ValueError, match="whole number"):
        parse_verdict(data)


@pytest.mark.parametrize("data", [None, [], 3, {"schema_version": 2}])
def test_foreign_data_is_refused(data: object) -> None:
    """Something else than a verdict of this schema is refused with the version named."""
    with pytest.raises(ValueError, match="schema version 1"):
        parse_verdict(data)
