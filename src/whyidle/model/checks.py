"""What was tried on this machine, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """How a check ended."""

    OK = "ok"
    LIMITED = "limited"
    """It works, but something of the machine narrows what a verdict can say or a training can use."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that a verdict may need."""

    name: str
    """What was tried, in two or three words."""
    state: State
    found: str
    """What is there; where it is not OK, what follows for a verdict."""
    remedy: str | None = None
    """What to do about it; None when there is nothing to do."""
