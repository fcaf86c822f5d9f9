"""Plain words for every cause: what was going on (activity), and why the loop had to wait for it (regime)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.model.findings import Activity, Limit, Regime

if TYPE_CHECKING:
    from whyidle.model.findings import Cause

LIMIT_WORDS = {
    Limit.INPUT: "making and delivering batches",
    Limit.TRANSFER: "copies to the device",
    Limit.HOST: "the loop's own code between batches",
    Limit.PEERS: "other ranks",
    Limit.DEVICE: "the input keeps up",
    Limit.UNRESOLVED: "no verdict",
}
"""What bounds the training, fit to stand in brackets behind the word itself."""

ACTIVITY_WORDS = {
    Activity.COMPUTE: "computing",
    Activity.CPU_QUEUE: "ready, but no CPU is free",
    Activity.THROTTLED: "stopped by the CPU quota",
    Activity.STORAGE: "waiting for files",
    Activity.NETWORK: "waiting for the network",
    Activity.LOCK: "waiting for a lock or another process",
    Activity.SLEEP: "sleeping",
    Activity.TRANSPORT: "moving finished batches between processes",
    Activity.SAMPLER: "choosing what to load next",
    Activity.STARTUP: "starting workers",
    Activity.MEMORY: "waiting for memory",
    Activity.COPY: "copying batches to the device",
    Activity.SYNC: "the loop and the device waiting for each other",
    Activity.LAUNCH: "issuing many small pieces of work",
    Activity.PYTHON: "the loop's own code",
    Activity.COLLECTIVE: "waiting for another rank",
    Activity.UNEXPLAINED: "something that was not seen",
}
"""What was going on, fit to follow a share: `41 % computing`."""

REGIME_WORDS = {
    Regime.SERIAL: "There are no workers: the loop makes each batch itself, and the device waits meanwhile.",
    Regime.THROUGHPUT: "All workers are busy with this, and together they are too slow.",
    Regime.FEW_WORKERS: "The workers are busy with this, yet the machine could do more of it at once.",
    Regime.HEAD_OF_LINE: "One slow batch holds up others that are ready: batches are handed out in order.",
    Regime.BURSTY: "It comes in bursts that last longer than the batches in store.",
    Regime.SERIAL_STAGE: "All batches pass through one place, one at a time: more workers would not help.",
    Regime.CONTENDED: "More wants to run than there are CPUs to be had: more workers would not help.",
    Regime.LOCK_BOUND: "The workers take turns: only one of them gets on at a time.",
    Regime.INACTIVE_WORKERS: "Only some workers have anything to load; the others stand by.",
    Regime.EPOCH_START: "It happens when an epoch begins and no batch is in store yet.",
    Regime.PERIODIC: "It happens every so many steps, and stops the loop meanwhile.",
    Regime.STEADY: "It is the same in every step.",
    Regime.STRAGGLER: "One rank is late, and the others wait for it.",
}
"""Why the loop had to wait, for any activity."""

CAUSE_WORDS = {
    (Activity.COMPUTE, Regime.FEW_WORKERS): (
        "The workers compute without a pause, yet CPUs are left over: more workers could use them."
    ),
    (Activity.COMPUTE, Regime.HEAD_OF_LINE): (
        "One expensive sample holds up batches that are ready: they are handed out in order."
    ),
    (Activity.COMPUTE, Regime.CONTENDED): (
        "The work is more than the CPUs can do: more workers would only queue."
    ),
    (Activity.CPU_QUEUE, Regime.CONTENDED): (
        "There is more to run than CPUs to run it on: more workers would make it worse."
    ),
    (Activity.THROTTLED, Regime.CONTENDED): (
        "The container has used up its share of CPU time and is paused, again and again."
    ),
    (Activity.STORAGE, Regime.THROUGHPUT): (
        "All workers wait for files most of the time; the CPUs are not the problem."
    ),
    (Activity.STORAGE, Regime.FEW_WORKERS): (
        "Each worker waits for one file at a time; the storage could answer more at once."
    ),
    (Activity.STORAGE, Regime.HEAD_OF_LINE): (
        "One slow read holds up batches that are ready: they are handed out in order."
    ),
    (Activity.STORAGE, Regime.SERIAL): (
        "There are no workers: the loop reads each file itself, and the device waits meanwhile."
    ),
    (Activity.STORAGE, Regime.BURSTY): (
        "Reads are slow in bursts that last longer than the batches in store."
    ),
    (Activity.NETWORK, Regime.THROUGHPUT): (
        "All workers wait for answers most of the time; the CPUs are not the problem."
    ),
    (Activity.NETWORK, Regime.FEW_WORKERS): (
        "Each worker waits for one answer at a time; more requests could be under way at once."
    ),
    (Activity.NETWORK, Regime.HEAD_OF_LINE): (
        "One slow answer holds up batches that are ready: they are handed out in order."
    ),
    (Activity.LOCK, Regime.LOCK_BOUND): (
        "The workers share a lock: only one of them gets on at a time."
    ),
    (Activity.TRANSPORT, Regime.SERIAL_STAGE): (
        "The loop takes batches over one at a time, and that takes longer than a step: more workers would not help."
    ),
    (Activity.SAMPLER, Regime.SERIAL_STAGE): (
        "The main process chooses the samples of each batch itself, and workers wait for it: more would not help."
    ),
    (Activity.STARTUP, Regime.EPOCH_START): (
        "New workers start, import and open their data in each epoch before the first batch is there."
    ),
    (Activity.SYNC, Regime.STEADY): (
        "In each step the loop waits for the device, and then the device for the loop."
    ),
    (Activity.LAUNCH, Regime.STEADY): (
        "The pieces of work are so small that the device is done before the next one comes."
    ),
    (Activity.PYTHON, Regime.STEADY): (
        "Between batches the loop does other work while the device has nothing to do, in every step."
    ),
    (Activity.PYTHON, Regime.PERIODIC): (
        "Every so many steps the loop does something else, say a checkpoint, an evaluation or a log."
    ),
    (
        Activity.COLLECTIVE,
        Regime.STRAGGLER,
    ): "One rank is late, and the others wait for it.",
}
"""Where an activity and a regime together can be said better than by REGIME_WORDS alone."""


REMEDY_WORDS = {
    "raise-workers": "more workers",
    "raise-prefetch": "more batches ahead",
    "persistent-workers": "persistent workers",
    "pin-memory": "pinned memory",
    "out-of-order": "batches in any order",
}
"""What people try first, in short."""

NEIGHBOUR_WORDS = (
    "Other programs take the CPUs that the training needs: more workers would not help."
)
"""In place of all others where a process outside the training is to blame."""


def explain_cause(cause: Cause) -> str:
    """Say in one sentence why the loop had to wait."""
    if cause.where.process is not None:
        return NEIGHBOUR_WORDS
    return CAUSE_WORDS.get((cause.activity, cause.regime), REGIME_WORDS[cause.regime])
