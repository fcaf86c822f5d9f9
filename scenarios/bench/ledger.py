"""Results as JSON lines: appended run by run, read again to go on, and told apart by the code that made them."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from scenarios.bench.plan import Job
from scenarios.truth import FOLDER

SOURCES = FOLDER.parent / "src"
HASH_LENGTH = 12

Key = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: what was measured, what was said. Grades are computed from it, never stored."""

    scenario: str
    setting: int
    arm: str
    repeat: int
    attempt: int
    """How often this run had been made before, because others disturbed it or it failed."""
    script_code: str
    """Hash of the scenario and its surroundings."""
    tool_code: str | None
    """Hash of whyidle's sources; None where whyidle was not used."""
    seconds: float
    """Length that was asked for, s."""
    started: str
    """Time of day, ISO 8601, UTC."""
    taken_s: float
    """From the start of the surroundings to their end, s."""
    statistic: dict[str, Any] | None = None
    """What the script printed about itself."""
    verdict: dict[str, Any] | None = None
    """What whyidle wrote."""
    answer: dict[str, Any] | None = None
    """What another tool said, in our words."""
    forecasts: list[dict[str, Any]] = field(default_factory=list)
    """What whyidle forecasts from this run alone, for each change that is measured by another arm."""
    forecast_missing: str | None = None
    """Why there are no forecasts; None when there are, or none was asked for."""
    values: dict[str, str] = field(default_factory=dict)
    """What the surroundings filled in for placeholders."""
    load: dict[str, float] = field(default_factory=dict)
    """Load from outside during the run."""
    disturbed: list[str] = field(default_factory=list)
    """Reasons why the run counts as disturbed; empty: it does not."""
    failure: str | None = None
    """Why there is no result; None when there is one."""
    skipped: str | None = None
    """Why it cannot be run on this machine; None when it can."""

    @property
    def key(self) -> Key:
        """The job that this answers."""
        return self.scenario, self.setting, self.arm, self.repeat

    @property
    def step_s(self) -> float | None:
        """Mean step time, s; None when it is not known."""
        rate = (self.statistic or {}).get("steps_per_second")
        return 1 / rate if rate else None


class Ledger:
    """All results of a file. What was made by other code than today's is stale."""

    def __init__(self, path: Path | None, *, keep_stale: bool = False) -> None:
        """Read what is there; `path` None: nothing is kept. `keep_stale`: use old results as if they were new."""
        self.path = path
        self.keep_stale = keep_stale
        self.rows: dict[Key, list[Row]] = defaultdict(list)
        self.stale: dict[Key, list[Row]] = defaultdict(list)
        for row in read_rows(path):
            self._file(row)

    def _file(self, row: Row) -> None:
        old = is_stale(row)
        if old:
            self.stale[row.key].append(row)
        if not old or self.keep_stale:
            self.rows[row.key].append(row)

    def add(self, row: Row) -> None:
        """Keep a result, at once."""
        self._file(row)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    def is_settled(self, job: Job, attempts: int) -> bool:
        """Say whether a job needs no (further) run: it was undisturbed, cannot run here, or was tried often enough."""
        rows = self.rows.get(job.key, [])
        done = any(row.skipped or not (row.disturbed or row.failure) for row in rows)
        return done or len(rows) >= attempts

    def best(self, key: Key) -> Row | None:
        """Give the run that counts: without failure, the least disturbed, and the newest of those."""
        rows = [row for row in self.rows.get(key, []) if not row.skipped]
        if not rows:
            return None
        return min(reversed(rows), key=lambda it: (bool(it.failure), len(it.disturbed)))

    def counted(self, keys: Iterable[Key]) -> list[Row]:
        """Give the run that counts of each job that was run."""
        return [row for row in map(self.best, keys) if row is not None]


def read_rows(path: Path | None) -> list[Row]:
    """Read a results file; a line that was cut off by a kill is left out."""
    if path is None or not path.exists():
        return []
    known = {it.name for it in fields(Row)}
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            table = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows.append(Row(**{name: value for name, value in table.items() if name in known}))
    return rows


def is_stale(row: Row) -> bool:
    """Say whether a result was made by other code than what lies here now."""
    if not (FOLDER / row.scenario).is_dir():
        return True
    script = row.script_code != script_code(row.scenario)
    return script or (row.tool_code is not None and row.tool_code != tool_code())


@cache
def tool_code() -> str:
    """Hash whyidle's sources."""
    return hash_of(sorted(SOURCES.rglob("*.py")))


@cache
def script_code(scenario: str) -> str:
    """Hash a scenario's script and truth's surroundings, and the helpers that all share."""
    helpers = ("surroundings.py", "slow_files.py", "object_store.py", "neighbour.py")
    own = [it for it in sorted((FOLDER / scenario).iterdir()) if it.is_file()]
    return hash_of([*own, *(FOLDER / name for name in helpers)])


def hash_of(paths: Iterable[Path]) -> str:
    """Hash names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:HASH_LENGTH]
