"""From a recorded timeline to forecasts: replay, and what changes gain on loaders whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.timelines import (
    MS,
    SimulatedLoader,
    empty,
    ints,
    make_iteration,
    make_rank,
    make_timeline,
)
from whyidle.analysis.batch_shares import deal
from whyidle.analysis.contention import Contention, Reason
from whyidle.analysis.derivative import deal_by_effect, is_decisive, state_difference
from whyidle.analysis.forecast import (
    Change,
    edit,
    forecast,
    forecast_all,
    mean_step_ns,
    rate_bound,
)
from whyidle.analysis.ledger import Blame
from whyidle.analysis.loader_model import Label, LoaderModel, Withheld
from whyidle.analysis.workload import build_model
from whyidle.model.codes import Mark, StackFlag, StackRole
from whyidle.model.findings import Activity, Place
from whyidle.model.timeline import (
    Batches,
    Frame,
    Intervals,
    Marks,
    Series,
    StackSamples,
    Steps,
)
from whyidle.model.waits import Wait

BATCHES, WORKERS = 400, 4
SAMPLE_NS = 4 * MS
SCRIPT = "/home/me/train.py"
DECODE = Label(Activity.COMPUTE, Place(file=SCRIPT, function="decode", line=10))
HEAT = Label(Activity.COMPUTE, Place(file=SCRIPT, function="heat_map", line=20))
LABELS = [DECODE, HEAT]


def _loader(case: str) -> SimulatedLoader:
    random = np.random.default_rng(3)
    decode = random.gamma(30, 24 / 30, BATCHES)
    heat = random.gamma(30, 16 / 30, BATCHES)
    step = 6.0
    if case == "rare slow":
        decode, heat, step = decode / 2, np.where(random.random(BATCHES) < 0.04, 240.0, 2.0), 12.0  # fmt: skip
    if case == "fed":
        step = 30.0
    return SimulatedLoader(
        np.stack([decode, heat], axis=1) * MS, np.full(BATCHES, step * MS), WORKERS, 2
    )


def _with_stacks(loader: SimulatedLoader):
    """The rank of a simulated loader, its workers seen every 4 ms in what they do."""
    rank = loader.rank()
    rows = []
    for row, (pid, start) in enumerate(
        zip(rank.batches.pid.tolist(), rank.batches.start_ns.tolist(), strict=True)
    ):
        edges = np.cumsum(loader.phases[row])
        seen = np.arange(SAMPLE_NS / 2, edges[-1], SAMPLE_NS)
        rows += [(pid, start + int(now), int(np.searchsorted(edges, now))) for now in seen]
    pid, now, stack = np.array(rows, dtype=np.int64).T
    order = np.argsort(now, kind="stable")
    count = len(rows)
    samples = empty(
        StackSamples, pid=pid[order], now_ns=now[order], stack=stack[order],
        role=np.full(count, StackRole.WORKER), weight_ns=np.full(count, SAMPLE_NS),
        on_cpu=np.ones(count, dtype=bool), flags=np.full(count, StackFlag.IN_FETCH | StackFlag.ON_CPU),
    )  # fmt: skip
    stacks = tuple((Frame(SCRIPT, "__getitem__", 5), Frame(SCRIPT, label.where.function or "", label.where.line or 0))
                   for label in LABELS)  # fmt: skip
    return replace(rank, stack_samples=samples, stacks=stacks)


def _model(case: str, cpus: int = 64) -> LoaderModel:
    timeline = make_timeline(
        _with_stacks(_loader(case)), allowed_count=cpus, cpu_count=cpus
    )
    model = build_model(timeline, timeline.ranks[0], LABELS)
    assert isinstance(model, LoaderModel)
    return model


def _step_ns(loader: SimulatedLoader) -> float:
    """Mean step of a second round over the same batches, in which the queue has filled."""
    twice = replace(
        loader, phases=np.tile(loader.phases, (2, 1)), step_ns=np.tile(loader.step_ns, 2)
    )
    got = twice.times()["got"]
    return float(got[-1] - got[BATCHES]) / (BATCHES - 1)


@pytest.mark.parametrize("case", ["saturated", "rare slow", "fed"])
def test_replays_what_was_recorded(case: str) -> None:
    """Without contention every term is known, so the replay is exact but for what lies in the queue at the edges."""
    assert _model(case).replay_error == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("case", ["saturated", "rare slow", "fed"])
@pytest.mark.parametrize(
    ("change", "truth"),
    [
        (Change(workers=8), {"workers": 8}),
        (Change(prefetch=8), {"prefetch": 8}),
        (Change(workers=2), {"workers": 2}),
    ],
    ids=["twice the workers", "deep queue", "half the workers"],
)
def test_loader_arguments_gain_what_they_really_gain(case: str, change: Change, truth: dict) -> None:  # fmt: skip
    """METHOD §6: within 3 %."""
    loader = _loader(case)
    expected = _step_ns(loader) / _step_ns(replace(loader, **truth))

    found = forecast(_model(case), change)

    assert not isinstance(found, Withheld)
    assert found.speedup == pytest.approx(expected, rel=0.03)
    assert found.low <= found.speedup <= found.high


@pytest.mark.parametrize("case", ["saturated", "rare slow"])
@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_faster_cause_gains_what_it_really_gains(case: str, kept: float) -> None:
    """From samples alone, also where a few batches hold all of it, which rates cannot see."""
    loader = _loader(case)
    faster = loader.phases * np.array([1.0, kept])
    expected = _step_ns(loader) / _step_ns(replace(loader, phases=faster))
    change = Change(scaled=((HEAT, kept),))
    model = _model(case)

    found = forecast(model, change)

    assert not isinstance(found, Withheld)
    assert found.speedup == pytest.approx(expected, rel=0.05)
    if case == "rare slow" and kept == 0.0:
        assert abs(rate_bound(model, change) / expected - 1) > 0.2


def test_trimming_the_tail_gains_nearly_what_removing_it_does() -> None:
    """Slow batches are one in twenty-five: cut at the 95th percentile they are gone."""
    model = _model("rare slow")

    trimmed, removed = forecast_all(
        model, (Change(trimmed=(HEAT,)), Change(scaled=((HEAT, 0.0),)))
    )

    assert not isinstance(trimmed, Withheld)
    assert not isinstance(removed, Withheld)
    assert 0.9 * removed.speedup < trimmed.speedup <= removed.speedup * 1.001


def test_nothing_gains_more_than_data_that_costs_nothing() -> None:
    """Neither the forecast nor the upper end of its interval."""
    model = _model("saturated")
    changes = (Change(data_free=True), Change(workers=64), Change(scaled=((DECODE, 0.0), (HEAT, 0.0))))  # fmt: skip

    ceiling, *others = forecast_all(model, changes)

    assert not isinstance(ceiling, Withheld)
    assert ceiling.speedup == pytest.approx(_step_ns(_loader("saturated")) / (6 * MS), rel=0.02)  # fmt: skip
    for found in others:
        assert not isinstance(found, Withheld)
        assert found.speedup <= ceiling.speedup
        assert found.high <= ceiling.high


def test_a_fed_device_promises_nothing() -> None:
    """No change of a loader that is never waited for is forecast above 1.05."""
    model = _model("fed")
    changes = (
        Change(workers=8),
        Change(prefetch=8),
        Change(in_order=False),
        Change(scaled=((HEAT, 0.0),)),
        Change(data_free=True),
    )

    for found in forecast_all(model, changes):
        assert not isinstance(found, Withheld)
        assert found.speedup < 1.05


def test_workers_gain_nothing_where_cores_are_short() -> None:
    """Four workers on two cores: eight are no faster, four cores are twice as fast."""
    model = replace(_model("saturated"), host=replace(_model("saturated").host, cpus=2.0))

    now = mean_step_ns(model)
    assert mean_step_ns(edit(model, Change(workers=8))) == pytest.approx(now, rel=0.02)
    assert mean_step_ns(edit(model, Change(cpus=4))) == pytest.approx(now / 2, rel=0.03)


def test_moving_work_to_the_device_costs_there() -> None:
    """What the workers save comes back on the step; more than the step it hides nothing."""
    model = _model("saturated")

    cheap, dear = forecast_all(
        model, [Change(to_device=((HEAT, cost),)) for cost in (0.1 * MS, 40.0 * MS)]
    )

    assert not isinstance(cheap, Withheld)
    assert not isinstance(dear, Withheld)
    assert cheap.speedup > 1.5
    assert dear.speedup < 0.4


def test_changes_join() -> None:
    """Each keeps its edits; the later one wins where both set the same argument."""
    both = Change(data_free=True, workers=4, trimmed=(HEAT,)).joined(
        Change(workers=8, scaled=((DECODE, 0.5),))
    )

    assert both == Change(
        data_free=True, workers=8, trimmed=(HEAT,), scaled=((DECODE, 0.5),)
    )


def test_forecasts_are_withheld_where_the_replay_misses() -> None:
    """And where there is too little to replay."""
    model = _model("saturated")
    short = make_timeline(replace(_loader("saturated"), phases=_loader("saturated").phases[:15]).rank())  # fmt: skip

    missed = forecast(replace(model, replay_ns=1.08 * model.step_ns), Change(workers=8))
    too_short = build_model(short, short.ranks[0], LABELS)

    assert isinstance(missed, Withheld)
    assert "8%" in missed.reason
    assert isinstance(too_short, Withheld)
    assert too_short.slug == "few-steps"


def test_shares_of_slow_batches_come_from_their_own_samples() -> None:
    """Ten quick batches seen at one place, a slow one at another: the slow one's time is the other place's."""
    amount = np.array([10.0] * 10 + [1000.0])
    batch = ints(*range(10), *[10] * 100)
    column = ints(*[0] * 10, *[1] * 100)

    shares = deal(amount, batch, column, ints(*[10] * 110), 3)

    assert shares.sum(axis=1) == pytest.approx(1)
    assert shares[10, 1] > 0.95
    assert (amount @ shares)[1] == pytest.approx(1000, rel=0.1)


def _blame(label: Label, idle_ns: float) -> Blame:
    return Blame(activity=label.activity, where=label.where, idle_ns=idle_ns, is_input=True)


def _contention(reason: Reason) -> Contention:
    return Contention(
        reason=reason, queue_ratio=0.5, loop_queue_ratio=0.0, loop_queued_ns=0, throttled_ratio=None,
        runnable_threads=None, tree_cpus=None, other_cpus=None, allowed_count=2, cpu_count=4, neighbour=None,
    )  # fmt: skip


QUEUE = Blame(activity=Activity.CPU_QUEUE, where=Place(), idle_ns=30.0, is_input=True)


def test_blame_by_effect_repeats_the_truth_where_nothing_is_contended() -> None:
    """The same shares as the marginal effects of the loader itself, and the same sum as before."""
    truth = _loader("saturated").marginal_shares()
    blames = [_blame(DECODE, 50.0), _blame(HEAT, 50.0)]

    dealt = deal_by_effect(_model("saturated"), blames, _contention(Reason.OWN_WORK))

    assert sum(one.idle_ns for one in dealt) == pytest.approx(100)
    assert [one.idle_ns / 100 for one in dealt] == pytest.approx(truth, abs=0.03)
    assert [one.path_ns for one in dealt] == [50.0, 50.0]


def test_waiting_beside_contended_cpus_is_nearly_free() -> None:
    """Half the making is waiting, on the path half of the blame; with cores short its true effect is close to none."""
    model = _model("saturated")
    as_wait = replace(
        model,
        parts=tuple(
            replace(part, kind=part.kind if part.label == DECODE else type(part.kind).WAIT)
            for part in model.parts
        ),
        host=replace(model.host, cpus=1.0),
    )
    as_wait = replace(as_wait, simulated_ns=mean_step_ns(as_wait))

    dealt = deal_by_effect(
        as_wait, [_blame(DECODE, 60.0), _blame(HEAT, 40.0)], _contention(Reason.OWN_WORK)
    )

    by_label = {one.where.function: one.idle_ns for one in dealt}
    assert by_label["heat_map"] < 40 / 4
    assert "contended" in state_difference(0.05, 0.40)[0].text
    assert not state_difference(0.38, 0.40)


def test_a_mask_takes_what_would_go_without_it() -> None:
    """Two of four cores: half of the waiting beyond a free loader is the mask's, the rest the work's."""
    model = _model("saturated")
    masked = replace(model, host=replace(model.host, cpus=2.0))
    masked = replace(masked, simulated_ns=mean_step_ns(masked), replay_ns=masked.step_ns)
    mask = _contention(Reason.MASK)

    dealt = deal_by_effect(masked, [QUEUE, _blame(DECODE, 60.0), _blame(HEAT, 10.0)], mask)

    now, free, without = (
        masked.simulated_ns,
        6.0 * MS,
        mean_step_ns(edit(masked, Change(cpus=4))),
    )
    queue = next(one for one in dealt if one.activity is Activity.CPU_QUEUE)
    assert is_decisive(masked, mask)
    assert not is_decisive(masked, _contention(Reason.NONE))
    assert sum(one.idle_ns for one in dealt) == pytest.approx(100)
    assert queue.idle_ns == pytest.approx(100 * (now - without) / (now - free), rel=0.05)


def test_a_loader_without_workers_gains_by_the_first_ones() -> None:
    """20 ms of making and 10 ms of step, one after the other: with one worker side by side, hand-over apart."""
    count = 60
    ask = np.arange(count, dtype=np.int64) * 30 * MS
    got = ask + 20 * MS
    batch, zeros = np.arange(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    steps = empty(
        Steps, ask_ns=ask, got_ns=got, end_ns=got + 10 * MS, iteration=zeros + 1, batch=batch,
        sampler_ns=zeros, receive_cpu_ns=zeros,
    )  # fmt: skip
    batches = empty(
        Batches, iteration=zeros + 1, batch=batch, worker=zeros - 1, pid=zeros + 1, start_ns=ask, end_ns=got,
        cpu_ns=got - ask, runq_ns=zeros, collate_ns=zeros,
    )  # fmt: skip
    rank = make_rank(steps, batches, iterations={1: make_iteration(workers=0, prefetch=0)})
    model = build_model(make_timeline(rank), rank, [])

    assert isinstance(model, LoaderModel)
    assert model.replay_error == pytest.approx(0, abs=0.01)
    found = forecast(model, Change(workers=1, prefetch=2))
    assert not isinstance(found, Withheld)
    assert 1.3 < found.speedup <= 1.5


def test_what_was_not_recorded_is_no_work() -> None:
    """Without counters the making is waiting, and the replay repeats it; without a loader there is none."""
    loader = _loader("saturated")
    rank = loader.rank()
    unknown = np.full(BATCHES, -1)
    bare = replace(
        rank,
        batches=replace(rank.batches, cpu_ns=unknown, runq_ns=unknown, index_ns=unknown),
    )
    model = build_model(make_timeline(bare), bare, LABELS)
    lost = replace(rank, iterations={})

    assert isinstance(model, LoaderModel)
    assert model.replay_error == pytest.approx(0, abs=0.02)
    assert isinstance(build_model(make_timeline(lost), lost, LABELS), Withheld)


@pytest.mark.parametrize(("busy_ratio", "gain"), [(1.0, 1.0), (0.3, 2.0)], ids=["full disk", "slow disk"])  # fmt: skip
def test_a_full_disk_serves_no_more_workers(busy_ratio: float, gain: float) -> None:
    """Four workers that wait 40 ms a batch for a disk: it answers eight as well, unless it was busy all the time."""
    read = Label(Activity.STORAGE, Place(file=SCRIPT, function="decode", line=10))
    loader = SimulatedLoader(np.full((200, 1), 40.0 * MS), np.full(200, 1.0 * MS), 4, 2)
    rank = _with_stacks(loader)
    samples = rank.stack_samples
    blocked = replace(
        samples,
        on_cpu=np.zeros(len(samples), dtype=bool),
        wait=np.full(len(samples), Wait.FILE),
    )
    rank = replace(
        rank, stack_samples=blocked, batches=replace(rank.batches, cpu_ns=np.zeros(200, dtype=np.int64))
    )  # fmt: skip
    window = ints(rank.window_start_ns, rank.window_end_ns)
    busy = Series(now_ns=window, value=ints(0, int(busy_ratio * rank.window_ns)))
    timeline = make_timeline(rank, counters={"disk.vda.busy_ns": busy})
    model = build_model(timeline, rank, [read])

    assert isinstance(model, LoaderModel)
    found = forecast(model, Change(workers=8))
    assert not isinstance(found, Withheld)
    assert found.speedup == pytest.approx(gain, rel=0.03)


def test_the_loops_own_code_is_told_from_its_wait_for_the_device() -> None:
    """10 ms on the device, waited for, then 20 ms of a metric: without the metric a step takes 10 ms."""
    metric = Label(Activity.PYTHON, Place(file=SCRIPT, function="count", line=50))
    rank = SimulatedLoader(
        np.full((100, 1), 1.0 * MS), np.full(100, 30.0 * MS), 2, 2
    ).rank()
    got = rank.steps.got_ns
    looks = (got[:, None] + np.arange(2, 30, 4) * MS).ravel()
    samples = empty(
        StackSamples, pid=np.full(len(looks), rank.pid), now_ns=looks, role=np.full(len(looks), StackRole.LOOP),
        weight_ns=np.full(len(looks), SAMPLE_NS), stack=np.tile(ints(0, 0, 1, 1, 1, 1, 1), 100),
    )  # fmt: skip
    rank = replace(
        rank,
        device_kind="simulated",
        busy=Intervals(start_ns=got, end_ns=got + 10 * MS),
        marks=empty(Marks, mark=np.full(100, Mark.SYNC), start_ns=got, end_ns=got + 10 * MS),
        stack_samples=samples,
        stacks=((Frame(SCRIPT, "train", 40),), (Frame(SCRIPT, "train", 41), Frame(SCRIPT, "count", 50))),
        window_end_ns=int(rank.steps.end_ns[-1]),
    )  # fmt: skip
    model = build_model(make_timeline(rank), rank, [metric])

    assert isinstance(model, LoaderModel)
    assert model.replay_error == pytest.approx(0, abs=0.01)
    found = forecast(model, Change(loop_removed=((metric, 0.0),)))
    assert not isinstance(found, Withheld)
    assert found.speedup == pytest.approx(3, rel=0.05)
