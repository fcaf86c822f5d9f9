"""What analysis hands to views: causes, blame, evidence, prescriptions, the verdict. Frozen, every field documented.

The JSON form (`Verdict.to_json`) is a public contract, schema_version 1; fields are only added.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

VERDICT_SCHEMA_VERSION = 1


class Limit(Enum):
    """What bounds the training now."""

    INPUT = "input"
    TRANSFER = "transfer"
    HOST = "host"
    PEERS = "peers"
    DEVICE = "device"
    UNRESOLVED = "unresolved"


class Activity(Enum):
    """What the thing that was waited for was doing."""

    COMPUTE = "compute"
    CPU_QUEUE = "cpu-queue"
    THROTTLED = "throttled"
    STORAGE = "storage"
    NETWORK = "network"
    LOCK = "lock"
    SLEEP = "sleep"
    TRANSPORT = "transport"
    SAMPLER = "sampler"
    STARTUP = "startup"
    MEMORY = "memory"
    COPY = "copy"
    SYNC = "sync"
    LAUNCH = "launch"
    PYTHON = "python"
    COLLECTIVE = "collective"
    UNEXPLAINED = "unexplained"


class Regime(Enum):
    """Why the loop had to wait for it."""

    SERIAL = "serial"
    THROUGHPUT = "throughput"
    FEW_WORKERS = "few-workers"
    HEAD_OF_LINE = "head-of-line"
    BURSTY = "bursty"
    SERIAL_STAGE = "serial-stage"
    CONTENDED = "contended"
    LOCK_BOUND = "lock-bound"
    INACTIVE_WORKERS = "inactive-workers"
    EPOCH_START = "epoch-start"
    PERIODIC = "periodic"
    STEADY = "steady"
    STRAGGLER = "straggler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cause is. Each field is None when it does not apply or is not known."""

    file: str | None = None
    """Source file as the interpreter knew it."""
    line: int | None = None
    """Line in `file` with the most time, from 1."""
    function: str | None = None
    """Function that holds the line."""
    transform: str | None = None
    """Name of the transform in a Compose-like container."""
    mount: str | None = None
    """Mount point of the file system that was waited for, with its type: `/data (fuse.sshfs)`."""
    process: str | None = None
    """Process outside the training that is to blame, by name."""
    rank: int | None = None
    """Rank, when the cause is not the same on all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured fact in words, with its number."""

    text: str
    """A sentence a person can check: `2 of 2 workers on a CPU 96 % of the time`."""
    value: float | None
    """The number in the sentence, in `unit`; None where the sentence has none."""
    unit: str | None
    """`ratio`, `ns`, `count`, `bytes`, `bytes/s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for idle time, and the blame it carries."""

    activity: Activity
    regime: Regime
    share: float
    """Part of the run's idle time, 0 to 1. All causes and the unexplained rest add up to 1."""
    idle_ns: int
    """Idle time given to this cause, ns, summed over ranks."""
    where: Place
    evidence: tuple[Evidence, ...]
    path_share: float | None = None
    """Share by the critical path alone, where CPUs are contended and `share` is the simulated effect of speeding
    the cause up; None: `share` is the path's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted effect of a change, with a 90 % interval. `speedup` is steps per second after / before."""

    speedup: float
    low: float
    high: float
    basis: str
    """How it was found: `event simulation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prescription:
    """A remedy for this run."""

    remedy: str
    """Id of the remedy, a closed set (docs/glossary.md)."""
    where: Place
    title: str
    how: str
    """What to write or do, in a person's own terms."""
    automatic: bool
    """True: `whyidle try` can inject it without touching the script."""
    forecast: Forecast
    settings: tuple[tuple[str, int | bool | str], ...] = ()
    """What to inject, by name (see `model/remedies.py`); empty unless `automatic`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A change that is no prescription, and why: it would not help, or nobody can say for sure what it would gain."""

    remedy: str
    where: Place
    title: str
    how: str
    """What to do if it is wanted all the same; empty where nothing is gained."""
    reason: str
    forecast: Forecast | None
    """None: there is none, for the reason given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The best two prescriptions made together."""

    first: str
    """Title of the one."""
    second: str
    """Title of the other."""
    forecast: Forecast
    note: str
    """How the two act on each other, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotObserved:
    """Something that could not be seen, and what follows from that."""

    slug: str
    """Entry in `docs/messages.md`."""
    reason: str
    """Why, and which statement of the verdict is weaker for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What was run."""

    command: tuple[str, ...]
    steps: int
    """Steps the verdict rests on: those of the loader that fed most, without warm-up steps; of all ranks."""
    warmup_steps: int
    """Steps at the start that were left out."""
    ranks: int
    duration_ns: int
    """Length of the analysed window, ns; of the longest rank."""
    python: str | None
    torch: str | None
    device_kind: str
    """`cuda`, `simulated` or `cpu` (no accelerator: the loop outside next() counts as busy)."""
    device_name: str | None
    exit_status: int | None
    """As a shell reports it; None while unknown (the observer was killed)."""
    ended_by: str | None = None
    """`steps` or `seconds`: the bound that was asked for ended the training; `interrupt`; None: it ended by itself."""
    workers: int | None = None
    """num_workers of the loader that fed most steps; None without a loader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSplit:
    """How one worker spent the window: the four parts add up to 1."""

    rank: int
    worker: int
    on_cpu_ratio: float
    cpu_queue_ratio: float
    """Ready, but no CPU was free."""
    blocked_ratio: float
    idle_ratio: float
    """Waiting for indices: nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one run."""

    run: RunSummary
    limit: Limit
    sentence: str
    """The verdict in one or two sentences."""
    step_median_ns: int | None
    """Median step time, ns; None when no step was seen."""
    step_p90_ns: int | None
    idle_ratio: float | None
    """Part of the window in which the device had nothing to do, 0 to 1; None when it is not known."""
    unexplained_ratio: float
    """Part of the idle time that has no cause, 0 to 1."""
    causes: tuple[Cause, ...]
    """Sorted by share, largest first; no `unexplained` among them."""
    prescriptions: tuple[Prescription, ...]
    not_observed: tuple[NotObserved, ...]
    workers: tuple[WorkerSplit, ...] = ()
    idle_series: tuple[float, ...] = ()
    """Idle ratio in equal slices of the window, for the idle bar; empty when unknown."""
    would_not_help: tuple[Aside, ...] = ()
    """Changes that people try first and that gain nothing here, with the figure."""
    may_help: tuple[Aside, ...] = ()
    """Changes that fit a cause, but whose gain is not sure: the interval includes none, or nothing can be forecast."""
    ceiling: Forecast | None = None
    """What a loader that costs nothing would gain: no change of the input gains more; None without a forecast."""
    pair: Pair | None = None
    """None with fewer than two prescriptions that can be made together."""

    def to_json(self) -> dict[str, Any]:
        """Give the public JSON form (schema_version 1)."""
        return {
            "schema_version": VERDICT_SCHEMA_VERSION,
            "run": {
                "command": list(self.run.command),
                "steps": self.run.steps,
                "warmup_steps": self.run.warmup_steps,
                "ranks": self.run.ranks,
                "workers": self.run.workers,
                "duration_ns": self.run.duration_ns,
                "python": self.run.python,
                "torch": self.run.torch,
                "device": {"kind": self.run.device_kind, "name": self.run.device_name},
                "exit_status": self.run.exit_status,
                "ended_by": self.run.ended_by,
            },
            "limit": self.limit.value,
            "sentence": self.sentence,
            "step_ns": {"median": self.step_median_ns, "p90": self.step_p90_ns},
            "idle_ratio": self.idle_ratio,
            "unexplained_ratio": self.unexplained_ratio,
            "causes": [
                {
                    "activity": cause.activity.value,
                    "regime": cause.regime.value,
                    "share": cause.share,
                    "idle_ns": cause.idle_ns,
                    "where": asdict(cause.where),
                    "evidence": [asdict(evidence) for evidence in cause.evidence],
                    "path_share": cause.path_share,
                }
                for cause in self.causes
            ],
            "prescriptions": [
                asdict(prescription) | {"settings": dict(prescription.settings)}
                for prescription in self.prescriptions
            ],
            "not_observed": [asdict(missing) for missing in self.not_observed],
            "workers": [asdict(split) for split in self.workers],
            "idle_series": list(self.idle_series),
            "would_not_help": [asdict(one) for one in self.would_not_help],
            "may_help": [asdict(one) for one in self.may_help],
            "ceiling": None if self.ceiling is None else asdict(self.ceiling),
            "pair": None if self.pair is None else asdict(self.pair),
        }
