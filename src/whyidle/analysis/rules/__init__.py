"""What to change. One rule a file: evidence in, proposals out; `prescribe` forecasts them and keeps what gains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules import (
    async_checkpoint,
    avoid_sync,
    balance_ranks,
    batch_launches,
    cache_samples,
    cheaper_sampler,
    faster_storage,
    fewer_tensors,
    less_logging,
    limit_threads,
    lower_workers,
    move_to_device,
    out_of_order,
    pack_files,
    parallel_reads,
    persistent_workers,
    pin_memory,
    raise_cpu_quota,
    raise_prefetch,
    raise_workers,
    rebalance_shards,
    remove_lock,
    remove_neighbour,
    smaller_batch_bytes,
    speed_up_code,
    trim_tail,
    unpin_cpus,
    vectorise_loop,
    vectorise_metric,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whyidle.analysis.rules.case import Case, Proposal

RULES: tuple[Callable[[Case], Iterator[Proposal]], ...] = (
    vectorise_loop.propose,
    speed_up_code.propose,
    trim_tail.propose,
    move_to_device.propose,
    cache_samples.propose,
    pack_files.propose,
    parallel_reads.propose,
    faster_storage.propose,
    fewer_tensors.propose,
    smaller_batch_bytes.propose,
    cheaper_sampler.propose,
    rebalance_shards.propose,
    remove_lock.propose,
    raise_workers.propose,
    lower_workers.propose,
    raise_prefetch.propose,
    persistent_workers.propose,
    pin_memory.propose,
    out_of_order.propose,
    limit_threads.propose,
    unpin_cpus.propose,
    raise_cpu_quota.propose,
    remove_neighbour.propose,
    avoid_sync.propose,
    vectorise_metric.propose,
    async_checkpoint.propose,
    less_logging.propose,
    batch_launches.propose,
    balance_ranks.propose,
)
"""In the order in which equal gains are listed."""
