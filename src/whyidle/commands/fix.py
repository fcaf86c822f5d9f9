"""`whyidle fix`: set what a trial proved, where the script builds its loader."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.commands.parsing import HELP_WIDTH
from whyidle.commands.report import choose_run, load_verdict
from whyidle.errors import UsageError
from whyidle.store import rundir
from whyidle.units import NS_PER_S
from whyidle.views.streams import write_aside, write_text

if TYPE_CHECKING:
    import argparse

    from whyidle.model.trial import LoaderSite
    from whyidle.trial.fixing import Wanted
    from whyidle.trial.loader_call import Edited

LEFT_STATUS = 1
"""Something is left to be done by hand."""
CLOCK_SLACK_NS = 2 * NS_PER_S
"""File systems keep times to a second or two: a file this much younger than the run may be as the run found it."""


class FixCommand:
    """Set what a trial proved, where the script builds its loader.

    Prints a commit message and a unified diff; --apply also changes the file. RUN is the
    folder of a trial, or one with several: then the newest is taken. Only the arguments
    of the DataLoader's call change, all else stays as it is written; what cannot be set
    with certainty is said on stderr, with the value to set by hand.

    Exit status: 0 all is set, 1 something is left to do by hand.
    """

    usage = "[--apply] [--forecast] [RUN]"
    examples = (
        "whyidle try -- python train.py",
        "whyidle fix",
        "whyidle fix --apply",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the run, and what to do."""
        parser.add_argument(
            "run", nargs="?", type=Path, metavar="RUN", help="folder of a trial or a run"
        )
        parser.add_argument(
            "--apply", action="store_true", help="change the file, not only show how"
        )
        parser.add_argument(
            "--forecast",
            action="store_true",
            help="take the best forecast of a run instead of what a trial proved",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Find out what to set and where, show it, and set it if that is asked for.

        Raises:
            WhyidleError: there is nothing to set, or nowhere to set it.
        """
        check_libcst()
        folder, wanted = find_wanted(arguments.run, use_forecast=arguments.forecast)
        site = open_site(folder, wanted)
        edited = edit(site, wanted)
        if edited.changes:
            show(site, wanted, edited, folder, apply=arguments.apply)
        return say_rest(wanted, edited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The file that builds the loader."""

    path: Path
    line: int
    source: bytes
    changed: str | None
    """Why it may not be as it was in the run; None when it is."""


def check_libcst() -> None:
    """Make sure that sources can be rewritten.

    Raises:
        UsageError: `fix-needs-libcst`.
    """
    try:
        import libcst  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"`whyidle fix` needs libcst, expected to be importable by {sys.executable!r}",
            slug="fix-needs-libcst",
            hint='Install with: python -m pip install "whyidle[fix]"',
        ) from error


def find_wanted(named: Path | None, *, use_forecast: bool) -> tuple[Path, Wanted]:
    """Give the folder that is meant, and what to set.

    Raises:
        UsageError: `nothing-proven`.
        RunFolderError: there is no run, or it cannot be read.
    """
    from whyidle.trial.fixing import find_forecast, find_trials, load_proven, nothing_proven
    from whyidle.trial.record import RECORDED_FOLDER

    trials = find_trials(named)
    if trials and not use_forecast:
        wanted = load_proven(trials[-1])
        if wanted is None:
            raise nothing_proven(trials[-1], "the trial proved no change to be faster")
        return trials[-1], wanted
    folder = trials[-1] / RECORDED_FOLDER if trials else choose_run(named)
    rundir.open_run_dir(folder)
    if not use_forecast:
        raise nothing_proven(folder, "no trial was made")
    wanted = find_forecast(load_verdict(folder), find_site(folder))
    if wanted is None:
        raise nothing_proven(
            folder, "no change of the loader's settings is forecast to help"
        )
    return folder, wanted


def find_site(run_dir: Path) -> LoaderSite | None:
    """Give the loader that fed most steps of a run; None without one.

    Raises:
        RunFolderError: the run cannot be read.
    """
    from whyidle.analysis.align import build_timeline
    from whyidle.trial.candidates import read_situation

    timeline = build_timeline(rundir.load_tables(run_dir))
    machine = timeline.machine
    ranks = [rank for rank in timeline.ranks if len(rank.steps)]
    if not ranks:
        return None
    found = read_situation(ranks[0], machine.allowed_count, machine.cpu_count)
    return found[1] if found else None


def open_site(folder: Path, wanted: Wanted) -> Site:
    """Read the file that builds the loader, and see whether it is as it was in the run.

    Raises:
        UsageError: `loader-elsewhere`: it is not known, an installed package's, or gone.
    """
    from whyidle.analysis.places import is_library
    from whyidle.trial.fixing import not_editable
    from whyidle.trial.record import RECORDED_FOLDER

    if wanted.file is None or wanted.line is None:
        raise not_editable(wanted, "it was not seen in the run")
    if is_library(wanted.file):
        raise not_editable(wanted, f"it is in {wanted.file!r}, which belongs to a package")
    recorded = folder / RECORDED_FOLDER
    manifest = rundir.read_manifest(recorded if recorded.is_dir() else folder)
    path = Path(manifest["working_dir"] or ".", wanted.file)
    try:
        path = path.resolve(strict=True)
        source, changed_ns = path.read_bytes(), path.stat().st_mtime_ns
    except OSError as error:
        raise not_editable(wanted, f"{str(path)!r}: {error.strerror}") from error
    return Site(
        path=path,
        line=wanted.line,
        source=source,
        changed=_tell_change(changed_ns, manifest["start_unix_ns"]),
    )


def _tell_change(changed_unix_ns: int, start_unix_ns: int | None) -> str | None:
    if start_unix_ns is None:
        return "when the run began was not recorded, so whether the file has changed since is unknown"
    if changed_unix_ns > start_unix_ns + CLOCK_SLACK_NS:
        return "the file has changed since the run"
    return None


def edit(site: Site, wanted: Wanted) -> Edited:
    """Set the arguments in the text.

    Raises:
        UsageError: `loader-call-not-found`, with what to set by hand.
    """
    from whyidle.model.remedies import describe_settings
    from whyidle.trial.loader_call import set_arguments

    try:
        return set_arguments(
            site.source, site.line, wanted.arguments, had_workers=wanted.had_workers
        )
    except UsageError as error:
        raise UsageError(
            f"{str(site.path)!r}, {error.message}",
            slug="loader-call-not-found",
            hint=f"By hand, where the loader is made: {describe_settings(wanted.settings)}.",
        ) from error


def show(site: Site, wanted: Wanted, edited: Edited, folder: Path, *, apply: bool) -> None:
    """Print message and diff, keep them in the run folder, and change the file if that is asked for.

    Raises:
        UsageError: `source-changed` or `source-not-writable`: the file is left as it is.
    """
    from whyidle.trial import fixing

    root = fixing.find_root(site.path)
    message = fixing.write_message(wanted, edited.changes)
    patch = f"{message}\n{fixing.write_diff(site.path, root, site.source, edited.source)}"
    write_text(
        sys.stdout, patch.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )
    if site.changed is not None and not apply:
        write_aside(
            sys.stderr, f"whyidle: {site.changed}; look at the diff before you use it\n"
        )
    try:
        kept = fixing.save_patch(folder, patch)
        if apply:
            _apply(site, edited)
    except OSError as error:
        raise UsageError(
            f"cannot write {error.filename!r}: {error.strerror}; expected a file that can be written",
            slug="source-not-writable",
            hint="The diff is above: `git apply` and `patch -p1` take it.",
        ) from error
    said = f"kept in {kept}; --apply changes the file"
    if apply:
        said = (
            f"{site.path} is changed; back again with\n  {fixing.undo_command(kept, root)}"
        )
    write_aside(sys.stderr, f"whyidle: {said}\n")


def _apply(site: Site, edited: Edited) -> None:
    from whyidle.trial.fixing import replace_file

    if site.changed is not None:
        raise UsageError(
            f"{str(site.path)!r} is left as it is: {site.changed}; expected the file of the run",
            slug="source-changed",
            hint="Look at the diff above and apply it yourself, or try again with the file as it is now.",
        )
    replace_file(site.path, edited.source)


def say_rest(wanted: Wanted, edited: Edited) -> int:
    """Say what is left to do by hand; gives the exit status."""
    left = [f"{one.name}={one.value}: {one.reason}" for one in edited.by_hand]
    left += wanted.others
    if not edited.changes and not left:
        write_aside(sys.stderr, "whyidle: the call has these values already\n")
    if not left:
        return 0
    if not edited.changes:
        left.append(wanted.gain)
    write_aside(sys.stderr, f"whyidle: to set by hand\n{''.join(map(_indent, left))}")
    return LEFT_STATUS


def _indent(text: str) -> str:
    filled = textwrap.fill(
        text,
        HELP_WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{filled}\n"
