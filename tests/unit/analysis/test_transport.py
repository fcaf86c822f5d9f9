"""Hand-overs that wait for a worker's interpreter belong to the code that holds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.timelines import MS, SimulatedLoader
from whyidle.analysis.path import Path, PathKind
from whyidle.analysis.transport import split_transport
from whyidle.model.timeline import Batches

RECEIVE_MS, CPU_MS = 6, 1


def _split(*, computing: bool):
    """Every batch takes 6 ms to receive, 1 ms of it on a CPU, while its worker makes the next batch or stands idle."""
    rank = SimulatedLoader(np.full((40, 1), 50.0 * MS), np.full(40, 1.0 * MS), 2, 2).rank()
    columns = {name: getattr(rank.batches, name) for name in Batches.__dataclass_fields__}
    cpu = columns["cpu_ns"] if computing else columns["cpu_ns"] * 0
    known = np.full(40, CPU_MS * MS)
    batches = Batches(
        **{**columns, "receive_cpu_ns": known, "handoff_cpu_ns": known, "cpu_ns": cpu}
    )
    rows = np.arange(30)
    begin = batches.end_ns[rows]
    path = Path(
        kind=np.full(30, PathKind.RECEIVE),
        start_ns=begin,
        end_ns=begin + RECEIVE_MS * MS,
        row=rows,
    )
    return split_transport(replace(rank, batches=batches), path)


def test_receiving_from_a_computing_worker_is_charged_to_what_it_computes() -> None:
    """Of 6 ms, 1 ms is unpickling; the rest waits for the worker's interpreter lock."""
    found = _split(computing=True)

    assert found.own_ns == pytest.approx(30 * CPU_MS * MS, rel=0.05)
    assert found.held_ns == pytest.approx(30 * (RECEIVE_MS - CPU_MS) * MS, rel=0.05)


def test_receiving_from_a_worker_that_only_waits_is_transport() -> None:
    """A worker blocked in a read holds no lock."""
    found = _split(computing=False)

    assert (found.own_ns, found.held_ns) == (30 * RECEIVE_MS * MS, 0.0)
