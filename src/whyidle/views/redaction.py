"""A verdict without paths, to be shown to strangers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whyidle.model.comparison import Comparison
    from whyidle.model.findings import (
        Aside,
        Cause,
        NotObserved,
        Place,
        Prescription,
        Verdict,
    )

_FOLDERS = re.compile(r"(?<![^\s'\"=(,:\[`])(?:~[\w.-]*|\.{1,2})?/(?=\S)(?:[^\s/'\"]+/)*")
"""The folders of a path that starts with `/`, `~`, `./` or `../`; not those of `I/O` or `bytes/s`, nor a division."""
_MOUNT = re.compile(r"/[^\s()'\"]*(?= \([\w.-]+\))")
"""A mount point in front of its type: `/data/set (fuse.sshfs)`."""
HIDDEN = "…/"


def hide_folders(text: str) -> str:
    """Leave the last part of each path in a text.

    >>> hide_folders("read /data/secret/7.png at 3 MB/s, --out=/tmp/x, on /mnt/set (nfs4)")
    'read …/7.png at 3 MB/s, --out=…/x, on …/ (nfs4)'
    >>> hide_folders("`points[:, 0] / STRIDE`, `open('/data/secret/x')`")
    "`points[:, 0] / STRIDE`, `open('…/x')`"
    """
    return _FOLDERS.sub(HIDDEN, _MOUNT.sub(HIDDEN, text))


def redact_verdict(verdict: Verdict) -> Verdict:
    """Give the same verdict with the folders of all paths hidden."""
    return replace(
        verdict,
        run=replace(
            verdict.run, command=tuple(_hide_in_word(word) for word in verdict.run.command)
        ),
        sentence=hide_folders(verdict.sentence),
        causes=tuple(map(_redact_cause, verdict.causes)),
        prescriptions=tuple(map(_redact_prescription, verdict.prescriptions)),
        not_observed=tuple(map(_redact_missing, verdict.not_observed)),
        would_not_help=tuple(map(_redact_aside, verdict.would_not_help)),
        may_help=tuple(map(_redact_aside, verdict.may_help)),
        pair=verdict.pair
        and replace(
            verdict.pair,
            first=hide_folders(verdict.pair.first),
            second=hide_folders(verdict.pair.second),
        ),
    )


def redact_comparison(comparison: Comparison) -> Comparison:
    """Give the same comparison with the folders of all paths hidden."""
    return replace(
        comparison,
        before=redact_verdict(comparison.before),
        after=redact_verdict(comparison.after),
        sentence=hide_folders(comparison.sentence),
        causes=tuple(
            replace(one, where=_redact_place(one.where)) for one in comparison.causes
        ),
    )


def _hide_in_word(word: str) -> str:
    """Hide folders in one word of a command, relative ones too: `--data=a/b/c` becomes `--data=…/c`."""
    option, equals, value = word.partition("=")
    if not equals:
        option, value = "", word
    folders, slash, name = value.rstrip("/").rpartition("/")
    return f"{option}{equals}{HIDDEN}{name}" if folders or slash else word


def _redact_cause(cause: Cause) -> Cause:
    evidence = tuple(replace(one, text=hide_folders(one.text)) for one in cause.evidence)
    return replace(cause, where=_redact_place(cause.where), evidence=evidence)


def _redact_prescription(one: Prescription) -> Prescription:
    return replace(
        one,
        where=_redact_place(one.where),
        title=hide_folders(one.title),
        how=hide_folders(one.how),
    )


def _redact_aside(one: Aside) -> Aside:
    return replace(
        one,
        where=_redact_place(one.where),
        title=hide_folders(one.title),
        how=hide_folders(one.how),
        reason=hide_folders(one.reason),
    )


def _redact_place(place: Place) -> Place:
    file = place.file and _hide_in_word(place.file)
    mount = place.mount and _hide_mount(place.mount)
    return replace(place, file=file, mount=mount)


def _hide_mount(mount: str) -> str:
    _, parenthesis, fstype = mount.rpartition(" (")
    return f"{HIDDEN}{parenthesis}{fstype}" if parenthesis else HIDDEN


def _redact_missing(missing: NotObserved) -> NotObserved:
    return replace(missing, reason=hide_folders(missing.reason))
