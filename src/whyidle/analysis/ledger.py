"""One entry of the idle ledger: idle time, who it is given to, and on which side of next() it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whyidle.model.waits import Wait

if TYPE_CHECKING:
    from whyidle.model.findings import Activity, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Idle time of one rank given to one activity at one place."""

    activity: Activity
    where: Place
    idle_ns: float
    is_input: bool
    """True: the loader's side; False: the loop's own code."""
    wait: int = Wait.NONE
    """What was waited for (waits.Wait), for blocked time."""
    is_periodic: bool = False
    """Loop side: in few steps only."""
    is_serial: bool = False
    """Moving batches: most of it where only one can work at a time, in the loop's process."""
    sample_count: int = 0
    """Stack samples behind the place; 0 without one."""
    path_ns: float | None = None
    """What the critical path alone gives, where `idle_ns` is by simulated effect; None: it is the path's."""
