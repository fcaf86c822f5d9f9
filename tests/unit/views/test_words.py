"""Plain words for every cause."""

from __future__ import annotations

import itertools

import pytest

from tests.verdicts import make_cause
from whyidle.model.findings import Activity, Limit, Regime
from whyidle.views import words


@pytest.mark.parametrize(
    ("table", "values"),
    [
        (words.LIMIT_WORDS, Limit),
        (words.ACTIVITY_WORDS, Activity),
        (words.REGIME_WORDS, Regime),
    ],
    ids=["limits", "activities", "regimes"],
)
def test_table_has_words_for_all(table: dict, values: type) -> None:
    """No value of a closed set is without words."""
    assert set(table) == set(values)


@pytest.mark.parametrize(
    ("activity", "regime"),
    [*itertools.product(Activity, Regime)],
    ids=lambda one: one.value,
)
def test_cause_is_explained_in_one_sentence(activity: Activity, regime: Regime) -> None:
    """Every pair gets a sentence that begins and ends as one, without the code words of regimes."""
    said = words.explain_cause(make_cause(activity, regime))

    assert said[0].isupper()
    assert said.endswith(".")
    assert said.count(". ") == 0
    assert not any(one.value in said.split() for one in Regime if "-" in one.value)


def test_neighbour_is_named_instead_of_the_regime() -> None:
    """Where another program takes the CPUs, that is the explanation."""
    cause = make_cause(Activity.CPU_QUEUE, Regime.CONTENDED, process="make")

    assert words.explain_cause(cause) == words.NEIGHBOUR_WORDS
