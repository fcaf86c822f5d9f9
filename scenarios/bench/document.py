"""docs/truth.md: what was measured, in tables, with what is wrong by name."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from scenarios.bench import targets
from scenarios.bench.cells import Cell
from scenarios.bench.gains import (
    PREDICTORS,
    Accuracy,
    Gain,
    accuracy,
    gains,
    promises_on_healthy,
    rank_agreement,
    regrets,
)
from scenarios.bench.picture import Bar, Dot, draw
from scenarios.bench.stats import Estimate, median, quantile
from scenarios.bench.tables import (
    NOTHING,
    as_number,
    as_part,
    as_rate,
    bullets,
    per_cent,
    prose,
    table,
    verdict_on,
)
from scenarios.bench.tools import TOOLS
from scenarios.bench.verdicts import (
    PARTS,
    Scores,
    flips,
    idle_errors,
    overheads,
    score,
    share_errors,
    unexplained,
)
from scenarios.truth import SPLITS

PICTURE = "truth.svg"
SHOWN = 12
"""How many of the largest errors are listed."""


METHOD = """\
## How

Every scenario is run at each setting in several arms, one after the other in shuffled order, between two
unchanged runs: watched; cured (all that is planted removed); each of several causes removed alone; the
planted function twice as long; the step a quarter longer; other loader arguments; other tools. T is the
mean step time, by the script's own clock.

- **Removal** of a cause: (T − T_removed) ÷ (T × idle), the part of the idle time that goes with it. It is
  finite: the step becomes shorter only until something else bounds it, often the device, so it is an upper
  bound for a share. With two causes: the mean of removing it first and removing it last.
- **Marginal** share: dT/d ln(cause) ÷ (T − dT/d ln(step)). Numerator: the planted function made twice as
  long; where it computed it computes on, where it was blocked it sleeps on. Denominator: all that is not the
  device's own work, since the derivatives by all lengths add up to T. It is what blame means, and can be
  measured where a function can be made longer: not for locks, quotas, neighbours and the bandwidth of a
  shared disk. There, removal is the truth.
- **Forecast**: steps a second after the change ÷ before. Its error is that of the step time after the
  change. A removed cause is forecast as taking no time; what its replacement costs counts as error.
- **Rate bound**: the larger of step and work ÷ workers. **Blame share**: the blamed idle time goes, nothing
  else changes.
- **Noise gate**: a run counts as disturbed when others use too many CPUs, the hypervisor takes CPU time, or
  tasks wait for CPUs just before it. It is made again, up to a number of attempts; then the least disturbed
  attempt counts and is named above.
- **Intervals**: Wilson for proportions, percentile bootstrap for medians, 95 %.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a reader needs to know of how the numbers came about."""

    date: str
    command: str
    machine: list[str]
    versions: list[str]
    runs: int
    disturbed: list[str] = field(default_factory=list)
    """Runs that count although others disturbed them each time."""
    repeated: int = 0
    """Runs that were made again because others disturbed them, or they failed."""
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    stale: int = 0
    """Results of other code that count (asked for) or were left out."""
    stale_used: bool = False
    missing: int = 0
    """Runs of the plan that have no result yet."""


def write(cells: Sequence[Cell], facts: Circumstances) -> tuple[str, str]:
    """Give docs/truth.md and its picture."""
    found = gains(cells)
    lines = [
        *head(cells, facts),
        *targets_section(cells, found),
        *verdict_section(cells),
        *tools_section(cells),
        *share_section(cells),
        *forecast_section(cells, found),
        *noise_section(cells),
        *failure_section(cells),
        *circumstances_section(facts),
        METHOD,
    ]
    return "\n".join(lines), picture(cells, found)


def head(cells: Sequence[Cell], facts: Circumstances) -> list[str]:
    """Say what this is."""
    names = {cell.scenario.name for cell in cells}
    healthy = {cell.scenario.name for cell in cells if not cell.scenario.causes}
    several = {cell.scenario.name for cell in cells if len(cell.scenario.causes) > 1}
    return [
        "# How often whyidle is right",
        "",
        f"Written by `{facts.command}` on {facts.date}; do not edit. Anyone can run it again.",
        "",
        prose(
            f"{len(names)} training scripts with known causes, {len(several)} of them with several at once,",
            f"{len(healthy)} with nothing wrong; {len(cells)} scripts × settings, {facts.runs} runs.",
            "What is planted is in [scenarios/](../scenarios/README.md); what removing it gains is measured here.",
        ),
        "",
        f"![How often each tool is right]({PICTURE})",
        "",
    ]


def split_cells(cells: Sequence[Cell], split: str) -> list[Cell]:
    """Give the cells of a split."""
    return [cell for cell in cells if cell.scenario.split == split]


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


def verdict_section(cells: Sequence[Cell]) -> list[str]:
    """Show accuracy part by part, and apart for what was developed on and what was not."""
    scores = {split: score(split_cells(cells, split), "with") for split in SPLITS}
    rows = [
        [
            part,
            *(as_rate(scores[split].first[part]) for split in SPLITS),
            *(as_rate(scores[split].top[part]) for split in SPLITS),
        ]
        for part in PARTS
    ]
    others = [
        [
            "all of several planted causes among the first three",
            *(as_rate(scores[it].both) for it in SPLITS),
        ],
        [
            "`input` said of a healthy training",
            *(as_rate(scores[it].false_input) for it in SPLITS),
        ],
        [
            "a cause named on a healthy training",
            *(as_rate(scores[it].false_cause) for it in SPLITS),
        ],
    ]
    return [
        "## The verdict",
        "",
        prose(
            "Part of the verdicts that are right, with a 95 % Wilson interval and the number of runs.",
            "*dev*: rules were developed on these scenarios; *held-out*: they were not.",
            "`joint`: activity, regime and place of one cause, all right.",
        ),
        "",
        *table(
            [
                "part",
                "first, dev",
                "first, held-out",
                "first three, dev",
                "first three, held-out",
            ],
            rows,
        ),
        *table(["", *SPLITS], others),
    ]


def tools_section(cells: Sequence[Cell]) -> list[str]:
    """Show all tools on the cells where other tools were run."""
    arms = [f"tool:{name}" for name in TOOLS]
    shared = [cell for cell in cells if any(arm in cell.arms for arm in arms)]
    if not shared:
        return ["## Other tools", "", "No other tool was run.", ""]
    rows = [
        tool_row(
            "**whyidle**", "this one", score(shared, "with"), overheads(shared, "with")
        )
    ]
    rows += [
        tool_row(
            name,
            tool.version(),
            score(shared, f"tool:{name}"),
            overheads(shared, f"tool:{name}"),
        )
        for name, tool in TOOLS.items()
    ]
    return [
        "## Other tools",
        "",
        prose(
            f"On the same {len(shared)} scripts × settings. First answer right, with interval and runs;",
            "each tool used as its documentation asks, its best answer counted.",
            "Where a tool never speaks of something, it is not right about it.",
        ),
        "",
        *table(
            [
                "tool",
                "version",
                "limit",
                "activity",
                "place",
                "activity+regime+place",
                "any of three",
                "`input` on healthy",
                "silent",
                "step longer, median",
            ],
            rows,
        ),
        *bullets([f"{name}: {tool.how}" for name, tool in TOOLS.items()], ""),
    ]


def tool_row(name: str, version: str, scores: Scores, costs: list[float]) -> list[str]:
    """Give one tool's row."""
    if not scores.runs:
        return [name, version, "not run", *[NOTHING] * 7]
    parts = [
        as_rate(scores.first[part]) for part in ("limit", "activity", "place", "joint")
    ]
    silent = f"{scores.silent} of {scores.runs}"
    cost = f"{statistics.median(costs) * 100:+.1f} %" if costs else NOTHING
    return [
        name,
        version,
        *parts,
        as_rate(scores.top["joint"]),
        as_rate(scores.false_input),
        silent,
        cost,
    ]


def share_section(cells: Sequence[Cell]) -> list[str]:
    """Show blame beside measured shares."""
    found = share_errors(cells)
    rows = []
    for split in SPLITS:
        names = {cell.name for cell in split_cells(cells, split)}
        mine = [it for it in found if it.name.partition("#")[0] in names]
        for words, errors in (
            (
                "from the marginal share",
                [abs(it.blamed - it.marginal) for it in mine if it.marginal is not None],
            ),
            (
                "from the part that removing it takes away",
                [abs(it.blamed - it.removal) for it in mine if it.removal is not None],
            ),
        ):
            tail = per_cent(quantile(errors, 0.9), 1) if errors else NOTHING
            rows.append([split, words, as_part(median(errors)), tail, str(len(errors))])
    largest = sorted(
        (it for it in found if it.error is not None), key=lambda it: -(it.error or 0.0)
    )
    listed = [
        [it.name, per_cent(it.blamed), per_cent(it.marginal), per_cent(it.removal)]
        for it in largest[:SHOWN]
        if (it.error or 0.0) > targets.SHARE_ERROR
    ]
    return [
        "## Blame beside the measured effect",
        "",
        "Part of the idle time that the verdict gives to the planted cause, against two measurements (below, *How*).",
        "",
        *table(["", "distance", "median", "90th percentile", "runs"], rows),
        *(
            [
                "Largest distances:",
                "",
                *table(["scenario/setting", "blamed", "marginal", "removal"], listed),
            ]
            if listed
            else []
        ),
    ]


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
    for kind, words in (("loader", "loader argument"), ("code", "cause removed")):
        for predictor, name in PREDICTORS.items():
            it = accuracy([gain for gain in found if gain.kind == kind], predictor)
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
            "Bias above 0: really better than forecast.",
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


def noise_section(cells: Sequence[Cell]) -> list[str]:
    """Publish how far equal runs are apart, the overhead, and how exact the idle time is."""
    noise = [it for it in (cell.repeat_noise() for cell in cells) if it is not None]
    costs = overheads(cells, "with")
    errors = idle_errors(cells)
    return [
        "## Noise and cost",
        "",
        *table(
            ["", "median", "90th percentile", "count"],
            [
                row_of("two equal runs, from their mean", noise),
                row_of("a step under whyidle, longer by", costs, signed=True),
                row_of("idle ratio, distance from the device's own", errors),
            ],
        ),
    ]


def row_of(words: str, values: list[float], *, signed: bool = False) -> list[str]:
    """Give median and tail of a list of parts."""
    tail = per_cent(quantile(values, 0.9), 1) if values else NOTHING
    return [words, as_part(median(values), signed=signed), tail, str(len(values))]


def failure_section(cells: Sequence[Cell]) -> list[str]:
    """Name everything that is wrong."""
    rest = unexplained(cells, targets.UNEXPLAINED_ALWAYS)
    lines = ["## What is wrong, by name", ""]
    for split in SPLITS:
        mine = split_cells(cells, split)
        if mine:
            failures = score(mine, "with").failures
            lines += [
                f"First cause, {split} (scenario/setting, wrong parts):",
                "",
                *bullets(failures, "Nothing."),
            ]
    turned = [f"{name}: {'; '.join(said)}" for name, said in flips(cells).items()]
    return [
        *lines,
        "Verdict differs between settings with the same truth:",
        "",
        *bullets(turned, "None."),
        f"More than {per_cent(targets.UNEXPLAINED_ALWAYS)} of the idle time unexplained:",
        "",
        *bullets(rest.above, "None."),
    ]


def circumstances_section(facts: Circumstances) -> list[str]:
    """Say on what and how it was run, and which runs do not count or count with a doubt."""
    stale = "count, as was asked for" if facts.stale_used else "do not count"
    return [
        "## Where and how it was run",
        "",
        *bullets([*facts.machine, *facts.versions], ""),
        prose(
            f"{facts.runs} runs count.",
            f"{facts.repeated} were made again, because others disturbed them or they failed.",
            f"{facts.missing} of the plan have no result. {facts.stale} results of other code {stale}.",
        ),
        "",
        "Count although others disturbed every attempt:",
        "",
        *bullets(facts.disturbed, "None."),
        "Failed in every attempt:",
        "",
        *bullets(facts.failed, "None."),
        "Not run here:",
        "",
        *bullets(facts.skipped, "None."),
    ]


def picture(cells: Sequence[Cell], found: Sequence[Gain]) -> str:
    """Draw all tools and all forecasts."""
    arms = {f"tool:{name}": name for name in TOOLS}
    shared = [cell for cell in cells if any(arm in cell.arms for arm in arms)] or list(
        cells
    )
    bars = [Bar(name="whyidle", parts=score(shared, "with").first)]
    for arm, name in arms.items():
        scores = score(shared, arm)
        if scores.runs:
            bars.append(Bar(name=name, parts=scores.first))
    dots = [
        Dot(
            forecast=it.forecast["speedup"], measured=it.measured, is_code=it.kind == "code"
        )
        for it in found
    ]
    return draw(bars, dots)
