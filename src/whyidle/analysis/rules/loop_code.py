"""The loop's own code, told apart by what its line says: a checkpoint, a log, a metric."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from whyidle.analysis.rules.case import Case
    from whyidle.model.findings import Cause

CHECKPOINT = re.compile(
    r"torch\.save|save_file|\bsave_|state_dict|checkpoint", re.IGNORECASE
)
LOGGING = re.compile(
    r"\bprint\(|\blog(ger|ging)?\b|\.log\(|log_metric|add_(scalar|image|histogram)|wandb|tensorboard|mlflow",
    re.IGNORECASE,
)


def checkpoints(case: Case) -> list[Cause]:
    """Causes that write a checkpoint."""
    return [one for one in _own(case) if CHECKPOINT.search(_text(case, one))]


def logs(case: Case) -> list[Cause]:
    """Causes that write a log."""
    known = checkpoints(case)
    return [
        one for one in _own(case) if one not in known and LOGGING.search(_text(case, one))
    ]


def metrics(case: Case) -> list[Cause]:
    """Causes that work element by element in Python."""
    known = checkpoints(case) + logs(case)
    return [
        one
        for one in _own(case)
        if one not in known and case.loop_at(one.where) is not None
    ]


def is_special(case: Case, cause: Cause) -> bool:
    """Tell whether a more precise rule speaks of it."""
    return cause in (*checkpoints(case), *logs(case), *metrics(case))


def _own(case: Case) -> list[Cause]:
    return case.causes_of(Activity.PYTHON)


def _text(case: Case, cause: Cause) -> str:
    return f"{cause.where.function or ''} {case.source_line(cause.where) or ''}"
