"""A verdict is right only for the right reason."""

from __future__ import annotations

from typing import Any

from scenarios.grading import grade
from scenarios.truth import load_scenario

PYTHON_LOOP = load_scenario("python_loop")
HALF = load_scenario("half_files_half_cpu")
HEALTHY = load_scenario("healthy_light")
PLANTED = PYTHON_LOOP.causes[0].place


def make_cause(
    activity: str = "compute",
    regime: str = "throughput",
    share: float = 0.9,
    **where: Any,
) -> dict[str, Any]:
    """Give a cause as a verdict's JSON has it; by default the one planted in python_loop."""
    place = {
        "file": str(PYTHON_LOOP.script),
        "function": "draw_points",
        "line": PLANTED.first_line,
    }
    return {"activity": activity, "regime": regime, "share": share, "where": place | where}


def make_verdict(
    *causes: dict[str, Any], limit: str = "input", idle_ratio: float = 0.6
) -> Any:
    """Give a verdict's JSON, as far as a grade looks at it."""
    return {"limit": limit, "idle_ratio": idle_ratio, "causes": list(causes)}


def test_grade_of_the_planted_cause() -> None:
    """The planted cause, named first with its line, is right in every part."""
    graded = grade(make_verdict(make_cause()), PYTHON_LOOP, {})

    assert graded.ok
    assert (graded.regime, graded.place, graded.line) == (True, True, True)


def test_grade_with_another_function() -> None:
    """The right activity in the wrong function is not right."""
    graded = grade(make_verdict(make_cause(function="__getitem__")), PYTHON_LOOP, {})

    assert graded.activity
    assert not graded.ok


def test_grade_with_another_activity() -> None:
    """The right function with the wrong activity is not right."""
    assert not grade(make_verdict(make_cause("storage")), PYTHON_LOOP, {}).ok


def test_grade_with_another_limit() -> None:
    """The right cause under the wrong limit is not right."""
    assert not grade(make_verdict(make_cause(), limit="host"), PYTHON_LOOP, {}).ok


def test_grade_with_the_planted_cause_second() -> None:
    """What is planted has to be first."""
    first = make_cause("lock", "lock-bound", 0.6)

    assert not grade(make_verdict(first, make_cause(share=0.4)), PYTHON_LOOP, {}).ok


def test_grade_with_an_allowed_answer_in_another_regime() -> None:
    """An allowed activity is right, and its regime is judged by its own list."""
    graded = grade(make_verdict(make_cause("cpu-queue", "head-of-line")), PYTHON_LOOP, {})

    assert graded.ok
    assert graded.regime is False


def test_grade_without_causes() -> None:
    """A verdict without a cause does not name the planted one."""
    assert not grade(make_verdict(), PYTHON_LOOP, {}).ok


def half(share: float, activity: str, function: str) -> dict[str, Any]:
    """Give one of the two causes of half_files_half_cpu."""
    return make_cause(
        activity,
        "few-workers",
        share,
        file=str(HALF.script),
        function=function,
        mount="/m (fuse)",
    )


def test_grade_of_two_causes_of_about_the_same_size() -> None:
    """Either of two planted causes may be first when both have their share."""
    storage, compute = (
        half(0.45, "storage", "read_record"),
        half(0.5, "compute", "parse_record"),
    )

    assert grade(make_verdict(compute, storage), HALF, {"fuse": "/m"}).ok
    assert grade(make_verdict(storage, compute), HALF, {"fuse": "/m"}).mount


def test_grade_with_one_of_two_causes_missed() -> None:
    """A planted cause whose share is too small was missed."""
    storage, compute = (
        half(0.05, "storage", "read_record"),
        half(0.9, "compute", "parse_record"),
    )

    assert not grade(make_verdict(compute, storage), HALF, {"fuse": "/m"}).ok


def test_grade_of_a_healthy_control() -> None:
    """A control is right with the device as its limit and only small causes, as part of the step."""
    small = make_verdict(make_cause(), limit="device", idle_ratio=0.05)
    large = make_verdict(make_cause(), limit="device", idle_ratio=0.07)

    assert grade(small, HEALTHY, {}).ok
    assert not grade(large, HEALTHY, {}).ok
