"""The report on verdicts: accuracy, other tools, blame, and what is wrong by name."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scenarios.bench import targets
from scenarios.bench.cells import Cell, split_cells
from scenarios.bench.stats import median, quantile
from scenarios.bench.tables import (
    NOTHING,
    SHOWN,
    as_part,
    as_rate,
    bullets,
    per_cent,
    prose,
    table,
)
from scenarios.bench.tools import TOOLS
from scenarios.bench.verdicts import (
    PARTS,
    Scores,
    flips,
    overheads,
    score,
    share_errors,
    unexplained,
)
from scenarios.truth import SPLITS


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
