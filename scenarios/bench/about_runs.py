"""The report on the runs themselves: noise, cost, machine, disturbed and missing runs, method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scenarios.bench.cells import Cell
from scenarios.bench.stats import median, quantile
from scenarios.bench.tables import NOTHING, as_part, bullets, per_cent, prose, table
from scenarios.bench.verdicts import idle_errors, overheads

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
- **Noise**: half of what the two unchanged runs of a script and setting are apart, at least that of the median
  script. An error counts beyond it.
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
