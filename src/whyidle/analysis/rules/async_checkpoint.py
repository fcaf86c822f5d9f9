"""`async-checkpoint`: checkpoints are written beside the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules.case import Proposal, in_loop, name_place
from whyidle.analysis.rules.loop_code import checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

LEFT_RATIO = 0.1
"""What is left is the copy to memory: 1 GB takes 0.1 s, and 1 s and more to write."""


def propose(case: Case) -> Iterator[Proposal]:
    """Write in another thread, where the loop waits for a checkpoint."""
    for cause in checkpoints(case)[:1]:
        yield Proposal(
            remedy="async-checkpoint",
            title="write checkpoints beside the training",
            how=f"{name_place(cause.where)} stops the loop until the file is written. Copy the state "
            "(`{k: v.detach().to('cpu', copy=True) for k, v in model.state_dict().items()}`) and write it in a "
            "thread, or use `torch.distributed.checkpoint.async_save`; or save less often. The forecast is for a "
            "tenth of the time.",
            where=cause.where,
            change=in_loop(cause, LEFT_RATIO),
        )
