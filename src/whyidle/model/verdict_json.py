"""A verdict out of its JSON form. Fields that are not known are left out: later versions only add."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from whyidle.model.findings import (
    VERDICT_SCHEMA_VERSION,
    Activity,
    Aside,
    Cause,
    Evidence,
    Forecast,
    Limit,
    NotObserved,
    Pair,
    Place,
    Prescription,
    Regime,
    RunSummary,
    Verdict,
    WorkerSplit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Record = TypeVar(
    "Record", Place, Evidence, Forecast, NotObserved, WorkerSplit
)  # records whose JSON form is field by field


def parse_verdict(data: object) -> Verdict:
    """Give the verdict that `Verdict.to_json` wrote.

    Raises:
        ValueError: the data is no verdict, or one of another schema version.
    """
    if not isinstance(data, dict) or data.get("schema_version") != VERDICT_SCHEMA_VERSION:
        raise ValueError(f"expected a verdict of schema version {VERDICT_SCHEMA_VERSION}")
    try:
        return _parse(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a damaged verdict: {error!r}") from error


def _parse(data: Mapping[str, Any]) -> Verdict:
    return Verdict(
        run=_parse_run(data["run"]),
        limit=Limit(data["limit"]),
        sentence=str(data["sentence"]),
        step_median_ns=_number_or_none(data["step_ns"]["median"]),
        step_p90_ns=_number_or_none(data["step_ns"]["p90"]),
        idle_ratio=None if data["idle_ratio"] is None else float(data["idle_ratio"]),
        unexplained_ratio=float(data["unexplained_ratio"]),
        causes=tuple(map(_parse_cause, data["causes"])),
        prescriptions=tuple(map(_parse_prescription, data["prescriptions"])),
        not_observed=tuple(_take(NotObserved, one) for one in data["not_observed"]),
        workers=tuple(_take(WorkerSplit, one) for one in data["workers"]),
        idle_series=tuple(map(float, data["idle_series"])),
        would_not_help=tuple(map(_parse_aside, data.get("would_not_help", ()))),
        may_help=tuple(map(_parse_aside, data.get("may_help", ()))),
        ceiling=_parse_forecast(data.get("ceiling")),
        pair=_parse_pair(data.get("pair")),
    )


def _parse_run(data: Mapping[str, Any]) -> RunSummary:
    return RunSummary(
        command=tuple(map(str, data["command"])),
        steps=int(data["steps"]),
        warmup_steps=int(data["warmup_steps"]),
        ranks=int(data["ranks"]),
        duration_ns=int(data["duration_ns"]),
        python=data["python"],
        torch=data["torch"],
        device_kind=str(data["device"]["kind"]),
        device_name=data["device"]["name"],
        exit_status=_number_or_none(data["exit_status"]),
        ended_by=data.get("ended_by"),
        workers=_number_or_none(data["workers"]),
    )


def _parse_cause(data: Mapping[str, Any]) -> Cause:
    return Cause(
        activity=Activity(data["activity"]),
        regime=Regime(data["regime"]),
        share=float(data["share"]),
        idle_ns=int(data["idle_ns"]),
        where=_take(Place, data["where"]),
        evidence=tuple(_take(Evidence, one) for one in data["evidence"]),
        path_share=data.get("path_share"),
    )


def _parse_prescription(data: Mapping[str, Any]) -> Prescription:
    return Prescription(
        remedy=str(data["remedy"]),
        where=_take(Place, data["where"]),
        title=str(data["title"]),
        how=str(data["how"]),
        automatic=bool(data["automatic"]),
        forecast=_take(Forecast, data["forecast"]),
        settings=tuple(data.get("settings", {}).items()),
    )


def _parse_aside(data: Mapping[str, Any]) -> Aside:
    return Aside(
        remedy=str(data["remedy"]),
        where=_take(Place, data["where"]),
        title=str(data["title"]),
        how=str(data["how"]),
        reason=str(data["reason"]),
        forecast=_parse_forecast(data["forecast"]),
    )


def _parse_forecast(data: Mapping[str, Any] | None) -> Forecast | None:
    return None if data is None else _take(Forecast, data)


def _parse_pair(data: Mapping[str, Any] | None) -> Pair | None:
    if data is None:
        return None
    return Pair(
        first=str(data["first"]),
        second=str(data["second"]),
        forecast=_take(Forecast, data["forecast"]),
        note=str(data["note"]),
    )


def _take(record: type[Record], data: Mapping[str, Any]) -> Record:
    return record(
        **{one.name: data[one.name] for one in fields(record) if one.name in data}
    )


def _number_or_none(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    raise ValueError(f"expected a whole number or null, got {value!r}")
