"""Stack samples become the few places a person would name."""

from __future__ import annotations

from whyidle.analysis.places import WeightedStack, below_fetch, find_hot_places
from whyidle.model.timeline import Frame

SCRIPT = "/home/me/train.py"
TORCH = "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py"
NUMPY = "/venv/lib/python3.11/site-packages/numpy/core/fromnumeric.py"


def _stack(
    weight: float, *frames: tuple[str, int], transform: str | None = None
) -> WeightedStack:
    """A stack in the person's own script, root first."""
    return WeightedStack(
        tuple(Frame(SCRIPT, name, line) for name, line in frames), weight, transform
    )


def test_places_of_one_slow_function_are_that_function_with_its_hottest_line() -> None:
    """Different lines of one called function are one place; the line with the most time names it."""
    stacks = [
        _stack(50, ("__getitem__", 10), ("offset_map", 33)),
        _stack(20, ("__getitem__", 10), ("offset_map", 31)),
        _stack(30, ("__getitem__", 11), ("blur", 50)),
    ]

    places = find_hot_places(stacks)

    assert [(hot.place.function, hot.place.line, hot.weight_ns) for hot in places] == [
        ("offset_map", 33, 70),
        ("blur", 50, 30),
    ]


def test_places_see_through_wrappers_but_stop_at_a_function_of_many_helpers() -> None:
    """A wrapper is not a place, and neither is each of six augmentations."""
    helpers = [
        _stack(
            10,
            ("__getitem__", 10),
            ("load", 20),
            ("augment", 40 + number),
            (f"helper{number}", 100),
        )
        for number in range(6)
    ]
    loop = [_stack(40, ("__getitem__", 11), ("make_maps", 60), ("fill", 70))]

    places = find_hot_places([*helpers, *loop])

    assert [(hot.place.function, hot.weight_ns) for hot in places] == [
        ("augment", 60),
        ("fill", 40),
    ]


def test_library_time_is_charged_to_the_calling_line() -> None:
    """Nobody edits numpy: the line that called it is the place."""
    frames = (Frame(SCRIPT, "__getitem__", 12), Frame(NUMPY, "sort", 900))

    places = find_hot_places([WeightedStack(frames, 5.0)])

    assert (places[0].place.file, places[0].place.line) == (SCRIPT, 12)


def test_distant_statements_of_the_dataset_stay_apart() -> None:
    """A read and a loop in the same __getitem__ are two places, a loop body is one."""
    stacks = [
        _stack(40, ("__getitem__", 10)),
        _stack(30, ("__getitem__", 30)),
        _stack(30, ("__getitem__", 32)),
    ]

    places = find_hot_places(stacks)

    assert sorted((hot.place.line, hot.weight_ns) for hot in places) == [(10, 40), (30, 60)]


def test_places_add_up_to_the_samples() -> None:
    """No sample is lost or counted twice, also with many small places."""
    stacks = [
        _stack(1, ("__getitem__", 10), (f"f{number}", number)) for number in range(40)
    ]
    stacks.append(_stack(60, ("__getitem__", 90), ("slow", 200)))

    places = find_hot_places(stacks)

    assert sum(hot.weight_ns for hot in places) == 100


def test_transforms_are_told_apart_where_only_library_code_runs() -> None:
    """All transforms share one line of the data set; their names part them."""
    stacks = [
        _stack(70, ("__getitem__", 10), transform="RandomRotation"),
        _stack(30, ("__getitem__", 10), transform="Resize"),
    ]

    places = find_hot_places(stacks)

    assert [(hot.place.transform, hot.place.line) for hot in places] == [
        ("RandomRotation", 10),
        ("Resize", 10),
    ]


def test_below_fetch_cuts_the_script_that_a_forked_worker_inherited() -> None:
    """With fork the whole script is on the worker's stack; only what lies below the fetch made the batch."""
    frames = (
        Frame(SCRIPT, "main", 80),
        Frame(TORCH, "fetch", 54),
        Frame(SCRIPT, "__getitem__", 12),
    )

    assert below_fetch(frames) == (Frame(SCRIPT, "__getitem__", 12),)


def test_samples_without_own_frames_fall_back_to_the_outermost_library_frame() -> None:
    """A data set that lives in a package still has a place."""
    places = find_hot_places([WeightedStack((Frame(NUMPY, "load", 5),), 1.0)])

    assert places[0].place.function == "load"
