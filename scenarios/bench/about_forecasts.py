"""The report on forecasts: errors by kind and predictor, order, first prescriptions, what was withheld."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.bench import targets
from scenarios.bench.cells import Cell
from scenarios.bench.gains import (
    PREDICTORS,
    Accuracy,
    Gain,
    accuracy,
    prescribed_gains,
    promises_on_healthy,
    rank_agreement,
    regrets,
)
from scenarios.bench.stats import median
from scenarios.bench.tables import (
    SHOWN,
    as_number,
    as_part,
    as_rate,
    bullets,
    per_cent,
    prose,
    table,
)

CHANGED = 0.05
"""A measured change of the speed by this much counts as one: above what equal runs differ by on a quiet machine."""


def forecast_section(cells: Sequence[Cell], found: Sequence[Gain]) -> list[str]:
    """Show errors of forecasts, by kind and predictor."""
    if not found:
        reasons = sorted(
            {
                row.forecast_missing
                for cell in cells
                for row in cell.verdicts()
                if row.forecast_missing
            }
        )
        return [
            "## Forecasts",
            "",
            "No forecast was measured.",
            "",
            *bullets(reasons[:SHOWN], ""),
        ]
    rows = []
    kinds = kinds_of(found) | {"as prescribed": prescribed_gains(cells)}
    for words, them in kinds.items():
        for predictor, name in PREDICTORS.items():
            it = accuracy(them, predictor)
            if it.median is not None:
                rows.append([words, name, *accuracy_cells(it)])
    agreement = [
        [name, as_number(rank_agreement(found, it))] for it, name in PREDICTORS.items()
    ]
    worst = sorted(found, key=lambda it: -it.excess("speedup"))[:SHOWN]
    listed = [
        [
            it.cell,
            f"`{it.arm}`",
            f"{it.forecast['speedup']:.2f} ({it.low:.2f}–{it.high:.2f})",
            f"{it.measured:.2f}",
            per_cent(it.noise, 1),
        ]
        for it in worst
        if it.excess("speedup") > 0
    ]
    return [
        "## Forecasts",
        "",
        prose(
            f"{len(found)} forecasts, each from one recorded run alone, beside what the change really gained.",
            "The error is that of the step time after the change; *beyond noise*: less what two equal runs differ by.",
            "Bias above 0: really better than forecast. *As prescribed*: the verdict's own prescriptions, where an arm",
            "makes the change; a rule may say that a cause becomes smaller, while the cure removes it.",
        ),
        "",
        *table(
            [
                "change",
                "predictor",
                "median",
                "90th percentile",
                "median beyond noise",
                "p90 beyond noise",
                "bias",
                "intervals that hold",
            ],
            rows,
        ),
        *table(["order of the changes, Kendall's τ, median", ""], agreement),
        *regret_lines(cells),
        *withheld_lines(cells),
        *(
            [
                "Largest errors beyond noise:",
                "",
                *table(
                    ["scenario/setting", "change", "forecast", "measured", "noise"], listed
                ),
            ]
            if listed
            else []
        ),
        "Forecasts above 1.05 on healthy trainings:",
        "",
        *bullets(
            [f"{name}: {gain:.2f}" for name, gain in promises_on_healthy(cells)], "None."
        ),
    ]


def kinds_of(found: Sequence[Gain]) -> dict[str, list[Gain]]:
    """Sort forecasts; most loader arguments change nothing, so those that do are shown apart as well."""
    loader = [it for it in found if it.kind == "loader"]
    return {
        "loader argument": loader,
        f"loader argument that changes {per_cent(CHANGED)} and more": [
            it for it in loader if abs(it.measured - 1) >= CHANGED
        ],
        "cause removed": [it for it in found if it.kind == "code"],
    }


def accuracy_cells(it: Accuracy) -> list[str]:
    """Give the cells of one predictor."""
    return [
        as_part(it.median),
        as_part(it.p90),
        per_cent(it.median_beyond_noise, 1),
        per_cent(it.p90_beyond_noise, 1),
        as_part(it.bias, signed=True),
        as_rate(it.coverage),
    ]


def regret_lines(cells: Sequence[Cell]) -> list[str]:
    """Say what following the first prescription costs."""
    all_of_them = regrets(cells)
    known = [it for it in all_of_them if it.regret is not None]
    worst = sorted(known, key=lambda it: -(it.regret or 0.0))[:SHOWN]
    middle = median([it.regret or 0.0 for it in known])
    return [
        prose(
            f"First prescription instead of the best measured change: {as_part(middle)} of the step time,",
            f"median of {len(known)}; for {len(all_of_them) - len(known)} no arm makes the prescribed change.",
        ),
        "",
        *bullets(
            [
                f"{it.cell}: `{it.chosen}`, {per_cent(it.regret)}"
                for it in worst
                if (it.regret or 0.0) > targets.REGRET
            ],
            "None costs more than the target.",
        ),
    ]


def withheld_lines(cells: Sequence[Cell]) -> list[str]:
    """Say which forecasts were not made."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        for row in cell.verdicts():
            if row.forecast_missing:
                reasons.setdefault(row.forecast_missing, []).append(cell.name)
            for entry in row.forecasts:
                if "withheld" in entry:
                    reasons.setdefault(entry["withheld"], []).append(
                        f"{cell.name} `{entry['arm']}`"
                    )
    items = [
        f"{reason}: {', '.join(dict.fromkeys(names[:SHOWN]))}{' …' if len(names) > SHOWN else ''}"
        for reason, names in reasons.items()
    ]
    return ["Withheld, with the reason:", "", *bullets(items, "None.")]
