"""Results are compared part by part: what is equal passes, and the first difference is named with its place."""

from __future__ import annotations

import collections
import copy
import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whyidle_agent.equality import NotComparableError, Tolerance, differences

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

EXACTLY, NEARLY = Tolerance(0.0, 0.0), Tolerance(1e-5, 1e-8)
Point = collections.namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Sample:
    """A result of a data set."""

    image: Any
    label: int = 0


class Plain:
    """An object without equality."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def first(expected: Any, got: Any, tolerance: Tolerance = NEARLY) -> str | None:
    """The first difference; None for equal values."""
    return next(differences(expected, got, tolerance), None)


def values() -> list[Any]:
    """One of everything that a function may give."""
    nested: list[Any] = [1, float("nan")]
    nested.append(nested)
    return [
        None, True, 3, 2.5, complex(1, float("nan")), "text", b"bytes", float("inf"), nested,
        [1, (2, {"a": {3, 4}})], Point(1, 2.0), Sample(np.eye(3), 7), Plain([1, Plain(2)]),
        Path("a/b"), np.float32(0.1), np.int64(7), np.array([1.0, np.nan, np.inf]),
        np.array(["a", "b"]), np.array([1, None], dtype=object), np.zeros((0, 3)), np.array(5),
        np.array([(1, 2.0)], dtype=[("n", "i4"), ("x", "f8")]),
        np.array(["2026-01-31", "NaT"], dtype="datetime64[D]"), np.random.default_rng(1),
        random.Random(1), torch.tensor([1.0, float("nan")]), torch.ones(2, 3, dtype=torch.bfloat16),
        torch.tensor(3), torch.zeros(0), torch.eye(3).to_sparse(), torch.float32, torch.device("cpu"),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(values())))
def test_value_equals_its_copy(number: int) -> None:
    """Whatever it is, NaN included."""
    value = values()[number]

    assert first(value, copy.deepcopy(value), EXACTLY) is None


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        ([1, 2], (1, 2), "result is a tuple, expected a list"),
        (1, 1.0, "result is a float, expected an int"),
        (1, True, "result is a bool, expected an int"),
        (None, 1, "result is an int, expected None"),
        ([1, [2, 3]], [1, [2, 4]], "result[1][1] is 4, expected 3"),
        ([1], [1, 2], "result has 2 items, expected 1"),
        ({"a": 1}, {"b": 1}, "result['a'] is missing"),
        ({"a": 1}, {"a": 1, "b": 2}, "result['b'] is too many"),
        (Point(1, 2), Point(1, 3), "result.y is 3, expected 2"),
        (Sample([1]), Sample([2]), "result.image[0] is 2, expected 1"),
        (Plain(Plain(1)), Plain(Plain(2)), "result.value.value is 2, expected 1"),
        ("a", "b", "result is 'b', expected 'a'"),
        (1.0, 1.1, "result is 1.1, expected 1.0"),
        (float("inf"), 1e308, "result is 1e+308, expected inf"),
        (float("nan"), 0.0, "result is 0.0, expected nan"),
        (np.zeros(2), np.zeros(3), "result has shape (3,), expected (2,)"),
        (np.zeros(2), np.zeros(2, "f4"), "result has dtype float32, expected float64"),
        (
            np.zeros((2, 3)),
            np.array([[0, 0, 0], [0, 0.5, np.nan]]),
            "result[1, 1] is 0.5, expected 0.0 (2 of 6 elements differ, by 0.5 at most)",
        ),
        (np.array([1, 2], "u1"), np.array([2, 2], "u1"), "result[0] is 2, expected 1"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.long), "dtype torch.int64"),
        (torch.zeros(2), torch.ones(2), "result[0] is 1.0, expected 0.0"),
        (torch.zeros(2), np.zeros(2, "f4"), "result is a ndarray, expected a Tensor"),
        (np.array([1, "a"], object), np.array([1, "b"], object), "is 'b', expected 'a'"),
        (random.Random(1), random.Random(2), "result.getstate"),
        (np.random.default_rng(1), np.random.default_rng(2), "result.state"),
    ],
)  # fmt: skip
def test_difference_is_named(expected: Any, got: Any, said: str) -> None:
    """Kind, shape, dtype and value, with the place in the result."""
    difference = first(expected, got)

    assert difference is not None
    assert said in difference


def test_tolerance_is_of_the_expected_value() -> None:
    """Numbers with a fraction may be apart by atol + rtol * |expected|; whole numbers may not."""
    tolerance = Tolerance(0.1, 0.5)

    assert first([10.0], [11.4], tolerance) is None
    assert first([10.0], [11.6], tolerance) is not None
    assert first(np.array([10.0, 0.0]), np.array([8.6, 0.4]), tolerance) is None
    assert first(np.array([10.0]), np.array([8.4]), tolerance) is not None
    assert first(torch.tensor([10.0]), torch.tensor([11.4]), tolerance) is None
    assert first(np.array([100]), np.array([101]), tolerance) is not None


def test_what_has_no_equality_is_not_called_equal() -> None:
    """An object that is compared by identity alone is neither equal nor different."""
    with pytest.raises(NotComparableError, match=r"result\[0\] is a function"):
        first([lambda: 1], [lambda: 1])
