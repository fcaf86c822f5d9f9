"""The numbers that records carry, as enumerations.

`whyidle_agent.wire` writes them; analysis knows them by these names, so that no arrow leads from here into the agent.
`tests/contract` holds both lists equal. What a thread waits for is `whyidle.model.waits.Wait`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class LoaderFlag(IntFlag):
    """How a DataLoader was set up (wire.LOADER_*)."""

    PIN = 1
    PERSISTENT = 2
    IN_ORDER = 4
    ITERABLE = 8
    RESUMED = 16
    """The workers of an earlier iteration were kept."""


class AskFlag(IntFlag):
    """How a call of next() went (wire.ASK_*)."""

    READY = 1
    """The batch had been received before."""
    ENDED = 2
    """It answered StopIteration."""
    RAISED = 4


class FetchFlag(IntFlag):
    """How a batch was made (wire.FETCH_*)."""

    BATCHED = 1
    """One `__getitems__` call made all samples."""
    RAISED = 2
    THINNED = 4
    """Its samples were not recorded."""


class StackFlag(IntFlag):
    """What a sampled thread was in (wire.STACK_*)."""

    ON_CPU = 1
    BLOCKED = 2
    IN_FETCH = 4
    IN_NEXT = 8
    IN_COLLATE = 16


class StackRole(IntEnum):
    """Whose stack it is (wire.STACK_ROLE_*)."""

    LOOP = 1
    WORKER = 2
    PIN = 3
    OTHER = 4


class Mark(IntEnum):
    """What the loop's thread did (wire.MARK_*)."""

    BACKWARD = 1
    OPTIMIZER = 2
    SYNC = 3
    GC = 4
    SAVE = 5
    COLLECTIVE = 6


class DeviceCode(IntEnum):
    """Which clock a device has (wire.DEVICE_KIND_*)."""

    SIMULATED = 1
    CUDA = 2


class ProcessRole(IntEnum):
    """What a process of the run is (wire.PROCESS_ROLE_*)."""

    TRAINING = 1
    WORKER = 2
    LAUNCHER = 3
    OTHER = 4
