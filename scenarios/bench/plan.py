"""Which runs there are, in which order, and how long the rest will take."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from scenarios.bench.arms import Arm, arms_of
from scenarios.truth import Scenario

SHORT_GROUPS = frozenset({"without", "with", "cured", "parts"})
"""What is run at every setting: verdicts, and what removing the causes gains."""
START_AND_END_S = 4.0
"""First guess of what a run needs beside its own length, until one was measured: imports, surroundings, analysis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run that is wanted."""

    scenario: Scenario
    setting: int
    arm: Arm
    repeat: int

    @property
    def key(self) -> tuple[str, int, str, int]:
        """Tell runs apart in results."""
        return self.scenario.name, self.setting, self.arm.name, self.repeat


def plan(
    scenarios: Iterable[Scenario],
    *,
    settings: int,
    groups: set[str],
    tools: list[str],
    repeats: int,
    full_settings: int = 1,
    once: bool = False,
    seed: int = 0,
) -> list[Job]:
    """List all jobs: round by round, and within a round the arms of a scenario at a setting one after the other.

    Beyond the first `full_settings` settings only the groups that verdicts are graded by are run.
    So what is compared was run within minutes of each other, in an order that is another one in each round.
    The unchanged run opens and closes each group: two of them tell how far two equal runs are apart, which is not
    known with `once`.
    """
    shuffler = random.Random(seed)
    jobs: list[Job] = []
    for repeat in range(repeats):
        for setting in range(settings):
            for scenario in scenarios:
                if setting < len(scenario.settings):
                    wanted = groups if setting < full_settings else groups & SHORT_GROUPS
                    arms = arms_of(scenario, setting, wanted, tools)
                    jobs += interleaved(scenario, setting, arms, repeat, shuffler)
    again = {1} if once else set()
    return [
        job for job in jobs if job.arm.group != "without" or job.repeat % 2 not in again
    ]


def interleaved(
    scenario: Scenario, setting: int, arms: list[Arm], repeat: int, shuffler: random.Random
) -> list[Job]:
    """Put the arms of one scenario into an order of their own, between two unchanged runs."""
    plain = [arm for arm in arms if arm.group == "without"]
    others = [arm for arm in arms if arm.group != "without"]
    shuffler.shuffle(others)
    first = [
        Job(scenario=scenario, setting=setting, arm=it, repeat=2 * repeat) for it in plain
    ]
    last = [
        Job(scenario=scenario, setting=setting, arm=it, repeat=2 * repeat + 1)
        for it in plain
    ]
    between = [
        Job(scenario=scenario, setting=setting, arm=it, repeat=repeat) for it in others
    ]
    return [*first, *between, *last]


class Remaining:
    """Estimates the time left from what runs of each group took so far."""

    def __init__(self, seconds: float) -> None:
        """Begin with a guess: `seconds` is the length of a run."""
        self.guess_s = seconds + START_AND_END_S
        self.taken_s: dict[str, list[float]] = defaultdict(list)

    def note(self, job: Job, taken_s: float) -> None:
        """Learn from a finished run."""
        self.taken_s[job.arm.group].append(taken_s)

    def seconds(self, jobs: Iterable[Job]) -> float:
        """Give the expected length of all these runs, without repetitions of disturbed ones."""
        means = {group: statistics.fmean(it) for group, it in self.taken_s.items()}
        return sum(means.get(job.arm.group, self.guess_s) for job in jobs)


def in_words(seconds: float) -> str:
    """Give a time as people say it."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    if minutes < 100:
        return f"{minutes} min"
    return f"{seconds / 3600:.1f} h"
