"""`whyidle run`: observe a training, then say why its device was idle."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.commands.judging import judge_run
from whyidle.commands.parsing import positive_seconds, whole_number
from whyidle.commands.problems import say_crash, say_problem
from whyidle.errors import LaunchError, UsageError, WhyidleError
from whyidle.store import rundir
from whyidle.store.captures import (
    ENV_CAPTURE,
    load_captures,
    parse_function_name,
    write_captures,
)
from whyidle.views.streams import read_traits, write_aside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.model.events import RunTables
    from whyidle.model.findings import Verdict
    from whyidle.store.captures import FunctionName


class RunCommand:
    """Run a training under observation and say why its device was idle.

    The training's output, input, signals and exit status stay its own. The verdict
    comes on stderr at its end, also after Ctrl-C, a crash, a kill or the bound.
    """

    usage = "[OPTIONS] -- COMMAND ..."
    examples = (
        "whyidle run -- python train.py --epochs 1",
        "whyidle run --steps 200 -- torchrun --nproc-per-node 4 train.py",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare bounds, places and the command."""
        parser.add_argument(
            "--steps",
            type=whole_number,
            metavar="N",
            help="end the training in an orderly way after N steps",
        )
        parser.add_argument(
            "--seconds",
            type=positive_seconds,
            metavar="S",
            help="end the training in an orderly way after S seconds",
        )
        parser.add_argument(
            "--out",
            type=Path,
            metavar="DIR",
            help=f"make the run folder in DIR (default: ./{rundir.DEFAULT_PARENT})",
        )
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the verdict to FILE as well"
        )
        parser.add_argument(
            "--capture",
            action="append",
            default=[],
            metavar="FILE.py:FUNCTION",
            help="keep real inputs and outputs of this function for `whyidle prove`; may be given several times",
        )
        parser.add_argument(
            "command",
            nargs=argparse.REMAINDER,
            metavar="COMMAND",
            help="the training, as you type it anyway",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Observe, judge, print; gives the training's own exit status.

        Raises:
            WhyidleError: nothing was started.
        """
        command = take_command(arguments.command)
        if arguments.json is not None:
            check_writable(arguments.json)
        captures = [parse_function_name(text) for text in arguments.capture]
        from whyidle.observe.launch import TargetSetting, run_observed

        had_parent = (arguments.out or Path(rundir.DEFAULT_PARENT)).exists()
        run_dir = rundir.create_run_dir(arguments.out)
        try:
            result = run_observed(
                command,
                run_dir,
                steps=arguments.steps,
                seconds=arguments.seconds,
                # With stderr closed, what print() is told to write there would land on the training's stdout.
                status_stream=sys.stderr or io.StringIO(),
                setting=TargetSetting(environment={ENV_CAPTURE: write_captures(captures)}),
            )
        except LaunchError:
            remove_unused(run_dir, had_parent=had_parent)
            raise
        if result.observed:
            conclude(run_dir, arguments.json)
            if captures:
                write_aside(sys.stderr, f"\n{describe_captures(run_dir, captures)}")
        return result.exit_status


def describe_captures(run_dir: Path, names: Sequence[FunctionName]) -> str:
    """Say of each function how many calls were kept, or why none."""
    found = load_captures(run_dir)
    lines = []
    for name in names:
        kept = next((one for one in found if name.is_at(one.name)), None)
        if kept is None:
            said = "no call was seen in a worker, nor in a loop without workers"
        else:
            said = f"{len(kept.records)} of {kept.calls} calls kept"
            reasons = dict(sorted(kept.refused.items(), key=lambda item: -item[1]))
            said += "".join(f"; {count} not: {reason}" for reason, count in reasons.items())
        lines.append(f"captured  {name}: {said}\n")
        if kept is not None and kept.records:
            lines.append(f"          whyidle prove {run_dir} {name} NEW.py:FUNCTION\n")
    return "".join(lines)


def take_command(words: list[str], subcommand: str = "run") -> list[str]:
    """Give the training's command, without the `--` in front of it.

    Args:
        words: What stands behind the options.
        subcommand: Of whyidle, for the hint.

    Raises:
        UsageError: there is none.
    """
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise UsageError(
            "the command to observe is missing; expected it at the end",
            slug="command-missing",
            hint=f"For example: whyidle {subcommand} -- python train.py",
        )
    return command


def check_writable(path: Path) -> None:
    """Find out before the training whether a file can be written after it.

    Raises:
        UsageError: it cannot.
    """
    folder = path.parent
    if path.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"there is no folder {str(folder)!r}"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        reason = "permission denied"
    else:
        return
    raise UsageError(
        f"cannot write {str(path)!r}: {reason}; expected a file that can be written",
        slug="json-not-writable",
        hint="Name another file with --json. Nothing was started.",
    )


def conclude(run_dir: Path, json_path: Path | None) -> None:
    """Judge what was recorded and show it. Whatever fails, the training's exit status stands."""
    try:
        tables = rundir.load_tables(run_dir)
        _show(_judge(run_dir, tables), run_dir, json_path)
    except WhyidleError as error:
        say_problem(error)
        _say_kept(run_dir)
    except KeyboardInterrupt:
        write_aside(sys.stderr, "\nwhyidle: interrupted before the verdict was there\n")
        _say_kept(run_dir)
    except OSError as error:
        write_aside(sys.stderr, f"whyidle: {error}\n")
        _say_kept(run_dir)
    except Exception as error:  # noqa: BLE001  (the exit status is the training's, see say_crash)
        say_crash(error)
        _say_kept(run_dir)
    else:
        # Nobody waits any more: the next look at this run is faster for it.
        with contextlib.suppress(KeyboardInterrupt):
            rundir.save_columns(run_dir, tables)


def _judge(run_dir: Path, tables: RunTables) -> Verdict:
    verdict = judge_run(tables)
    rundir.write_verdict(run_dir, verdict)
    return verdict


def _show(verdict: Verdict, run_dir: Path, json_path: Path | None) -> None:
    from whyidle.views.terminal import render_verdict

    traits = read_traits(sys.stderr, os.environ)
    text = render_verdict(
        verdict,
        width=traits.width,
        color=traits.color,
        blocks=traits.blocks,
        folder=run_dir,
    )
    write_aside(sys.stderr, f"\n{text}")
    if json_path is not None:
        content = json.dumps(verdict.to_json(), indent=2) + "\n"
        json_path.write_text(content, encoding="utf-8")


def _say_kept(run_dir: Path) -> None:
    text = f"whyidle: the run is kept; try again with `whyidle report {run_dir}`\n"
    write_aside(sys.stderr, text)


def remove_unused(run_dir: Path, *, had_parent: bool) -> None:
    """Leave no folder of a command that never started."""
    shutil.rmtree(run_dir, ignore_errors=True)
    if not had_parent:
        with contextlib.suppress(OSError):
            run_dir.parent.rmdir()
