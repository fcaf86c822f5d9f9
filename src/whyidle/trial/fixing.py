"""What a trial proved, or a run forecasts, as a change of the script: message, diff, and what is left to do by hand.

A diff is written so that `git apply` and `patch -p1` take it, and take it back with -R. Text in front of a diff is a
commit message to git.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import shlex
import tempfile
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyidle.errors import RunFolderError, UsageError
from whyidle.model.remedies import (
    LOADER_ARGUMENTS,
    describe_settings,
    make_settings,
    other_lines,
)
from whyidle.store.rundir import DEFAULT_PARENT
from whyidle.trial.record import REPORT_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.model.findings import Verdict
    from whyidle.model.remedies import Settings
    from whyidle.model.trial import LoaderSite

_TRIAL_NAME = re.compile(r"trial-(\d{8}-\d{6})-(\d{1,9})")
PATCH_NAME = "fix.patch"
MESSAGE_WIDTH = 72
"""Of the lines of a commit message, as git's own tools have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A change worth making, and why."""

    settings: Settings
    """What to set; arguments of the DataLoader first."""
    file: str | None
    """Where the loader is built; None when it is not known."""
    line: int | None
    had_workers: bool
    """Whether the loader had workers in the run."""
    gain: str
    """What was measured or forecast, in a sentence or two."""
    is_proven: bool
    """It was measured; else it is a forecast."""

    @property
    def arguments(self) -> dict[str, int | bool | str]:
        """The settings that are arguments of the DataLoader."""
        return {name: value for name, value in self.settings if name in LOADER_ARGUMENTS}

    @property
    def others(self) -> tuple[str, ...]:
        """How to make the changes that are no arguments of the DataLoader."""
        return other_lines(self.settings)


def find_trials(named: Path | None) -> list[Path]:
    """Give the folders of trials that are meant, oldest first: one that is named itself, else those in the folder."""
    folder = Path(DEFAULT_PARENT) if named is None else named
    if (folder / REPORT_NAME).exists():
        return [folder]
    found = [
        (match[1], int(match[2]), path)
        for path in folder.glob("trial-*")
        if (match := _TRIAL_NAME.fullmatch(path.name)) and (path / REPORT_NAME).exists()
    ]
    return [path for _, _, path in sorted(found)]


def load_proven(trial_dir: Path) -> Wanted | None:
    """Load the best change that a trial proved; None when it proved none.

    Raises:
        RunFolderError: `trial-damaged`.
    """
    path = trial_dir / REPORT_NAME
    try:
        report = json.loads(path.read_bytes())
        best, site = report["best"], report["loader"]
        if best is None:
            return None
        settings = make_settings(best["settings"])
        result = next(
            one
            for one in report["candidates"]
            if make_settings(one["settings"]) == settings
        )
        return Wanted(
            settings=settings,
            file=site["file"],
            line=site["line"],
            had_workers=bool(site["settings"].get("num_workers")),
            gain=_describe_measured(report["command"], best, result),
            is_proven=True,
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        StopIteration,
    ) as error:
        raise RunFolderError(
            f"{str(path)!r} cannot be read ({type(error).__name__}); expected the report of a trial",
            slug="trial-damaged",
            hint="Run `whyidle try` again.",
        ) from error


def _describe_measured(
    command: Sequence[str], best: dict[str, Any], result: dict[str, Any]
) -> str:
    pairs = result["measured"]["pairs"]
    said = (
        f"whyidle try measured {best['speedup']:.2f} times as many steps a second with it (90 % interval "
        f"{best['low']:.2f} to {best['high']:.2f}, {pairs} pairs of interleaved runs of `{shlex.join(command)}`)."
    )
    state, note = result["losses"]["state"], result["losses"]["note"].rstrip(".")
    return f"{said} Losses {state.replace('-', ' ')}: {note}." if note else said


def find_forecast(verdict: Verdict, site: LoaderSite | None) -> Wanted | None:
    """Give the automatic prescription with the largest forecast; None when a verdict has none."""
    chosen = next(
        (one for one in verdict.prescriptions if one.automatic and one.settings), None
    )
    if chosen is None:
        return None
    forecast = chosen.forecast
    return Wanted(
        settings=make_settings(dict(chosen.settings)),
        file=site.file if site else None,
        line=site.line if site else None,
        had_workers=bool(site and dict(site.settings).get("num_workers")),
        gain=(
            f"whyidle forecasts {forecast.speedup:.2f} times as many steps a second with it (90 % interval "
            f"{forecast.low:.2f} to {forecast.high:.2f}, {forecast.basis}). It is a forecast: it has not been tried."
        ),
        is_proven=False,
    )


def write_message(wanted: Wanted, changes: Sequence[str]) -> str:
    """Write a commit message: what is set in the first line, then what it gains."""
    values = [change.partition(" ")[0] for change in changes]
    subject = f"Set {', '.join(values)} where the loader is built"
    if len(subject) > MESSAGE_WIDTH:
        names = [value.partition("=")[0] for value in values]
        subject = f"Set {', '.join(names)} where the loader is built"
    body = textwrap.fill(
        wanted.gain, MESSAGE_WIDTH, break_long_words=False, break_on_hyphens=False
    )
    listed = "\n".join(f"    {change}" for change in changes)
    return f"{subject}\n\n{body}\n\n{listed}\n"


def write_diff(path: Path, root: Path, before: bytes, after: bytes) -> str:
    """Write a unified diff with the file's path below a root."""
    name = path.relative_to(root).as_posix()
    # A tab ends a name with spaces.
    name += "\t" if " " in name else ""
    lines = difflib.unified_diff(
        _lines_of(before), _lines_of(after), f"a/{name}", f"b/{name}"
    )
    written = [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    ]
    return "".join(written)


def _lines_of(source: bytes) -> list[str]:
    # Not splitlines(): a form feed within a line does not end it.
    parts = source.decode("utf-8", "surrogateescape").split("\n")
    return [f"{one}\n" for one in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def find_root(path: Path) -> Path:
    """Give the folder that a diff's paths start from: that of the repository, else the current one, else the file's."""
    for folder in path.parents:
        if (folder / ".git").exists():
            return folder
    here = Path.cwd().resolve()
    return here if here in path.parents else path.parent


def undo_command(patch: Path, root: Path) -> str:
    """Say how to take a patch back."""
    where, what = shlex.quote(str(root)), shlex.quote(str(patch.resolve()))
    if (root / ".git").exists():
        return f"git -C {where} apply -R {what}"
    return f"patch -R -p1 -d {where} -i {what}"


def save_patch(folder: Path, text: str) -> Path:
    """Keep a patch in a run folder, under a name that is free or has the same text.

    Raises:
        OSError: the folder cannot be written.
    """
    data = text.encode("utf-8", "surrogateescape")
    number = 1
    while True:
        stem, dot, suffix = PATCH_NAME.partition(".")
        path = folder / (PATCH_NAME if number == 1 else f"{stem}-{number}{dot}{suffix}")
        if not path.exists() or path.read_bytes() == data:
            path.write_bytes(data)
            return path
        number += 1


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content: the old or the new one is there at any moment. Mode and owner stay.

    Raises:
        OSError: the file or its folder cannot be written.
    """
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    status = path.stat()
    file, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(file, "wb") as opened:
            os.fchmod(opened.fileno(), status.st_mode & 0o7777)
            with suppress(PermissionError):
                os.fchown(opened.fileno(), status.st_uid, status.st_gid)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def nothing_proven(folder: Path, reason: str) -> UsageError:
    """Say that there is nothing to set."""
    return UsageError(
        f"there is nothing to set from {str(folder)!r}: {reason}; expected a proven change",
        slug="nothing-proven",
        hint="Try changes with `whyidle try -- COMMAND`; --forecast takes the best forecast, which is not proven.",
    )


def not_editable(wanted: Wanted, reason: str) -> UsageError:
    """Say that the loader is built where nothing is edited, with what to set by hand."""
    return UsageError(
        f"the place where the loader is built cannot be edited: {reason}; expected a file of the project",
        slug="loader-elsewhere",
        hint=f"By hand, where the loader is configured: {describe_settings(wanted.settings)}.",
    )
