"""Each rule: from which evidence it proposes what, and when it keeps silent."""

from __future__ import annotations

import re

import pytest

from tests.cases import make_case, make_contention, make_stance
from tests.conftest import REPOSITORY
from tests.verdicts import make_cause
from whyidle.analysis.contention import Reason
from whyidle.analysis.forecast import Change
from whyidle.analysis.loader_model import Label
from whyidle.analysis.rules import RULES, speed_up_code, trim_tail
from whyidle.analysis.rules.case import Case, Proposal
from whyidle.model.findings import Activity, Limit, Regime

SCRIPT = "/home/me/train.py"
LOOP = "def fill(points):\n    for x, y in points:\n        total += x * y\n"
NOT_SEEN = {"none", "non-blocking-copy"}
"""The device's limit is no change; copies to the device are not told apart from the loop's own code yet."""


def _propose(case: Case, remedy: str) -> list[Proposal]:
    found = [proposal for rule in RULES for proposal in rule(case)]
    return [one for one in found if one.remedy == remedy]


def _only(case: Case, remedy: str) -> Proposal:
    (found,) = _propose(case, remedy)
    return found


def _in_script(text: str, line: int = 1, **where):
    return {"file": SCRIPT, "line": line, "function": "fill"} | where, {SCRIPT: text}


def test_every_remedy_of_the_glossary_has_a_rule_of_its_name() -> None:
    """One rule a file, and no word that nothing ever says."""
    glossary = (REPOSITORY / "docs" / "glossary.md").read_text()
    section = glossary.partition("\n## Remedies\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))

    files = {rule.__module__.rpartition(".")[2].replace("_", "-") for rule in RULES}

    assert files == listed - NOT_SEEN


def test_computing_workers_are_raised_to_the_cpus_and_no_further() -> None:
    """Four CPUs are allowed: more than four computing workers are not tried."""
    found = _propose(make_case(make_cause()), "raise-workers")

    assert [one.change for one in found] == [Change(workers=3), Change(workers=4)]
    assert found[-1].settings == (("num_workers", 4),)
    assert "num_workers=4 in the DataLoader built at train.py:5" in found[-1].how
    assert all(one.automatic for one in found)


def test_waiting_workers_are_raised_beyond_the_cpus() -> None:
    """Who waits needs no CPU."""
    found = _propose(make_case(make_cause(Activity.STORAGE)), "raise-workers")

    assert found[-1].change == Change(workers=8)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"limit": Limit.HOST}, "the loop's own code takes the time"),
        ({"stance": make_stance(spare_cpus=0.1)}, "the CPUs are in use"),
        (
            {"causes": (make_cause(Activity.TRANSPORT, Regime.SERIAL_STAGE),)},
            "one at a time",
        ),
    ],
    ids=["host", "full", "serial"],
)
def test_more_workers_in_vain_say_why(changes: dict, why: str) -> None:
    """The reason follows from what was seen."""
    case = make_case(make_cause(), **changes)

    assert why in _propose(case, "raise-workers")[0].in_vain


@pytest.mark.parametrize(
    ("reason", "remedy", "change", "settings"),
    [
        (Reason.THREADS, "limit-threads", Change(threads_limited=True), (("worker_threads", 1),)),
        (Reason.MASK, "unpin-cpus", Change(cpus=8), (("cpus", "all"),)),
        (Reason.QUOTA, "raise-cpu-quota", Change(quota_removed=True), ()),
        (Reason.NEIGHBOUR, "remove-neighbour", Change(neighbour_removed=True), ()),
    ],
    ids=["threads", "mask", "quota", "neighbour"],
)  # fmt: skip
def test_reason_for_queueing_has_its_remedy_and_no_other(
    reason: Reason, remedy: str, change: Change, settings: tuple
) -> None:
    """What stands in the way of CPUs is what to remove."""
    case = make_case(make_cause(Activity.CPU_QUEUE), contention=make_contention(reason))
    found = _only(case, remedy)

    assert (found.change, found.settings) == (change, settings)
    assert found.automatic == bool(settings)
    for other in Reason:
        if other is not reason:
            silent = make_case(make_cause(), contention=make_contention(other))
            assert not _propose(silent, remedy)


def test_pinning_without_cuda_is_named_as_vain() -> None:
    """torch ignores the argument then: nothing is changed, and nothing to try."""
    found = _only(make_case(make_cause()), "pin-memory")

    assert (found.change, found.automatic) == (Change(), False)
    assert found.in_vain == "there is no CUDA device to copy to"


def test_pinning_for_cuda_is_automatic() -> None:
    """There it is a copy that may overlap."""
    found = _only(make_case(make_cause(), rank={"device_kind": "cuda"}), "pin-memory")

    assert (found.change, found.automatic) == (Change(pinned=True), True)


@pytest.mark.parametrize(("torch", "count"), [("2.5.1", 0), (None, 0), ("2.6.0", 1)])
def test_order_is_given_up_where_torch_can(torch: str | None, count: int) -> None:
    """`in_order` came with torch 2.6."""
    assert len(_propose(make_case(make_cause(), torch=torch), "out-of-order")) == count


def test_workers_are_kept_where_epochs_begin_within_the_run() -> None:
    """One epoch says nothing about the start of the next."""
    begun = {"rank": {"window_start_ns": 0}}
    before = {"rank": {"window_start_ns": 1}}

    assert _propose(make_case(make_cause(), **begun), "persistent-workers")
    assert not _propose(make_case(make_cause(), **before), "persistent-workers")
    persistent = make_case(make_cause(), loader={"persistent": True}, **begun)
    assert not _propose(persistent, "persistent-workers")


def test_loop_in_the_hot_place_is_vectorised_and_not_only_sped_up() -> None:
    """The source says what to write; half the time is not asked for beside it."""
    where, sources = _in_script(LOOP, line=3)
    cause = make_cause(share=0.5, **where)
    case = make_case(cause, sources=sources)

    found = _only(case, "vectorise-loop")

    assert found.change == Change(scaled=((Label.of(cause), 0.1),))
    assert "`x, y = np.asarray(points).T`" in found.how
    assert "train.py:3" in found.how
    assert not list(speed_up_code.propose(case))


def test_missing_source_leaves_the_place_and_half_the_time() -> None:
    """A file that is not there any more is no crash, and no loop is claimed."""
    where, _ = _in_script(LOOP, line=3)
    case = make_case(make_cause(share=0.5, **where))

    assert not _propose(case, "vectorise-loop")
    assert _only(case, "speed-up-code").change.scaled[0][1] == 0.5


def test_small_causes_are_not_worth_a_prescription() -> None:
    """At 60 % idle, 5 % of the idle time is 3 % of a step."""
    where, sources = _in_script(LOOP, line=3)
    case = make_case(make_cause(share=0.05, **where), sources=sources)

    assert not _propose(case, "vectorise-loop")


def test_sleep_is_to_be_removed() -> None:
    """Nothing is computed meanwhile, so all of it can go."""
    found = _only(make_case(make_cause(Activity.SLEEP, function="poll")), "speed-up-code")

    assert found.change.scaled[0][1] == 0.0


def test_tail_is_trimmed_where_there_is_one() -> None:
    """Even batches have none."""
    uneven = make_case(make_cause(function="read"), slow_ms=400)

    found = next(trim_tail.propose(uneven))

    assert "took 400 ms, the median is 80.0 ms" in found.how
    assert not list(trim_tail.propose(make_case(make_cause(function="read"))))


def test_moving_to_the_device_needs_one() -> None:
    """And costs the device some time for each batch."""
    cause = make_cause(function="render")
    found = _only(make_case(cause, rank={"device_kind": "cuda"}), "move-to-device")

    ((label, cost_ns),) = found.change.to_device
    assert label == Label.of(cause)
    assert cost_ns > 0
    assert not _propose(make_case(cause), "move-to-device")


@pytest.mark.parametrize("activity", [Activity.STORAGE, Activity.NETWORK])
def test_waiting_for_data_has_all_remedies_of_reading(activity: Activity) -> None:
    """Overlap, pack, or move the data; the mount is named."""
    case = make_case(
        make_cause(activity, mount="/data (nfs4)"), payload={"size_bytes": 800_000}
    )

    assert [one.cost for one in _propose(case, "parallel-reads")] == [4, 8]
    assert "/data (nfs4)" in _only(case, "faster-storage").how
    assert "A sample is 100 kB" in _only(case, "pack-files").how


def test_large_samples_and_streams_are_not_packed() -> None:
    """They are read in sequence already."""
    cause = make_cause(Activity.STORAGE)
    large = make_case(cause, payload={"size_bytes": 80_000_000})

    assert not _propose(large, "pack-files")
    assert not _propose(make_case(cause, loader={"iterable": True}), "pack-files")
    assert not _propose(make_case(make_cause()), "faster-storage")


def test_samples_are_cached_where_an_epoch_was_seen() -> None:
    """Its size is what a cache needs."""
    cause = make_cause(Activity.STORAGE)
    case = make_case(cause, payload={"size_bytes": 1_000_000})
    passes = {1: case.loader, 2: case.loader}
    again = make_case(cause, payload={"size_bytes": 1_000_000}, rank={"iterations": passes})

    assert not _propose(case, "cache-samples")
    assert "60.0 MB" in _only(again, "cache-samples").how


def test_decoding_is_cached_but_not_augmenting() -> None:
    """What is the same in each epoch can be kept."""
    where, sources = _in_script("def fill(path):\n    return Image.open(path)\n", line=2)
    other, more = _in_script("def fill(image):\n    return image + noise\n", line=2)
    twice = {"payload": {"size_bytes": 1000}, "rank": {}}
    passes = make_case().loader
    twice["rank"] = {"iterations": {1: passes, 2: passes}}

    assert _propose(
        make_case(make_cause(**where), sources=sources, **twice), "cache-samples"
    )
    assert not _propose(
        make_case(make_cause(**other), sources=more, **twice), "cache-samples"
    )


def test_handing_over_many_tensors_or_bytes_is_mended_by_fewer() -> None:
    """Each by what there is too much of."""
    cause = make_cause(Activity.TRANSPORT)
    many = make_case(cause, payload={"tensor_count": 100, "size_bytes": 1000})
    large = make_case(cause, payload={"tensor_count": 2, "size_bytes": 50_000_000})

    assert _only(many, "fewer-tensors").change == Change(tensors_factor=0.04)
    assert not _propose(many, "smaller-batch-bytes")
    assert _only(large, "smaller-batch-bytes").change == Change(bytes_factor=0.25)
    assert not _propose(large, "fewer-tensors")


def test_sampler_lock_and_shards_have_a_remedy_each() -> None:
    """Whatever serialises the workers."""
    drawn = make_case(make_cause(Activity.SAMPLER))
    locked = make_case(make_cause(Activity.LOCK, Regime.LOCK_BOUND))
    dealt = make_case(
        make_cause(), loader={"iterable": True}, stance=make_stance(active_workers=1)
    )

    assert _only(drawn, "cheaper-sampler").change == Change(sampler_factor=0.1)
    assert _only(locked, "remove-lock").change == Change(lock_removed=True)
    assert _only(dealt, "rebalance-shards").change == Change(rebalanced=True)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("    torch.save(model.state_dict(), path)", "async-checkpoint"),
        ("    writer.add_scalar('loss', loss)", "less-logging"),
        ("    for x, y in points: total += x * y", "vectorise-metric"),
        ("    validate(model)", "speed-up-code"),
    ],
)
def test_loop_s_own_code_is_told_apart_by_its_line(line: str, remedy: str) -> None:
    """Exactly one rule speaks of it."""
    where, sources = _in_script(f"def fill(points):\n{line}\n", line=2)
    cause = make_cause(Activity.PYTHON, Regime.STEADY, **where)
    case = make_case(cause, sources=sources, limit=Limit.HOST)

    found = [
        one
        for rule in RULES
        for one in rule(case)
        if one.change is not None and one.change.loop_removed
    ]

    assert [one.remedy for one in found] == [remedy]
    assert found[0].change.loop_removed[0][0] == Label.of(cause)


@pytest.mark.parametrize(
    ("activity", "remedy", "left"),
    [(Activity.SYNC, "avoid-sync", 0.0), (Activity.LAUNCH, "batch-launches", 0.3)],
)
def test_waiting_between_loop_and_device_has_its_remedy(
    activity: Activity, remedy: str, left: float
) -> None:
    """The loop's own part of it is what can be changed."""
    cause = make_cause(activity, Regime.STEADY, function="train")

    found = _only(make_case(cause), remedy)

    assert found.change == Change(loop_removed=((Label.of(cause), left),))


def test_late_rank_has_advice_without_a_forecast() -> None:
    """And the reason for that."""
    found = _only(
        make_case(make_cause(Activity.COLLECTIVE, Regime.STRAGGLER)), "balance-ranks"
    )

    assert found.change is None
    assert "one rank's records" in found.unknown


def test_operation_that_is_known_gets_its_own_advice() -> None:
    """What an expert would try for the line that is hot, before the general words."""
    where, sources = _in_script("def fill(path):\n    return Image.open(path)\n", line=2)

    found = _only(make_case(make_cause(**where), sources=sources), "speed-up-code")

    assert "`return Image.open(path)`" in found.how
    assert "picture.draft" in found.how
