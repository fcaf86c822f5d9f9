"""`move-to-device`: an operation moves from the workers to the accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.loader_model import Label
from whyidle.analysis.rules.case import Proposal, name_place
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

LAUNCH_NS = 200_000.0
"""Twenty kernels of 10 µs: a transform of a batch is a handful of operations."""
BYTES_PER_NS = 100.0
"""Device memory moves at 1000 GB/s and more; ten passes over the batch leave 100."""


def propose(case: Case) -> Iterator[Proposal]:
    """Move what the workers compute, where there is a CUDA device to move it to."""
    if case.rank.device_kind != "cuda":
        return
    cost_ns = LAUNCH_NS + case.batch_bytes / BYTES_PER_NS
    for cause in case.causes_of(Activity.COMPUTE):
        name = cause.where.transform or cause.where.function
        if name is None:
            continue
        yield Proposal(
            remedy="move-to-device",
            title=f"{name} on the device",
            how=f"Let the workers hand over what {name_place(cause.where)} starts from (the points instead of the "
            "maps, the bytes instead of floats), and do the same for the whole batch on the device, behind the copy: "
            "torch operations on a (batch, ...) tensor, or torchvision.transforms.v2. The forecast takes "
            f"{cost_ns / 1e6:.1f} ms of the device a step for granted.",
            where=cause.where,
            change=Change(to_device=((Label.of(cause), cost_ns),)),
        )
