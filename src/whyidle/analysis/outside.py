"""What can be said from outside, when no agent reported from inside the training."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

from whyidle.model.codes import ProcessRole
from whyidle.model.findings import Limit, NotObserved, Verdict
from whyidle.model.waits import Wait
from whyidle.units import format_ratio

if TYPE_CHECKING:
    from whyidle.model.events import RunTables
    from whyidle.model.findings import RunSummary
    from whyidle.model.timeline import Timeline

WORDS: dict[int, str] = {
    Wait.NONE: "on a CPU or waiting for one",
    Wait.QUEUE: "waiting at a queue of the loader",
    Wait.FILE: "reading or writing files",
    Wait.PAGE_FAULT: "in page faults",
    Wait.SOCKET: "waiting for a socket",
    Wait.PIPE: "waiting for a pipe",
    Wait.LOCK: "waiting for a lock shared between processes",
    Wait.THREAD: "waiting for one of its own threads",
    Wait.SLEEP: "sleeping",
    Wait.CHILD: "waiting for a child process",
    Wait.DEVICE: "waiting for a device file",
    Wait.OTHER: "blocked elsewhere",
}


def judge_outside(timeline: Timeline, run: RunTables, summary: RunSummary) -> Verdict:
    """Describe the run by the observer's looks alone: honest, and `unresolved`.

    With `pin_memory` a starved loop and a healthy one look the same from outside, so no limit is claimed.
    """
    told = [
        NotObserved(slug=entry["slug"], reason=entry["reason"])
        for entry in run.manifest.get("not_observed") or ()
    ]
    told.append(
        NotObserved(
            slug="no-steps",
            reason="no process asked a torch DataLoader for a batch where the agent could see it; data that comes "
            "by other means is seen from outside only",
        )
    )
    return Verdict(
        run=summary,
        limit=Limit.UNRESOLVED,
        sentence=_sentence(run, summary.exit_status),
        step_median_ns=None,
        step_p90_ns=None,
        idle_ratio=None,
        unexplained_ratio=0.0,
        causes=(),
        prescriptions=(),
        not_observed=tuple(told),
    )


def _sentence(run: RunTables, exit_status: int | None) -> str:
    if exit_status:
        return f"Unresolved: the command ended with exit status {exit_status} before a training step was seen."
    return "Unresolved: no training step was seen from inside." + _outside_view(run)


def _outside_view(run: RunTables) -> str:
    """Say what the main threads of the training and of its workers mostly did."""
    leads = run.tables["thread"].filter(pl.col("pid") == pl.col("tid"))
    roles = dict(run.tables["process"].select("pid", "role").iter_rows())
    spent: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for pid, wait, previous_ns, now_ns in leads.select(
        "pid", "wait", "previous_ns", "now_ns"
    ).iter_rows():
        spent[roles.get(pid, 0)][wait] += now_ns - previous_ns
    said = ""
    for role, name in (
        (ProcessRole.TRAINING, "the training's main thread"),
        (ProcessRole.WORKER, "its workers"),
    ):
        total = sum(spent[role].values())
        if total <= 0:
            continue
        top = sorted(spent[role].items(), key=lambda item: -item[1])[:2]
        parts = " and ".join(
            f"{format_ratio(part / total)} {WORDS.get(wait, 'elsewhere')}"
            for wait, part in top
        )
        said += f"{',' if said else ' From outside:'} {name} spent {parts}"
    return f"{said}." if said else ""
