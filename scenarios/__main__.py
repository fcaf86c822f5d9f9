"""Run scenarios one after the other and print a line for each: `python -m scenarios --help`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scenarios.harness import Result, run_scenario, wait_for_quiet
from scenarios.surroundings import missing_needs, sweep
from scenarios.truth import SPLITS, Scenario, load_scenario, scenario_names

SHOWN_CAUSES = 2


def main() -> int:
    """Give 0 when everything that ran was right."""
    args = parse_arguments()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that surroundings are taken down
    for left in sweep():
        print(f"removed {left}, left by a run that was killed")
    scenarios = [load_scenario(name) for name in args.names or scenario_names()]
    if not args.names and not args.list:
        scenarios = [it for it in scenarios if it.split == args.split]
    if args.list:
        for scenario in scenarios:
            print(
                f"{scenario.name:24} {scenario.kind:13} {scenario.split:9} {scenario.title}"
            )
        return 0
    results = list(run_all(scenarios, args))
    print_summary(results)
    return 0 if all(result.ok is not False for result in results) else 1


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m scenarios", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="scenarios to run; all by default"
    )
    parser.add_argument(
        "--setting", type=int, metavar="K", help="only this setting, from 0"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each run")
    parser.add_argument(
        "--json", type=Path, help="results, a line each; what is in it is not run again"
    )
    parser.add_argument("--keep", type=Path, help="folder to keep the recorded runs in")
    parser.add_argument(
        "--alone", action="store_true", help="without whyidle: is it starved at all?"
    )
    parser.add_argument("--cured", choices=["no", "yes", "both"], default="no")
    parser.add_argument(
        "--weight", type=int, metavar="N", help="N times the CPU share (root, cgroup v1)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="S",
        help="wait so long for a quiet machine",
    )
    parser.add_argument(
        "--split", choices=SPLITS, default="dev", help="which ones when none is named"
    )
    parser.add_argument("--list", action="store_true", help="only list the scenarios")
    return parser.parse_args()


def run_all(scenarios: list[Scenario], args: argparse.Namespace) -> Iterator[Result]:
    """Run what is asked for and not known yet, printing as it goes."""
    known = read_results(args.json)
    jobs = list(plan(scenarios, args))
    for number, (scenario, setting, cured) in enumerate(jobs, 1):
        key = (scenario.name, setting, cured, args.alone)
        if key in known:
            result = known[key]
        elif missing := missing_needs(scenario.needs):
            print(
                f"{number:3}/{len(jobs)} {scenario.name:24} skipped: needs {', '.join(missing)}"
            )
            continue
        else:
            wait_for_quiet(args.patience)
            result = run_scenario(
                scenario,
                setting,
                seconds=args.seconds,
                cured=cured,
                alone=args.alone,
                weight=args.weight,
                keep=args.keep,
            )
            append_result(args.json, result)
        print(f"{number:3}/{len(jobs)} {render_result(scenario, result)}", flush=True)
        yield result


def plan(
    scenarios: list[Scenario], args: argparse.Namespace
) -> Iterator[tuple[Scenario, int, bool]]:
    """List the runs."""
    cures = {"no": [False], "yes": [True], "both": [False, True]}[args.cured]
    for scenario in scenarios:
        settings = range(len(scenario.settings)) if args.setting is None else [args.setting]
        for setting in settings:
            for cured in cures:
                yield scenario, setting, cured


def read_results(path: Path | None) -> dict[tuple[str, int, bool, bool], Result]:
    """Read the results of an earlier, unfinished call."""
    if path is None or not path.exists():
        return {}
    results = [Result(**json.loads(line)) for line in path.read_text().splitlines()]
    return {result.key(): result for result in results}


def append_result(path: Path | None, result: Result) -> None:
    """Keep a result."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def render_result(scenario: Scenario, result: Result) -> str:
    """Give one line: what was expected, what was said, what is right."""
    setting = scenario.settings[result.setting]
    numbers = f"{setting.workers}w {setting.batch_size}b {setting.step_ms:g}ms"
    head = (
        f"{result.name:24} {result.setting} {numbers:14}{'cured' if result.cured else '':6}"
    )
    if result.failure:
        return f"{head} —  {result.failure}"
    statistic = result.statistic or {}
    head += f" idle {statistic.get('idle_ratio', float('nan')):5.2f}"
    head += f" {statistic.get('steps_per_second', float('nan')):6.1f}/s"
    noise = f"  (others {result.other_cpus} CPUs)" if result.disturbed else ""
    if result.verdict is None:
        return head + noise
    mark = {True: "ok", False: "— ", None: "  "}[result.ok]
    return (
        f"{head} {mark} {expected(scenario)} ← {said(result.verdict)}{wrong(result)}{noise}"
    )


def expected(scenario: Scenario) -> str:
    """Give the truth in short."""
    if not scenario.causes:
        return scenario.limits[0]
    return "+".join(f"{it.activity}/{it.regimes[0]}" for it in scenario.causes)


def said(verdict: dict[str, Any]) -> str:
    """Give a verdict in short."""
    causes = [
        f"{it['activity']}/{it['regime']} {it['share']:.0%}{place(it['where'])}"
        for it in verdict["causes"][:SHOWN_CAUSES]
    ]
    idle = verdict["idle_ratio"]
    idle_text = "?" if idle is None else f"{idle:.2f}"
    unexplained = verdict["unexplained_ratio"]
    return f"{verdict['limit']} {idle_text} ({unexplained:.0%} ?) {'; '.join(causes)}"


def place(where: dict[str, Any]) -> str:
    """Give a place in short."""
    if where.get("process"):
        return f" {where['process']}"
    if where.get("function"):
        return f" {where['function']}:{where.get('line')}"
    return f" {where['mount']}" if where.get("mount") else ""


def wrong(result: Result) -> str:
    """Name the parts of the grade that are wrong."""
    parts = [name for name, right in (result.grade or {}).items() if right is False]
    return f"  [{', '.join(parts)}]" if parts else ""


def print_summary(results: list[Result]) -> None:
    """Say how many were right, and which were not."""
    graded = [result for result in results if result.ok is not None]
    if not graded:
        return
    print(f"{sum(result.ok is True for result in graded)} of {len(graded)} right")
    for words, disturbed in (
        ("not right", False),
        ("not right, and disturbed by others", True),
    ):
        failed = [it for it in graded if not it.ok and it.disturbed is disturbed]
        if failed:
            print(f"{words}: " + ", ".join(f"{it.name}/{it.setting}" for it in failed))


if __name__ == "__main__":
    sys.exit(main())
