"""Exact amounts a batch, parted over labels by stack samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.places import is_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.analysis.loader_model import Label
    from whyidle.analysis.work import FloatArray
    from whyidle.model.timeline import Frame, IntArray


PRIOR_SAMPLES = 4.0
"""How many samples the shares of batches of like length weigh against a batch's own (a batch of 40 ms has four)."""
GROUP_SAMPLES = 40
"""Samples a group of batches of like length needs: the noise of a share from 40 samples is 0.08."""
MAX_GROUPS = 4


def match_label(labels: Sequence[Label], frames: Sequence[Frame]) -> int:
    """Find the label whose place a stack is in, innermost frame first; `len(labels)`: none.

    Of several labels in one function the one with the nearest line is meant.
    """
    for frame in reversed(frames):
        if is_library(frame.file):
            continue
        here = [
            (abs((label.where.line or frame.line) - frame.line), at)
            for at, label in enumerate(labels)
            if label.where.file == frame.file
            and label.where.function in (None, frame.function)
        ]
        if here:
            return min(here)[1]
    anywhere = [at for at, label in enumerate(labels) if label.where.file is None]
    return anywhere[0] if len(anywhere) == 1 else len(labels)


def deal(
    amount: FloatArray, batch: IntArray, column: IntArray, weight: IntArray, columns: int
) -> FloatArray:
    """Estimate each batch's shares from its own samples and those of batches of like length.

    Args:
        amount: (batches,) what is to be shared out, ns.
        batch: (samples,) batch that each sample was taken in.
        column: (samples,) what it was seen at.
        weight: (samples,) time it stands for, ns.
        columns: Number of columns; the last one takes what nothing is known of.

    Returns:
        (batches, columns) shares; rows add up to 1.
    """
    seen = np.zeros((len(amount), columns))
    np.add.at(seen, (batch, column), weight.astype(float))
    if not len(batch) or seen.sum() <= 0:
        shares = np.zeros((len(amount), columns))
        shares[:, -1] = 1.0
        return shares
    seen /= weight.mean()
    groups = _groups_of_like_length(amount, len(batch))
    prior = np.zeros_like(seen)
    overall = seen.sum(axis=0) / seen.sum()
    for group in range(groups.max() + 1):
        inside = groups == group
        total = seen[inside].sum(axis=0) + overall
        prior[inside] = total / total.sum()
    mixed = seen + PRIOR_SAMPLES * prior
    return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))


def _groups_of_like_length(amount: FloatArray, sample_count: int) -> IntArray:
    """Part batches into groups that hold equal time, so that a few long ones are a group of their own."""
    count = int(np.clip(sample_count // GROUP_SAMPLES, 1, MAX_GROUPS))
    order = np.argsort(amount, kind="stable")
    held = np.cumsum(amount[order])
    groups = np.zeros(len(amount), dtype=np.int64)
    if held[-1] > 0:
        groups[order] = np.minimum((held * count / held[-1]).astype(np.int64), count - 1)
    return groups
