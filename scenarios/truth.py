"""What is planted where: `truth.toml` beside each training script."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # a requirement of pytest on Python 3.10

FOLDER = Path(__file__).resolve().parent
SPLITS = ("dev", "held-out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to start the script."""

    workers: int
    batch_size: int
    step_ms: float

    def arguments(self) -> list[str]:
        """Give the command-line arguments."""
        return [
            f"--workers={self.workers}",
            f"--batch-size={self.batch_size}",
            f"--step-ms={self.step_ms:g}",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TruePlace:
    """Where the planted cause is. All fields None: it has no place in the script."""

    functions: tuple[str, ...] = ()
    """Functions that may be named; the first is the one that holds the planted lines."""
    first_line: int | None = None
    last_line: int | None = None
    """Planted lines in train.py, from 1, both included; None without a snippet."""
    mount: str | None = None
    """Placeholder of the mount point that is waited for, `{fuse}`."""
    process: str | None = None
    """Name of the other process that is to blame."""
    optional: bool = False
    """True: naming the place is welcome, not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """An answer that is right as well."""

    activity: str
    regimes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueCause:
    """One planted cause."""

    activity: str
    regimes: tuple[str, ...]
    """Regimes that are right; the first is the best one."""
    place: TruePlace
    allowed: tuple[Allowed, ...]
    least_share: float | None = None
    """Least share of the idle time that a verdict has to give it; None when it only has to be first."""
    cure: str | None = None
    """With several causes: `--cured=<this>` removes this one alone; None: the script has no such switch."""
    cured_environment: dict[str, dict[str, Any]] | None = None
    """The surroundings without this cause alone; None: as the scenario's."""
    change: dict[str, Any] = field(default_factory=dict)
    """Fields of `whyidle.analysis.forecast.Change` that say the cure, where activity and place do not."""

    @property
    def removable_alone(self) -> bool:
        """Whether it can be removed while the scenario's other causes stay."""
        return self.cure is not None or self.cured_environment is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A training script and the truth about it."""

    name: str
    title: str
    kind: str
    split: str
    """`dev`: rules were developed on it; `held-out`: they were not, and it is reported apart."""
    limits: tuple[str, ...]
    """What bounds the training, best answer first; `notes` says why there is more than one."""
    causes: tuple[TrueCause, ...]
    """Planted causes; none for a healthy control. With several, any of them may be first."""
    settings: tuple[Setting, ...]
    launcher: tuple[str, ...]
    """What stands between the interpreter and the script: `-m torch.distributed.run …`."""
    arguments: tuple[str, ...]
    """Further arguments of the script; `{…}` is filled in by the surroundings."""
    environment: dict[str, dict[str, Any]]
    """Parts of the surroundings by name, with their parameters."""
    cured_environment: dict[str, dict[str, Any]]
    """The same when the cause is removed."""
    needs: tuple[str, ...]
    cases: tuple[str, ...]
    """Case ids of real reports that this one stands for."""
    notes: str | None

    @property
    def script(self) -> Path:
        """The training script."""
        return FOLDER / self.name / "train.py"


def parse_place(table: dict[str, Any], source: str) -> TruePlace:
    """Find the planted lines in the script's source.

    Raises:
        ValueError: A snippet is not in the source exactly once.
    """
    first_line = last_line = None
    if "snippet" in table:
        first_line = line_of(table["snippet"], source)
        last_line = line_of(table["until"], source) if "until" in table else first_line
    function = [table["function"]] if "function" in table else []
    return TruePlace(
        functions=(*function, *table.get("also", ())),
        first_line=first_line,
        last_line=last_line,
        mount=table.get("mount"),
        process=table.get("process"),
        optional=table.get("optional", False),
    )


def line_of(snippet: str, source: str) -> int:
    """Give the number of the line that holds a snippet, from 1."""
    if source.count(snippet) != 1:
        msg = f"snippet {snippet!r} is {source.count(snippet)} times in the script, expected once"
        raise ValueError(msg)
    return source[: source.index(snippet)].count("\n") + 1


def parse_cause(table: dict[str, Any], source: str) -> TrueCause:
    """Read one `[[causes]]` table."""
    allowed = [
        Allowed(activity=it["activity"], regimes=tuple(it["regimes"]), reason=it["reason"])
        for it in table.get("allowed", ())
    ]
    return TrueCause(
        activity=table["activity"],
        regimes=tuple(table["regimes"]),
        place=parse_place(table.get("place", {}), source),
        allowed=tuple(allowed),
        least_share=table.get("least_share"),
        cure=table.get("cure"),
        cured_environment=table.get("cured_environment"),
        change=table.get("change", {}),
    )


def load_scenario(name: str) -> Scenario:
    """Load one scenario by the name of its folder.

    Raises:
        ValueError: `split` is none of the two, or a snippet is not in the script exactly once.
    """
    table = tomllib.loads((FOLDER / name / "truth.toml").read_text())
    source = (FOLDER / name / "train.py").read_text()
    environment = table.get("environment", {})
    split = table.get("split", "dev")
    if split not in SPLITS:
        msg = f"{name}: split is {split!r}, expected one of {', '.join(SPLITS)}"
        raise ValueError(msg)
    return Scenario(
        name=name,
        title=table["title"],
        kind=table["kind"],
        split=split,
        limits=(table["limit"], *table.get("allowed_limits", ())),
        causes=tuple(parse_cause(cause, source) for cause in table.get("causes", ())),
        settings=tuple(Setting(**setting) for setting in table["settings"]),
        launcher=tuple(table.get("launcher", ())),
        arguments=tuple(table.get("arguments", ())),
        environment=environment,
        cured_environment=table.get("cured_environment", environment),
        needs=tuple(table.get("needs", ())),
        cases=tuple(table.get("cases", ())),
        notes=table.get("notes"),
    )


def scenario_names() -> list[str]:
    """Give the names of all scenarios, sorted."""
    return sorted(path.parent.name for path in FOLDER.glob("*/truth.toml"))
