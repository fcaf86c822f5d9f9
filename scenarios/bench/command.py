"""The command: plan, run what is not known yet, write docs/truth.md.

make bench-truth                                      # everything: some hours; call it again to go on
make bench-truth ARGS="--settings 1 --arms without,with,cured --seconds 6"    # about half an hour
make bench-truth ARGS="--report"                      # only write the report from what is known
make bench-tools                                      # install the other tools, each into .venvs/bench-NAME
"""

from __future__ import annotations

import argparse
import random
import shlex
import signal
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from scenarios.bench import facts
from scenarios.bench.about_runs import Circumstances
from scenarios.bench.arms import GROUPS
from scenarios.bench.cells import collect
from scenarios.bench.document import PICTURE, write
from scenarios.bench.ledger import Ledger, Row
from scenarios.bench.load import PRESSURE_BEFORE_LIMIT, Gate
from scenarios.bench.plan import Job, Remaining, in_words, plan
from scenarios.bench.running import Conditions, run_job
from scenarios.bench.tools import TOOLS
from scenarios.bench.tools.venvs import install_all
from scenarios.harness import DISTURBED_CPUS, wait_for_quiet
from scenarios.surroundings import sweep
from scenarios.truth import FOLDER, SPLITS, load_scenario, scenario_names

RESULTS = FOLDER.parent / "runs/truth.jsonl"
DOCUMENT = FOLDER.parent / "docs/truth.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the bench; 130 when it was interrupted, with everything so far kept."""
    args = parse(arguments)
    if args.install_tools:
        return install_all()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that surroundings are taken down
    for left in sweep():
        print(f"removed {left}, left by a run that was killed")
    ledger = Ledger(args.results, keep_stale=args.keep_stale)
    jobs = planned(args)
    say_what_is_stale(ledger, jobs, keep_stale=args.keep_stale)
    status = 0
    if not args.report:
        try:
            run_missing(jobs, ledger, args)
        except KeyboardInterrupt:
            print("\ninterrupted: the same command goes on here")
            status = 130
    write_report(jobs, ledger, args, arguments)
    return status


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="make bench-truth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="scenarios; all by default")
    add(
        "--split",
        choices=(*SPLITS, "all"),
        default="dev",
        help="held-out ones are for looking at once, at the end (dev)",
    )
    add("--once", action="store_true", help="one unchanged run instead of two")
    add("--settings", type=int, default=3, metavar="N", help="settings of each (3)")
    add(
        "--arms",
        type=arm_groups,
        default=set(GROUPS),
        metavar="A,B",
        help=f"kinds of arms, all by default: {', '.join(GROUPS)}",
    )
    add("--tools", type=tool_names, default=list(TOOLS), metavar="A,B", help="other tools")
    add(
        "--full-settings",
        type=int,
        default=1,
        metavar="N",
        help="settings with the arms marginal, changes and tools as well (1)",
    )
    add("--repeats", type=int, default=1, metavar="N", help="rounds (1)")
    add("--seconds", type=float, default=8.0, metavar="S", help="length of each run (8)")
    add("--minutes", type=float, metavar="M", help="end after so long, with a report")
    add("--attempts", type=int, default=3, help="at most so many of a disturbed run (3)")
    add(
        "--gate-cpus",
        type=float,
        default=DISTURBED_CPUS,
        metavar="N",
        help=f"others using more CPUs disturb a run ({DISTURBED_CPUS:g})",
    )
    add(
        "--gate-pressure",
        type=float,
        default=PRESSURE_BEFORE_LIMIT,
        metavar="R",
        help=f"tasks waiting for CPUs so long just before disturb a run ({PRESSURE_BEFORE_LIMIT:g})",
    )
    add("--patience", type=float, default=20.0, metavar="S", help="wait for quiet (20)")
    add("--weight", type=int, metavar="N", help="N times the CPU share (root, cgroup v1)")
    add("--results", type=Path, default=RESULTS, help="results, a line each")
    add("--keep", type=Path, metavar="DIR", help="keep recorded runs here")
    add("--document", type=Path, default=DOCUMENT, help="where to write the report")
    add("--keep-stale", action="store_true", help="count results of other code as well")
    add("--no-forecasts", action="store_true", help="verdicts only")
    add("--report", action="store_true", help="run nothing, only write the report")
    add("--list", action="store_true", help="run nothing, only show what would be run")
    add("--install-tools", action="store_true", help="install the other tools, and end")
    args = parser.parse_args(arguments)
    if unknown := set(args.names) - set(scenario_names()):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    args.report = args.report or args.list
    return args


def arm_groups(text: str) -> set[str]:
    """Read `--arms`."""
    named = set(text.split(","))
    if unknown := named - set(GROUPS):
        msg = f"{', '.join(sorted(unknown))}: expected some of {', '.join(GROUPS)}"
        raise argparse.ArgumentTypeError(msg)
    return named


def tool_names(text: str) -> list[str]:
    """Read `--tools`."""
    named = [it for it in text.split(",") if it]
    if unknown := set(named) - set(TOOLS):
        msg = f"{', '.join(sorted(unknown))}: expected some of {', '.join(TOOLS)}"
        raise argparse.ArgumentTypeError(msg)
    return named


def planned(args: argparse.Namespace) -> list[Job]:
    """List the jobs that the command line asks for."""
    scenarios = [load_scenario(name) for name in args.names or scenario_names()]
    random.Random(0).shuffle(scenarios)  # so that a part of the plan is a fair part
    return plan(
        [it for it in scenarios if args.names or args.split in ("all", it.split)],
        settings=args.settings,
        groups=args.arms,
        tools=args.tools,
        repeats=args.repeats,
        full_settings=args.full_settings,
        once=args.once,
    )


def say_what_is_stale(ledger: Ledger, jobs: list[Job], *, keep_stale: bool) -> None:
    """Say how many results are of other code, and what happens to them."""
    stale = sum(bool(ledger.stale.get(job.key)) for job in jobs)
    if stale:
        done = "they count (--keep-stale)" if keep_stale else "they are run again"
        print(f"{stale} of {len(jobs)} results are of other code than this: {done}")


def run_missing(jobs: list[Job], ledger: Ledger, args: argparse.Namespace) -> None:
    """Run every job that is not settled, again where it was disturbed."""
    conditions = Conditions(
        seconds=args.seconds,
        gate=Gate(other_cpus=args.gate_cpus, pressure_before=args.gate_pressure),
        weight=args.weight,
        keep=args.keep,
        forecasts=not args.no_forecasts,
    )
    remaining = Remaining(args.seconds)
    todo = [job for job in jobs if not ledger.is_settled(job, args.attempts)]
    print(f"{len(jobs)} runs, {len(jobs) - len(todo)} known")
    end_s = time.monotonic() + 60 * (args.minutes or float("inf"))
    for number, job in enumerate(todo):
        if time.monotonic() > end_s:
            print(f"{args.minutes:g} minutes are over: {len(todo) - number} runs are left")
            return
        while not ledger.is_settled(job, args.attempts):
            wait_for_quiet(args.patience)
            attempt = len(ledger.rows.get(job.key, []))
            begin_s = time.monotonic()
            row = run_job(job, conditions, attempt)
            ledger.add(row)
            remaining.note(job, time.monotonic() - begin_s)
            left = in_words(remaining.seconds(todo[number + 1 :]))
            print(f"{number + 1:4}/{len(todo)} {line_of(row)}  [{left} left]", flush=True)


def line_of(row: Row) -> str:
    """Give one line about a run."""
    name = f"{row.scenario}/{row.setting}"
    head = f"{name:24} {row.arm:26}"
    if row.skipped or row.failure:
        return f"{head} — {row.skipped or row.failure}"
    step = "" if row.step_s is None else f" {row.step_s * 1e3:7.1f} ms/step"
    said = ""
    if row.verdict is not None:
        first = row.verdict["causes"][:1]
        said = " " + row.verdict["limit"] + "".join(f" {it['activity']}" for it in first)
    elif row.answer is not None:
        said = f" {row.answer.get('note') or ''}"[:40]
    noise = f"  disturbed: {', '.join(row.disturbed)}" if row.disturbed else ""
    return f"{head}{step}{said}{noise}"


def write_report(
    jobs: list[Job],
    ledger: Ledger,
    args: argparse.Namespace,
    arguments: list[str] | None,
) -> None:
    """Write the report and its picture from what is known of the plan."""
    if args.list:
        for job in jobs:
            print(f"{job.scenario.name}/{job.setting} {job.arm.name} #{job.repeat}")
        guess = Remaining(args.seconds).seconds(
            job for job in jobs if not ledger.is_settled(job, args.attempts)
        )
        print(f"{len(jobs)} runs; what is not known takes about {in_words(guess)}")
        return
    rows = ledger.counted(job.key for job in jobs)
    if not any(row.verdict for row in rows):
        print("no verdict is known yet: no report is written")
        return
    cells = collect(rows, {job.scenario.name: job.scenario for job in jobs})
    words = shlex.join(sys.argv[1:] if arguments is None else arguments)
    text, picture = write(cells, circumstances(jobs, ledger, rows, words, args))
    args.document.write_text(text, encoding="utf-8")
    (args.document.parent / PICTURE).write_text(picture, encoding="utf-8")
    print(f"wrote {args.document}")


def circumstances(
    jobs: list[Job],
    ledger: Ledger,
    rows: list[Row],
    words: str,
    args: argparse.Namespace,
) -> Circumstances:
    """Collect what the report says about the runs themselves."""
    skipped = {
        f"{row.scenario if row.skipped.startswith('needs') else ''} {row.skipped}".strip()
        for job in jobs
        for row in ledger.rows.get(job.key, [])
        if row.skipped
    }
    tried = [row for job in jobs for row in ledger.rows.get(job.key, []) if not row.skipped]
    stale = sum(bool(ledger.stale.get(job.key)) for job in jobs)
    known = sum(bool(ledger.rows.get(job.key)) for job in jobs)
    return Circumstances(
        date=datetime.now(timezone.utc).date().isoformat(),
        command=f'make bench-truth ARGS="{words}"' if words else "make bench-truth",
        machine=facts.machine(),
        versions=facts.versions(),
        runs=len(rows),
        disturbed=by_cell(row for row in rows if row.disturbed),
        repeated=len(tried) - len(rows),
        failed=[
            f"{row.scenario}/{row.setting} {row.arm}: {row.failure}"
            for row in rows
            if row.failure
        ],
        skipped=sorted(skipped),
        stale=stale,
        stale_used=args.keep_stale,
        missing=len(jobs) - known,
    )


def by_cell(rows: Iterable[Row]) -> list[str]:
    """List runs by scenario and setting, on one line for all its arms."""
    arms: dict[str, list[str]] = {}
    for row in rows:
        arms.setdefault(f"{row.scenario}/{row.setting}", []).append(row.arm)
    return [f"{name}: {', '.join(dict.fromkeys(them))}" for name, them in arms.items()]
