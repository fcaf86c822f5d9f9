"""The report's table of targets: everything that is aimed at, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.bench import targets
from scenarios.bench.cells import Cell
from scenarios.bench.gains import Gain, accuracy, promises_on_healthy, regrets
from scenarios.bench.stats import Estimate, median
from scenarios.bench.tables import NOTHING, as_part, as_rate, per_cent, table, verdict_on
from scenarios.bench.verdicts import flips, overheads, score, share_errors, unexplained


def targets_section(cells: Sequence[Cell], found: Sequence[Gain]) -> list[str]:
    """Hold everything against what was aimed at."""
    return [
        "## Targets",
        "",
        *table(
            ["what", "measured (95 % interval)", "target", ""],
            [*verdict_targets(cells), *forecast_targets(cells, found)],
        ),
    ]


def verdict_targets(cells: Sequence[Cell]) -> list[list[str]]:
    """Give the rows about verdicts."""
    scores = score(cells, "with")
    rest = unexplained(cells, targets.UNEXPLAINED_ALWAYS)
    shares = [it.error for it in share_errors(cells) if it.error is not None]
    costs = median(overheads(cells, "with"))
    turned = flips(cells)
    settings = {cell.setting for cell in cells if cell.verdicts()}
    middle = median(shares)
    return [
        at_least(
            "first cause right: activity, regime, place",
            scores.first["joint"],
            targets.FIRST,
        ),
        at_least("one of the first three right", scores.top["joint"], targets.TOP),
        at_least("place of the first cause right", scores.first["place"], targets.PLACE),
        [
            "`input` said of a healthy training",
            as_rate(scores.false_input),
            f"≤ {per_cent(targets.FALSE_INPUT)}",
            verdict_on(
                None
                if scores.false_input is None
                else scores.false_input.value <= targets.FALSE_INPUT
            ),
        ],
        at_most("unexplained idle time, median", rest.median, targets.UNEXPLAINED_MEDIAN),
        [
            "unexplained idle time, largest",
            per_cent(rest.largest, 1),
            f"≤ {per_cent(targets.UNEXPLAINED_ALWAYS)}",
            verdict_on(
                None if rest.largest is None else rest.largest <= targets.UNEXPLAINED_ALWAYS
            ),
        ],
        at_most(
            "blame share, distance from the measured one, median",
            middle,
            targets.SHARE_ERROR,
        ),
        [
            "scenarios whose verdict differs between settings",
            str(len(turned)) if len(settings) > 1 else NOTHING,
            "0",
            verdict_on(not turned if len(settings) > 1 else None),
        ],
        [
            "a step is longer under whyidle, median",
            as_part(costs, signed=True),
            f"≤ {per_cent(targets.OVERHEAD[0])}, upper end ≤ {per_cent(targets.OVERHEAD[1])}",
            verdict_on(
                None
                if costs is None
                else costs.value <= targets.OVERHEAD[0]
                and costs.high <= targets.OVERHEAD[1]
            ),
        ],
    ]


def forecast_targets(cells: Sequence[Cell], found: Sequence[Gain]) -> list[list[str]]:
    """Give the rows about forecasts."""
    rows = []
    for kind, words, (middle, tail) in (
        ("loader", "loader argument", targets.LOADER_ERROR),
        ("code", "cause removed", targets.CODE_ERROR),
    ):
        it = accuracy([gain for gain in found if gain.kind == kind], "speedup")
        rows += [
            beyond(
                f"forecast error, {words}, median",
                it.median,
                it.median_beyond_noise,
                middle,
            ),
            beyond(
                f"forecast error, {words}, 90th percentile",
                it.p90,
                it.p90_beyond_noise,
                tail,
            ),
        ]
    coverage = accuracy(found, "speedup").coverage
    low, high = targets.COVERAGE
    inside = None if coverage is None else low <= coverage.value <= high
    known = [it.regret for it in regrets(cells) if it.regret is not None]
    promised = promises_on_healthy(cells)
    asked = any(
        row.forecasts
        for cell in cells
        if not cell.scenario.causes
        for row in cell.verdicts()
    )
    return [
        *rows,
        [
            "forecast intervals that hold the measured gain",
            as_rate(coverage),
            f"{per_cent(low)} to {per_cent(high)}",
            verdict_on(inside),
        ],
        at_most(
            "first prescription instead of the best change, median",
            median(known),
            targets.REGRET,
        ),
        [
            "forecasts above 1.05 on healthy trainings",
            str(len(promised)) if asked else NOTHING,
            "0",
            verdict_on(not promised if asked else None),
        ],
    ]


def at_least(words: str, it: Estimate | None, target: float) -> list[str]:
    """Give the row of a proportion that should be large."""
    met = None if it is None else it.value >= target
    return [words, as_rate(it), f"≥ {per_cent(target)}", verdict_on(met)]


def at_most(words: str, it: Estimate | None, target: float) -> list[str]:
    """Give the row of a part that should be small."""
    met = None if it is None else it.value <= target
    return [words, as_part(it), f"≤ {per_cent(target)}", verdict_on(met)]


def beyond(
    words: str, it: Estimate | None, excess: float | None, target: float
) -> list[str]:
    """Give the row of an error that counts only beyond the repeat noise."""
    shown = (
        as_part(it) if it is None else f"{as_part(it)}; beyond noise {per_cent(excess, 1)}"
    )
    met = None if excess is None else excess <= target
    return [words, shown, f"≤ {per_cent(target)}", verdict_on(met)]
