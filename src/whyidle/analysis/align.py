"""Recorded tables to a Timeline: who is a rank, which worker made which batch, where the window begins.

Everything downstream is arrays sorted in time; this is the only place that knows how records refer to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from whyidle.analysis.intervals import unite
from whyidle.analysis.stacks import MAX_WEIGHT_NS, align_stacks
from whyidle.model.codes import AskFlag, DeviceCode, FetchFlag, LoaderFlag
from whyidle.model.timeline import (
    Batches,
    Intervals,
    Iteration,
    Machine,
    Marks,
    Mount,
    RankTimeline,
    Series,
    Steps,
    ThreadSamples,
    Timeline,
    Transforms,
    WorkerLife,
)

if TYPE_CHECKING:
    from whyidle.model.events import RunTables
    from whyidle.model.timeline import DeviceKind, IntArray

WARMUP_SHARE = 0.25
"""At most this part of a run is warm-up: a short run must still be judged."""
LANE_STEPS_RATIO = 0.05
"""A process with fewer asks than this part of the busiest one is a side job (a sanity check, a test), not a rank."""
SIDE_BY_SIDE_RATIO = 0.5
"""A process is a rank of a training when this part of its loop ran at the same time."""
DEFAULT_COLLATE = "torch.utils.data._utils.collate"
"""Module of torch's own collate functions, the beginning of their recorded names."""


def build_timeline(run: RunTables) -> Timeline:
    """Align a run.

    Args:
        run: Tables as store gives them.

    Returns:
        A Timeline; `ranks` is empty when no process ever asked a loader for a batch.
    """
    ranks, left_out = _find_ranks(run)
    return Timeline(
        ranks=tuple(_build_rank(run, journal, rank) for rank, journal in ranks),
        machine=_build_machine(run),
        left_out_trainings=left_out,
    )


def _find_ranks(run: RunTables) -> tuple[list[tuple[int, int]], int]:
    """Find the processes of the longest training.

    Ranks run side by side; a process that ran before or after is a training of its own (a script that trains twice).

    Returns:
        (rank, journal) of each rank, equal RANKs (none was set) numbered on; and how many trainings were left out.
    """
    asks = (
        run.tables["ask"]
        .group_by("journal")
        .agg(pl.len(), first=pl.col("ask_ns").min(), last=pl.col("got_ns").max())
    )
    spans = [
        (last - first, count, journal, first, last)
        for journal, count, first, last in asks.iter_rows()
        if not run.journals[journal].is_launcher
    ]
    if not spans:
        return [], 0
    _, most, _, begin_ns, end_ns = max(spans)
    found: list[tuple[int, int]] = []
    left_out = 0
    for length, count, journal, first, last in sorted(spans, key=lambda span: span[2]):
        if min(last, end_ns) - max(first, begin_ns) < SIDE_BY_SIDE_RATIO * length:
            left_out += 1
        elif count >= most * LANE_STEPS_RATIO:
            rank, taken = run.journals[journal].rank, {number for number, _ in found}
            while rank in taken:
                rank += 1
            found.append((rank, journal))
    return sorted(found), left_out


def _build_rank(run: RunTables, journal: int, rank: int) -> RankTimeline:
    tables = {
        name: frame.filter(pl.col("journal") == journal)
        for name, frame in run.tables.items()
    }
    iterations = _iterations(tables)
    workers = _named_workers(tables)
    steps = _steps(tables)
    warmup_steps = _warmup_steps(len(steps), iterations)
    start_ns = int(steps.ask_ns[warmup_steps]) if len(steps) else 0
    end_ns = int(steps.got_ns[-1]) if len(steps) else 0
    pids = {*workers["pid"].to_list(), run.journals[journal].pid}
    pid_journals = [number for number, info in enumerate(run.journals) if info.pid in pids]
    stack_samples, stacks = align_stacks(run, pid_journals)
    kind, name, busy, idle = _device(tables, start_ns, end_ns)
    return RankTimeline(
        rank=rank,
        pid=run.journals[journal].pid,
        steps=steps,
        batches=_batches(run, journal, workers),
        iterations=iterations,
        in_loader=_in_loader(tables, start_ns, end_ns),
        workers=_worker_lives(run, pid_journals),
        stack_samples=stack_samples,
        stacks=stacks,
        threads=_threads(run, pids),
        marks=_marks(tables),
        transforms=_transforms(run, pid_journals),
        device_kind=kind,
        device_name=name,
        busy=busy,
        device_idle=idle,
        warmup_steps=warmup_steps,
        window_start_ns=start_ns,
        window_end_ns=max(start_ns, end_ns),
    )


def _ints(frame: pl.DataFrame, column: str, missing: int = -1) -> IntArray:
    return np.asarray(
        frame[column].cast(pl.Int64).fill_null(missing).to_numpy(), dtype=np.int64
    )


def _steps(tables: dict[str, pl.DataFrame]) -> Steps:
    """Answered asks with the end of the step each begins, and the receive cost inside each."""
    asks = tables["ask"].sort("ask_ns")
    ended = (asks["flags"] & (AskFlag.ENDED | AskFlag.RAISED)) != 0
    ask_ns, got_ns = _ints(asks, "ask_ns"), _ints(asks, "got_ns")
    end_ns = np.append(ask_ns[1:], got_ns[-1:])
    answered = ~ended.to_numpy()
    asks = asks.filter(~ended)
    ask_ns, got_ns, end_ns = ask_ns[answered], got_ns[answered], end_ns[answered]
    return Steps(
        ask_ns=ask_ns,
        got_ns=got_ns,
        end_ns=np.maximum(end_ns, got_ns),
        iteration=_ints(asks, "iteration"),
        batch=_ints(asks, "batch"),
        sampler_ns=_ints(asks, "sampler_ns", 0),
        receive_cpu_ns=_sum_within(tables["receive"], "end_ns", "cpu_ns", ask_ns, got_ns),
        ready=(asks["flags"] & AskFlag.READY).to_numpy() != 0,
    )


def _in_loader(tables: dict[str, pl.DataFrame], start_ns: int, end_ns: int) -> Intervals:
    asks = tables["ask"].select(start_ns="ask_ns", end_ns="got_ns")
    created = tables["loader"].select("start_ns", "end_ns")
    return _track(pl.concat([asks, created]), start_ns, end_ns)


def _sum_within(
    frame: pl.DataFrame, when: str, what: str, start_ns: IntArray, end_ns: IntArray
) -> IntArray:
    """Add up `what` over the rows whose `when` lies in each of the disjoint, sorted intervals."""
    times = _ints(frame, when)
    order = np.argsort(times, kind="stable")
    sums = np.concatenate(([0], np.cumsum(np.maximum(_ints(frame, what)[order], 0))))
    times = times[order]
    last, first = np.searchsorted(times, end_ns, "right"), np.searchsorted(times, start_ns)
    return np.asarray(sums[last] - sums[first], dtype=np.int64)


def _iterations(tables: dict[str, pl.DataFrame]) -> dict[int, Iteration]:
    places = tables["loader_place"].unique("iteration", keep="last")
    joined = (
        tables["loader"]
        .unique("iteration", keep="last")
        .join(places, on="iteration", how="left")
    )
    return {
        row["iteration"]: Iteration(
            iteration=row["iteration"],
            loader=row["loader"],
            workers=row["workers"],
            prefetch=row["prefetch"],
            batch_size=row["batch_size"],
            start_ns=row["start_ns"],
            end_ns=row["end_ns"],
            persistent=bool(row["flags"] & LoaderFlag.PERSISTENT),
            in_order=bool(row["flags"] & LoaderFlag.IN_ORDER),
            iterable=bool(row["flags"] & LoaderFlag.ITERABLE),
            pinned=bool(row["flags"] & LoaderFlag.PIN),
            resumed=bool(row["flags"] & LoaderFlag.RESUMED),
            loop_file=row["loop_file"],
            loop_line=row["loop_line"],
            build_file=row["build_file"],
            build_line=row["build_line"],
        )
        for row in joined.sort("start_ns").iter_rows(named=True)
    }


def _named_workers(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Give (iteration, worker, pid, pass) of the workers that one main process named."""
    return tables["worker"].select("iteration", "worker", "pid", "pass").unique()


def _warmup_steps(step_count: int, iterations: dict[int, Iteration]) -> int:
    """Leave out the first step (start-up) and those fed from the queue that was filled during it."""
    if step_count < 4:
        return 0
    first = min(iterations.values(), key=lambda one: one.start_ns, default=None)
    filled = first.workers * first.prefetch if first else 0
    return max(1, min(filled + 1, int(step_count * WARMUP_SHARE)))


def _batches(run: RunTables, journal: int, workers: pl.DataFrame) -> Batches:
    """Join what workers recorded of each batch with who they were."""
    pid_of = {number: info.pid for number, info in enumerate(run.journals)}
    fetches = run.tables["fetch"].filter((pl.col("flags") & FetchFlag.RAISED) == 0)
    inline = fetches.filter(pl.col("journal") == journal).with_columns(
        iteration=pl.col("pass"),
        worker=pl.lit(-1, pl.Int64),
        pid=pl.lit(pid_of[journal], pl.Int64),
    )
    made = (
        fetches.with_columns(
            pid=pl.col("journal")
            .cast(pl.Int64)
            .replace_strict(pid_of, return_dtype=pl.Int64)
        )
        .filter(pl.col("journal") != journal)
        .join(
            workers.with_columns(pl.col("pass").cast(fetches["pass"].dtype)),
            on=["pid", "pass"],
        )
    )
    columns = ["journal", "pass", "batch", "iteration", "worker", "pid",
               "start_ns", "end_ns", "cpu_ns", "runq_ns", "index_ns"]  # fmt: skip
    rows = pl.concat(
        [
            frame.select(columns).with_columns(pl.col("iteration").cast(pl.Int64))
            for frame in (inline, made)
        ],
        how="vertical_relaxed",
    )
    key = ["journal", "pass", "batch"]
    for name, wanted in (
        (
            "fetch_cost",
            ["collate_start_ns", "collate_end_ns", "minor_faults", "process_cpu_ns"],
        ),
        ("payload", ["bytes", "tensors", "collate"]),
        ("handoff", ["send_start_ns", "sent_ns", "cpu_ns"]),
    ):
        table = run.tables[name].select(key + wanted).unique(key)
        rows = rows.join(table, on=key, how="left", suffix=f"_{name}")
    rows = _carry_over(rows)
    received = run.tables["receive"].filter(pl.col("journal") == journal)
    received = received.select(
        pl.col("iteration").cast(pl.Int64), "batch", "start_ns", "end_ns", "cpu_ns"
    )
    key = ["iteration", "batch"]
    rows = rows.join(received.unique(key), on=key, how="left", suffix="_receive")
    return _to_batches(rows.unique(["iteration", "batch"]).sort("iteration", "batch"))


def _carry_over(rows: pl.DataFrame) -> pl.DataFrame:
    """Give a batch that was recorded without its details the collate and the weight of a neighbour.

    The agent takes them once in 20 ms of fetching (fetching.COST_EVERY_NS): the batches between are short, and made by
    the same worker. Of the time off the CPU they waited for one in the same part as those whose wait was taken. Faults
    and the process' CPU time are sums, which are not carried.
    """
    collate_ns = pl.col("collate_end_ns") - pl.col("collate_start_ns")
    carried = ("collate_ns", "bytes", "tensors", "collate")
    same_worker = ["journal", "pass"]
    return (
        rows.with_columns(collate_ns=collate_ns, runq_ns=_filled_queueing(same_worker))
        .sort(*same_worker, "start_ns")
        .with_columns(
            pl.col(name).forward_fill().backward_fill().over(same_worker)
            for name in carried
        )
    )


def _filled_queueing(same_worker: list[str]) -> pl.Expr:
    """Wait for a CPU, ns; where it was not taken, by the worker's usual part of the time off the CPU; null: unknown."""
    off_ns = (pl.col("end_ns") - pl.col("start_ns") - pl.col("cpu_ns")).clip(0)
    is_taken = (pl.col("runq_ns") >= 0) & (pl.col("cpu_ns") >= 0)
    queued_ns = pl.when(is_taken).then(pl.col("runq_ns")).sum().over(same_worker)
    taken_off_ns = pl.when(is_taken).then(off_ns).sum().over(same_worker)
    ratio = (queued_ns / taken_off_ns.clip(1)).clip(0, 1)
    can_fill = (
        (pl.col("runq_ns") < 0) & (pl.col("cpu_ns") >= 0) & is_taken.any().over(same_worker)
    )
    return (
        pl.when(can_fill).then((off_ns * ratio).cast(pl.Int64)).otherwise(pl.col("runq_ns"))
    )


def _to_batches(rows: pl.DataFrame) -> Batches:
    start_ns = _ints(rows, "start_ns")
    end_ns = np.maximum(_ints(rows, "end_ns"), start_ns)
    wall = end_ns - start_ns
    cpu_ns = np.minimum(_ints(rows, "cpu_ns"), wall)
    runq_ns = _ints(rows, "runq_ns")
    index_ns = _ints(rows, "index_ns")
    return Batches(
        iteration=_ints(rows, "iteration"),
        batch=_ints(rows, "batch"),
        worker=_ints(rows, "worker"),
        pid=_ints(rows, "pid"),
        index_ns=np.where(index_ns > 0, index_ns, -1),
        start_ns=start_ns,
        end_ns=end_ns,
        cpu_ns=cpu_ns,
        runq_ns=np.where(runq_ns < 0, runq_ns, np.minimum(runq_ns, wall - np.maximum(cpu_ns, 0))),
        process_cpu_ns=_ints(rows, "process_cpu_ns"),
        collate_ns=np.clip(_ints(rows, "collate_ns", 0), 0, wall),
        default_collate=rows["collate"].cast(pl.String).str.starts_with(DEFAULT_COLLATE).fill_null(False).to_numpy(),
        send_start_ns=_ints(rows, "send_start_ns"),
        sent_ns=_ints(rows, "sent_ns"),
        handoff_cpu_ns=_ints(rows, "cpu_ns_handoff"),
        receive_cpu_ns=_ints(rows, "cpu_ns_receive"),
        receive_start_ns=_ints(rows, "start_ns_receive"),
        receive_end_ns=_ints(rows, "end_ns_receive"),
        size_bytes=_ints(rows, "bytes"),
        tensor_count=_ints(rows, "tensors"),
        minor_faults=_ints(rows, "minor_faults"),
    )  # fmt: skip


def _worker_lives(run: RunTables, journals: list[int]) -> tuple[WorkerLife, ...]:
    started = (
        run.tables["worker_start"]
        .filter(pl.col("journal").is_in(journals))
        .sort("start_ns")
    )
    return tuple(
        WorkerLife(
            pid=run.journals[row["journal"]].pid,
            worker=row["worker"],
            process_start_ns=row["process_start_ns"],
            loop_start_ns=row["start_ns"],
            ready_ns=row["ready_ns"],
        )
        for row in started.iter_rows(named=True)
    )


def _threads(run: RunTables, pids: set[int]) -> ThreadSamples:
    looks = run.tables["thread"].filter(pl.col("pid").is_in(list(pids))).sort("now_ns")
    now_ns = _ints(looks, "now_ns")
    return ThreadSamples(
        pid=_ints(looks, "pid"),
        tid=_ints(looks, "tid"),
        now_ns=now_ns,
        weight_ns=np.clip(now_ns - _ints(looks, "previous_ns"), 0, MAX_WEIGHT_NS),
        wait=_ints(looks, "wait"),
        on_cpu_ns=_ints(looks, "on_cpu_ns"),
        runq_ns=_ints(looks, "runq_ns"),
        target=looks["target"].cast(pl.String).to_numpy().astype(object),
        mount=_ints(looks, "mount", 0),
    )


def _marks(tables: dict[str, pl.DataFrame]) -> Marks:
    marks = tables["mark"].sort("start_ns")
    return Marks(
        mark=_ints(marks, "mark"),
        start_ns=_ints(marks, "start_ns"),
        end_ns=_ints(marks, "end_ns"),
        file=marks["file"].cast(pl.String).to_numpy().astype(object),
        line=_ints(marks, "line"),
    )


def _transforms(run: RunTables, journals: list[int]) -> Transforms:
    pid_of = {number: run.journals[number].pid for number in journals}
    rows = (
        run.tables["transform"]
        .filter(pl.col("journal").is_in(journals) & (pl.col("depth") == 0))
        .with_columns(
            pid=pl.col("journal")
            .cast(pl.Int64)
            .replace_strict(pid_of, return_dtype=pl.Int64)
        )
        .sort("pid", "start_ns")
    )
    return Transforms(
        pid=_ints(rows, "pid"),
        start_ns=_ints(rows, "start_ns"),
        end_ns=_ints(rows, "end_ns"),
        name=rows["name"].cast(pl.String).to_numpy().astype(object),
    )


def _device(
    tables: dict[str, pl.DataFrame], start_ns: int, end_ns: int
) -> tuple[DeviceKind, str | None, Intervals | None, Intervals | None]:
    """Pick the rank's device: CUDA before simulated before none.

    Several simulated devices of one process count as one that is busy when any of them is.
    """
    busy, idle = tables["device_busy"], tables["device_idle"]
    names = {row["kind"]: row["name"] for row in tables["device"].iter_rows(named=True)}
    if not idle.is_empty():
        return (
            "cuda",
            names.get(DeviceCode.CUDA),
            None,
            _track(idle, start_ns, end_ns),
        )
    if not busy.is_empty():
        return (
            "simulated",
            names.get(DeviceCode.SIMULATED),
            _track(busy, start_ns, end_ns),
            None,
        )
    return "cpu", None, None, None


def _track(frame: pl.DataFrame, window_start_ns: int, window_end_ns: int) -> Intervals:
    return unite(
        _ints(frame, "start_ns"), _ints(frame, "end_ns"), window_start_ns, window_end_ns
    )


def _build_machine(run: RunTables) -> Machine:
    counters: dict[str, Series] = {}
    process_counters: dict[tuple[int, str], Series] = {}
    for (name, pid), rows in run.tables["counter"].group_by(
        "name", "pid", maintain_order=True
    ):
        ordered = rows.sort("now_ns")
        series = Series(now_ns=_ints(ordered, "now_ns"), value=_ints(ordered, "value"))
        if pid:
            process_counters[int(str(pid)), str(name)] = series
        else:
            counters[str(name)] = series
    allowed = run.tables["process"].filter(pl.col("cpus_allowed") > 0)["cpus_allowed"].min()
    cpu_count = int(run.manifest.get("cpus_machine") or 1)
    return Machine(
        cpu_count=cpu_count,
        allowed_count=int(allowed) if isinstance(allowed, int) else cpu_count,
        counters=counters,
        process_counters=process_counters,
        mounts={
            row["mount"]: Mount(kind=kind, point=point)
            for row in run.tables["mount"].iter_rows(named=True)
            for kind, _, point in [str(row["text"]).partition("\0")]
        },
        quota_cpus=run.manifest.get("cpu_quota"),
    )
