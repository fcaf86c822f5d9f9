"""`limit-threads`: fewer native threads in each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.contention import Reason
from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """One thread a worker, where the workers' thread pools are larger than the machine."""
    if case.contention.reason is not Reason.THREADS or case.loader is None:
        return
    threads = case.contention.runnable_threads or 0.0
    yield Proposal(
        remedy="limit-threads",
        title="one thread in each worker",
        how=f"Each worker has {threads:.1f} threads ready at a time, on {case.contention.allowed_count} CPUs. Give "
        f"{case.loader_name} a worker_init_fn that calls `torch.set_num_threads(1)` and, with OpenCV, "
        "`cv2.setNumThreads(0)`, and start the training with OMP_NUM_THREADS=1.",
        where=case.built_at,
        change=Change(threads_limited=True),
        automatic=True,
        settings=make_settings({"worker_threads": 1}),
    )
