"""What `whyidle prove` found out about a function and its replacement. Frozen, every field documented.

The JSON form (`Proof.to_json`) has schema_version 1; fields are only added.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whyidle.model.findings import Forecast

PROOF_SCHEMA_VERSION = 1


class ProofOutcome(Enum):
    """What is known of the replacement."""

    FASTER = "equal-and-faster"
    NOT_FASTER = "equal-not-faster"
    """Equal, and the interval of its speed holds a standstill or less."""
    DIFFERENT = "not-equal"
    UNDECIDED = "undecided"
    """OLD does not give again what it gave in the training, or results cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """One kind of finding about calls."""

    count: int
    """Calls with it."""
    examples: tuple[str, ...]
    """The first few: the call, and what is the matter with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCounts:
    """What was captured, and what was not."""

    calls: int
    """Calls seen in the training; at least this many."""
    mean_wall_ns: float
    """Time of a call in the training, ns; what keeping it took is not in it."""
    mean_cpu_ns: float
    """CPU time of it, of the calling thread."""
    kept: int
    checked: int
    """Kept calls that were replayed; fewer than `kept` when all would take too long."""
    raised: int
    """Calls that ended in an exception: not kept."""
    refused: Mapping[str, int]
    """Reason to count of calls that could not be kept."""
    drew_random: int
    """Checked calls that moved a global random generator: replayed from its state before the call."""
    changed_arguments: int
    """Checked calls that changed their arguments in place: compared as well."""
    effects: Mapping[str, int]
    """What checked calls did outside of their memory: `writes files`, ... to a count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """OLD and NEW side by side, as many processes at once as the training had workers."""

    processes: int
    rounds: int
    """Interleaved pairs of blocks that were measured."""
    old_ns: float
    """Mean time of a call of OLD, ns: on a CPU or blocked; waiting for a free CPU is left out."""
    new_ns: float
    speedup: float
    """`old_ns / new_ns`."""
    low: float
    """Ends of the 90 % interval of `speedup`: over the captured inputs and over the rounds."""
    high: float
    old_wall_ns: float
    """The same with the wait for a CPU."""
    new_wall_ns: float
    old_cpu_ns: float
    """CPU time of the calling thread."""
    new_cpu_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Everything about one OLD and one NEW."""

    old: str
    """`file.py:function`."""
    new: str
    rtol: float
    atol: float
    """Numbers with a fraction may differ by `atol + rtol * |expected|`."""
    capture: CaptureCounts
    not_reproduced: Findings
    """Calls for which OLD does not give what it gave in the training."""
    different: Findings
    """Calls for which NEW gives something else than OLD."""
    not_comparable: Findings
    timing: Timing | None
    """None when NEW is not equal: there is nothing to gain from it."""
    forecast: Forecast | None
    """Of the whole training with NEW in place of OLD."""
    forecast_missing: str | None
    """Why there is no forecast; None when there is one."""

    @property
    def outcome(self) -> ProofOutcome:
        """Sum it up: a difference counts even where OLD is not reproduced."""
        if self.different.count:
            return ProofOutcome.DIFFERENT
        if self.not_reproduced.count or self.not_comparable.count or self.timing is None:
            return ProofOutcome.UNDECIDED
        return ProofOutcome.FASTER if self.timing.low > 1 else ProofOutcome.NOT_FASTER

    def to_json(self) -> dict[str, Any]:
        """Give the public JSON form (schema_version 1)."""
        return {
            "schema_version": PROOF_SCHEMA_VERSION,
            "outcome": self.outcome.value,
            **asdict(self),
        }
