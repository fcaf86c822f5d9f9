"""Records of short batches are completed by those of their neighbours."""

from __future__ import annotations

import polars as pl

from whyidle.analysis.align import _carry_over

ROWS = pl.DataFrame(
    {
        "journal": [1, 1, 1, 2, 2],
        "pass": [0, 0, 0, 0, 0],
        "start_ns": [0, 100, 200, 0, 100],
        "end_ns": [90, 190, 290, 90, 190],
        "cpu_ns": [50, 70, 90, 60, 60],
        "runq_ns": [-1, 5, -1, -1, -1],
        "collate_start_ns": [None, 150, None, None, None],
        "collate_end_ns": [None, 158, None, None, None],
        "bytes": [None, 4096, None, None, None],
        "tensors": [None, 2, None, None, None],
        "collate": [None, "torch", None, None, None],
    }
)


def test_details_of_short_batches_come_from_the_same_worker() -> None:
    """Collate and weight are a neighbour's; of the time off the CPU the usual part was waiting for one."""
    filled = _carry_over(ROWS)

    assert filled["collate_ns"].to_list() == [8, 8, 8, None, None]
    assert filled["bytes"].to_list() == [4096, 4096, 4096, None, None]
    # 5 of 20 ns off the CPU were queueing where it was taken: a quarter of 40 ns, and of none.
    assert filled["runq_ns"].to_list() == [10, 5, 0, -1, -1]
